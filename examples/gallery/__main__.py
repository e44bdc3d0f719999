"""Run the examples, draw their pictures, and write their tables into the pages."""

import json
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1]
sys.path.insert(0, str(EXAMPLES))

from gallery import HEADLINE, as_headline, as_markdown  # noqa: E402

GALLERY = EXAMPLES / "README.md"
FRONT_PAGES = EXAMPLES.parent / "README.md", EXAMPLES.parent / "docs/index.md"


def main() -> None:
    """Run the examples that are named, or all, one after another."""
    from PIL import Image  # matplotlib needs it too

    names = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name in names:
        print(f"\n{name}", flush=True)
        picture = EXAMPLES / f"pictures/{name}.png"
        script = str(EXAMPLES / f"{name}.py")
        subprocess.run([sys.executable, script, "--picture", str(picture)], check=True)  # noqa: S603
        with Image.open(picture) as image:
            table = json.loads(image.text["Figures"])
        write(GALLERY, name, as_markdown(table))
        if name == HEADLINE:
            for page in FRONT_PAGES:
                write(page, name, as_headline(table))


def write(page: Path, name: str, table: str) -> None:
    """Replace the table of an example in a page."""
    before, start, rest = page.read_text("utf-8").partition(f"<!-- {name} -->\n")
    if not start:
        raise SystemExit(f"{page} has no place for the figures of {name}")
    _, end, after = rest.partition("\n<!-- end -->\n")
    page.write_text(f"{before}{start}{table}{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
