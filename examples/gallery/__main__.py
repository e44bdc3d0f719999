"""Run the examples, draw their pictures, and write their tables into the gallery."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1]
sys.path.insert(0, str(EXAMPLES))

from gallery import as_markdown  # noqa: E402


def main() -> None:
    """Run the examples that are named, or all, one after another."""
    from PIL import Image  # matplotlib needs it too

    pages = {path: path.read_text("utf-8") for path in EXAMPLES.glob("*.md")}
    names = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name in names:
        print(f"\n{name}", flush=True)
        picture = EXAMPLES / f"pictures/{name}.png"
        script = str(EXAMPLES / f"{name}.py")
        subprocess.run([sys.executable, script, "--picture", str(picture)], check=True)  # noqa: S603
        with Image.open(picture) as image:
            table = as_markdown(json.loads(image.text["Figures"]))
        start = f"<!-- {name} -->\n"
        page = next((path for path, text in pages.items() if start in text), None)
        if page is None:
            raise SystemExit(f"no page of {EXAMPLES} has a place for the figures of {name}")
        before, _, rest = pages[page].partition(start)
        _, end, after = rest.partition("<!-- end -->\n")
        pages[page] = f"{before}{start}\n{table}\n\n{end}{after}"
        page.write_text(pages[page], encoding="utf-8")


if __name__ == "__main__":
    main()
