"""Selections of an array as text."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any, Final

import numpy as np

from zarr_bytes.errors import StoreError

INDEXED: Final = ("oindex", "vindex", "blocks")
"""The attributes of an array that are indexed in a way of their own."""


def text_of_selection(selection: Any) -> str:
    """A selection as Python code, in brackets; long arrays by their shape.

    Examples
    --------
    >>> text_of_selection((..., slice(None, 5), 7, [1, 2]))
    '[..., :5, 7, [1, 2]]'
    """
    entries = selection if isinstance(selection, tuple) else (selection,)
    return f"[{', '.join(map(_text_of_entry, entries))}]"


def _text_of_entry(entry: Any) -> str:
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        ends = ["" if end is None else str(end) for end in (entry.start, entry.stop, entry.step)]
        return ":".join(ends if ends[2] else ends[:2])
    values = np.asarray(entry)
    if values.ndim == 0:
        return str(entry)
    if values.size > 6:
        return f"<{values.size} of {'x'.join(map(str, values.shape))}>"
    return str(values.tolist())


def selection_of_text(text: str) -> tuple[str, Any]:
    """The selection in a text such as ``[:, 7, 3]``, after a name such as ``oindex`` or none.

    No code is run.

    Raises
    ------
    StoreError
        If the text has another name than `oindex`, `vindex` or `blocks`, or other entries than
        integers, slices, ``...`` and lists of integers.

    Examples
    --------
    >>> selection_of_text("[:, -7, ..., [1, 2]]")
    ('', (slice(None, None, None), -7, Ellipsis, [1, 2]))
    >>> selection_of_text("oindex[[1, 2]]")
    ('oindex', ([1, 2],))
    """
    name, bracket, code = text.strip().partition("[")
    if name not in ("", *INDEXED) or not code.endswith("]"):
        name, bracket, code = "", "[", f"{text}]"
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{bracket}{code}", mode="eval").body:
            case ast.Subscript(ast.Name(), ast.Tuple(nodes)):
                return name, tuple(map(_entry_of_text, nodes))
            case ast.Subscript(ast.Name(), node):
                return name, (_entry_of_text(node),)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]', after oindex, vindex, blocks or nothing"
    )


def _entry_of_text(node: ast.expr) -> Any:
    if isinstance(node, ast.Slice):
        ends = (node.lower, node.upper, node.step)
        return slice(*[None if end is None else _integer(end) for end in ends])
    if isinstance(node, ast.List):
        return [_integer(element) for element in node.elts]
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Ellipsis
    return _integer(node)


def _integer(node: ast.expr) -> int:
    value = ast.literal_eval(node)
    if type(value) is not int:
        raise ValueError
    return value
