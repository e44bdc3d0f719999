"""Run all examples, draw their pictures, and write their figures into the README of the gallery."""

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

    page = EXAMPLES / "README.md"
    names = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.py"))
    for name in names:
        print(f"\n{name}", flush=True)
        picture = EXAMPLES / f"pictures/{name}.png"
        script = str(EXAMPLES / f"{name}.py")
        subprocess.run([sys.executable, script, "--picture", str(picture)], check=True)  # noqa: S603
        with Image.open(picture) as image:
            table = as_markdown(json.loads(image.text["Figures"]))
        before, place, rest = page.read_text("utf-8").partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        if not end:
            raise SystemExit(f"{page} has no place for the figures of {name}")
        page.write_text(f"{before}{place}\n{table}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
