"""Pictures of what the benchmarks have measured: a dot for each series, its value beside it.

    python tests/benchmarks/drawing.py

draws all pictures again, from the figures that are stored beside them. The look is that of the
examples: blue is this package, grey is zarr, and there is no background. Every contender has a mark
of its own. A picture is as wide as a phone shows it.
"""

import json
from math import ceil, floor, log10
from pathlib import Path

STYLE = Path(__file__).parents[2] / "examples/style.mplstyle"
BLUE, GREY = "#2f86c9", "#7b8087"
MARKS = {  # by the beginning of a name, in lower case; the last that fits
    "": ("P", "#a0785a"),
    "zarr": ("s", GREY),
    "zarr fused": ("X", GREY),
    "zarrs": ("^", "#c9702f"),
    "zarrista": ("v", "#a05fb5"),
    "tensorstore": ("D", "#3f9a63"),
    "hdf5": ("p", "#b3911f"),
    "zarr-bytes": ("o", BLUE),
}
ROW = 0.19  # inches


def save(title, unit, measured, path):
    """Store `measured`, values by series by group, beside the picture at `path`, and draw it."""
    figures = {"title": title, "unit": unit, "measured": measured}
    path.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    draw(path)


def draw(path):
    """Draw the picture at `path` from the figures beside it."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image  # matplotlib needs it too

    plt.style.use(STYLE)
    figures = json.loads(path.with_suffix(".json").read_text("utf-8"))
    title, unit, measured = figures["title"], figures["unit"], figures["measured"]
    rows, y = [], 0  # place, name, value; of a heading None
    for group, series in measured.items():
        for name, value in ((group, None), *series.items()):
            rows.append((y, name, value))
            y += 1
        y += 0.5
    values = [value for _, _, value in rows if value is not None]
    width = plt.rcParams["figure.figsize"][0]
    figure, axes = plt.subplots(figsize=(width, 1 + ROW * y))
    for y, name, value in rows:
        if value is not None:
            mark, colour = mark_of(name)
            axes.plot(value, y, mark, color=colour, markersize=6, clip_on=False)
            axes.annotate(
                f"{in_words(value)} {unit}",
                (value, y),
                (7, 0),
                textcoords="offset points",
                va="center",
                color=colour,
            )
    axes.set_yticks([y for y, _, _ in rows], [name for _, name, _ in rows])
    for label, (_, name, value) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if value is None else "normal")
        label.set_color(GREY if value is None else mark_of(name)[1])
    axes.set_ylim(y + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xscale("log")
    axes.set_xlim(10 ** floor(log10(min(values))), 10 ** ceil(log10(max(values))))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="x", color=GREY, alpha=0.25)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{unit} (logarithmic)")
    figure.suptitle(title, x=0.02, ha="left", fontsize="medium")
    figure.savefig(path)
    plt.close(figure)
    with Image.open(path) as image:  # few colours make a small file
        image.quantize(64).save(path, optimize=True)


def mark_of(name):
    """The mark and the colour of a contender."""
    return [mark for start, mark in MARKS.items() if name.lower().startswith(start)][-1]


def in_words(value):
    """Two or three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


if __name__ == "__main__":
    for picture in Path(__file__).parent.glob("*.png"):
        draw(picture)
