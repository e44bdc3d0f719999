"""Selections of an array: as code gives them, as text, and as the indices of each axis."""

from __future__ import annotations

import ast
from typing import Any, cast

import numpy as np

from zarr_bytes.errors import StoreError

__all__ = ["entries_in", "selection_of_text", "text_of_selection"]


def entries_in(selection: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A selection of an array with one entry an axis: an integer, a slice or an array of integers.

    Parameters
    ----------
    selection : int, slice, Ellipsis, array of integers or bools, or a tuple of these
    shape : tuple of int
        Of the array.

    Raises
    ------
    IndexError
        If the selection does not fit the shape.

    Examples
    --------
    >>> entries_in((..., -1), (3, 4))
    (slice(None, None, None), 3)
    """
    given = list(selection) if isinstance(selection, tuple) else [selection]
    if len(given) == 1 and np.ndim(given[0]) > 1 and np.asarray(given[0]).dtype == bool:
        given = list(np.nonzero(given[0])) if np.shape(given[0]) == shape else given
    ellipses = [i for i, entry in enumerate(given) if entry is Ellipsis]
    missing = len(shape) - len(given) + len(ellipses)
    if len(ellipses) > 1 or missing < 0:
        raise IndexError(
            f"the selection {text_of_selection(selection)} has {len(given)} entries, and the array"
            f" has {len(shape)} axes"
        )
    place = ellipses[0] if ellipses else len(given)
    given[place : place + len(ellipses)] = [slice(None)] * missing
    sizes = enumerate(zip(given, shape, strict=True))
    entries = [_entry(entry, n, axis) for axis, (entry, n) in sizes]
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if len(arrays) > 1 and any(isinstance(entry, slice) for entry in entries):
        for i, array in zip(arrays, np.ix_(*[entries[i] for i in arrays]), strict=True):
            entries[i] = array  # each along its own axis, as zarr takes them beside slices
    return tuple(entries)


def _entry(entry: Any, n: int, axis: int) -> Any:
    if isinstance(entry, slice):
        return entry
    indices = np.asarray(entry)
    if indices.dtype == bool and indices.shape == (n,):
        indices = np.flatnonzero(indices)
    if indices.dtype.kind not in "iu" and indices.size:
        raise IndexError(
            f"the entry {entry!r} for axis {axis} is neither an integer, a slice, nor an array of"
            f" integers or of {n} bools"
        )
    if indices.size and not (-n <= indices.min() and indices.max() < n):
        wrong = indices[(indices < -n) | (indices >= n)].flat[0]
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} of size {n}")
    indices = np.where(indices < 0, indices + n, indices).astype(np.int64)
    return int(indices) if indices.ndim == 0 else indices


def text_of_selection(selection: Any) -> str:
    """A selection as it is written between brackets.

    Examples
    --------
    >>> text_of_selection((..., slice(None, 5), 7, [1, 2]))
    '[..., :5, 7, [1, 2]]'
    """
    entries = selection if isinstance(selection, tuple) else (selection,)
    return f"[{', '.join(map(_text, entries))}]"


def _text(entry: Any) -> str:
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


def selection_of_text(text: str) -> tuple[Any, ...]:
    """The selection that a text such as ``[:, 7, 3]`` names; nothing is evaluated.

    Raises
    ------
    StoreError
        If the text is anything else than integers, slices, ``...`` and lists of integers.

    Examples
    --------
    >>> selection_of_text("[:, -7, ..., [1, 2]]")
    (slice(None, None, None), -7, Ellipsis, [1, 2])
    """
    inner = text.strip().removeprefix("[").removesuffix("]")
    try:
        node = cast("ast.Subscript", ast.parse(f"_[{inner}]", mode="eval").body).slice
        return tuple(map(_value, node.elts if isinstance(node, ast.Tuple) else [node]))
    except (AttributeError, SyntaxError, TypeError, ValueError, RecursionError):
        raise StoreError(
            f"{text!r} is no selection: write integers, slices, ... or lists of integers between"
            " brackets, such as '[:, 7, 3]'"
        ) from None


def _value(node: ast.expr) -> Any:
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
