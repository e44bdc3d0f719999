"""The result of `status` as lines and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr_bytes.commands.screen import PATH, Line, Table
from zarr_bytes.commands.text import in_digits
from zarr_bytes.errors import HOW_TO_INSTALL
from zarr_bytes.settings import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.origin import Origin
    from zarr_bytes.commands.screen import Part, Text
    from zarr_bytes.commands.status import DataType, Setting, Status

__all__ = ["status_parts"]


def status_parts(found: Status, *, in_full: bool) -> Iterator[Part]:
    """Whether zarr uses this package, the origin of each class and setting, and advice."""
    yield _verdict(found)
    yield Line((", ".join(f"{name} {version}" for name, version in found.versions.items()), "dim"))
    pipeline = found.pipeline
    classes: list[tuple[Text, ...]] = [
        (codec.name, (codec.found, "green" if codec.is_active else "red"), _who(codec.origin))
        for codec in found.codecs
    ]
    classes += [("pipeline", (pipeline.found, PATH), _who(pipeline.origin))]
    yield from (Line(), Table(("Codec", "Class", "Decided by"), classes), Line())
    yield Line(("Parts of chunks ", "bold"), f"{pipeline.acts_for}.")
    yield Line(("New arrays ", "bold"), f"have {found.new_arrays}.")
    yield Line(("One array ", "bold"), "is explained by `zarr-bytes explain STORE '[0]'`.")
    if found.data_types_need_import:
        text = "need `import zarr_bytes` first: zarr {zarr} does not load them by itself."
        yield Line(("Data types ", "bold"), (text.format_map(found.versions), "yellow"))
    if in_full:
        yield from (Line(), Table(("Data type", "Class"), _grouped(found.data_types)))
    else:
        yield _data_types(found.data_types)
    settings = ((s.name, _value(s), _who(s.origin)) for s in found.settings)
    yield from (Line(), Table(("Setting", "Value", "Decided by"), settings))
    texts = (*found.problems, *found.unknown, *found.advice)
    if texts:
        yield from (Line(), Line(("What to do", "bold")))
    for text in texts:
        # Commands and lines of files are copied, as one line each.
        yield Line(text, indent=2, is_whole=text.startswith(("export ", "unset ", "codec")))


def _verdict(found: Status) -> Line:
    if found.is_active and found.unknown:
        first, *others = found.unknown
        more = f", and {len(others)} more below" if others else ""
        return Line(("Active, but", "bold yellow"), f" {first}{more}.")
    if found.is_active:
        lacking = " and ".join(codec.name for codec in found.codecs if not codec.is_active)
        but = f" Not so for {lacking}." if lacking else ""
        does = " zarr reads and writes bytes through zarr-bytes."
        return Line(("Active:", "bold green"), does, but)
    if found.problems:
        return Line(("Not working:", "bold red"), " a setting is not permitted.")
    return Line(("Not active:", "bold red"), " zarr does not use zarr-bytes.")


def _data_types(data_types: list[DataType]) -> Line:
    """Number of data types with a class of this package, in one line."""
    lacking = [d for d in data_types if d.lacks]
    others = [d.name for d in data_types if not (d.is_active or d.lacks)]
    active = len(data_types) - len(lacking) - len(others)
    but = f"; {len(lacking)} lack {_how(lacking[0])}" if lacking else ""
    but += f"; by others: {', '.join(others)}" if others else ""
    found = f"{active} of {len(data_types)} by zarr-bytes"
    return Line(("Data types: ", "bold"), found, (but, "yellow"), ("; --verbose lists them", "dim"))


def _how(data_type: DataType) -> str:
    """The package missing for a data type, and the command that installs it."""
    return f"{data_type.lacks}: {HOW_TO_INSTALL[data_type.lacks or '']}"


def _grouped(data_types: list[DataType]) -> list[tuple[Text, ...]]:
    """One row for the active data types of each module, and one for each other data type."""
    modules: dict[str, list[str]] = {}
    others: list[tuple[Text, ...]] = []
    for data_type in data_types:
        if data_type.lacks:
            others.append((data_type.name, (f"lacks {_how(data_type)}", "yellow")))
        elif not data_type.is_active:
            others.append((data_type.name, (data_type.found, "yellow")))
        else:
            modules.setdefault(data_type.found.rpartition(".")[0], []).append(data_type.name)
    return [*((", ".join(names), module) for module, names in modules.items()), *others]


def _value(setting: Setting) -> str:
    """The value of a setting; a size in its largest whole unit."""
    value = setting.value
    is_size = setting.name.startswith(("zarr_bytes.gap.", "zarr_bytes.largest_request."))
    if not is_size or not isinstance(value, int) or isinstance(value, bool):
        return str(value)
    sizes = [unit for unit, size in UNITS.items() if value % size == 0]
    unit = sizes[-1] if value else sizes[0]
    return f"{in_digits(value // UNITS[unit])} {unit}"


def _who(origin: Origin) -> Text:
    """An origin as the text of a cell."""
    if origin.kind == "default":
        return "default", "dim"
    if origin.kind == "environment variable":
        return f"environment: {origin.name}"
    return origin.name or origin.kind, PATH
