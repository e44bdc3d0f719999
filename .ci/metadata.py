"""What the metadata of the package says of its home: its addresses, and the README for an index.

An index shows the README away from the repository, where a link such as ``docs/questions.md``
leads nowhere. The README of the metadata links to the same file of the version instead.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

# In Markdown and in HTML; neither an address nor a place on the same page.
RELATIVE_LINK = re.compile(
    r'(?P<before>\]\(|\b(?:href|src|srcset)=")(?![\w+.-]+:|#)(?P<path>[^)\s"]+)'
)
PICTURES = (".png", ".svg")


class Home(MetadataHookInterface):
    """Fill in ``readme`` and ``urls`` of the project from the two addresses in pyproject.toml."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add both fields to the project's `metadata`."""
        repository, tag = self.config["repository"], f"v{metadata['version']}"
        metadata["urls"] = {
            "Documentation": self.config["documentation"],
            "Source": repository,
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }

        def absolute(link: re.Match[str]) -> str:
            kind = "raw" if link["path"].endswith(PICTURES) else "blob"
            return f"{link['before']}{repository}/{kind}/{tag}/{link['path']}"

        text = RELATIVE_LINK.sub(absolute, Path(self.root, "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
