"""Selections of an array: as text, and of each chunk, as zarr passes it to a pipeline."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from zarr_bytes.chunk.entries import array_entries
from zarr_bytes.chunk.grid import Axis, combination
from zarr_bytes.errors import StoreError
from zarr_bytes.zarr_versions import INTEGERS_FILL_EDGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr

    from zarr_bytes.chunk.division import Alike, Division
    from zarr_bytes.chunk.grid import Grid, Offsets
    from zarr_bytes.chunk.scattering import ChunkOfRead
    from zarr_bytes.zarr_versions import ArraySpec

__all__ = [
    "can_be_complete_to_zarr",
    "chunk_as_zarr",
    "dropped_axes",
    "entries_as_zarr",
    "ranks_in_zarr",
    "selection_of_text",
    "text_of_selection",
]


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


def selection_of_text(text: str) -> tuple[Any, ...]:
    """The selection in a text such as ``[:, 7, 3]``; no code is run.

    Raises
    ------
    StoreError
        If the text has other entries than integers, slices, ``...`` and lists of integers.

    Examples
    --------
    >>> selection_of_text("[:, -7, ..., [1, 2]]")
    (slice(None, None, None), -7, Ellipsis, [1, 2])
    """
    code = text.strip()
    code = code if code.startswith("[") and code.endswith("]") else f"[{code}]"
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{code}", mode="eval").body:
            case ast.Subscript(ast.Name(), ast.Tuple(nodes)):
                return tuple(map(_entry_of_text, nodes))
            case ast.Subscript(ast.Name(), node):
                return (_entry_of_text(node),)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]'"
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


def entries_as_zarr(selection: Any, shape: tuple[int, ...]) -> list[Any]:
    """An entry for each axis, by zarr's rules.

    An array beside slices selects along its axis, and integers beside arrays alone are points.
    """
    if isinstance(selection, np.ndarray) and selection.ndim > 1 and selection.dtype == bool:
        selection = np.nonzero(selection)  # a mask
    entries: list[Any] = array_entries(selection, shape)
    arrays = [i for i, entry in enumerate(entries) if isinstance(entry, np.ndarray)]
    if not any(isinstance(entry, range) for entry in entries):
        for i in range(len(entries) if arrays else 0):
            if isinstance(entries[i], int):
                entries[i] = np.full(entries[arrays[0]].shape, entries[i])
    elif len(arrays) > 1:
        for i, array in zip(arrays, np.ix_(*[entries[i] for i in arrays]), strict=True):
            entries[i] = array
    return entries


def can_be_complete_to_zarr(entries: Sequence[Any], chunk_shape: tuple[int, ...]) -> bool:
    """Whether zarr takes chunks that are wholly selected for complete: without arrays or steps."""
    return all(
        entry.step == 1
        if isinstance(entry, range)
        else isinstance(entry, int) and (INTEGERS_FILL_EDGES or size == 1)
        for entry, size in zip(entries, chunk_shape, strict=True)
    )


def ranks_in_zarr(entries: Sequence[Any], division: Division) -> list[Offsets | None]:
    """Ranks of the indices of each array of a selection, as zarr groups them by chunk."""
    if not any(isinstance(entry, np.ndarray) for entry in entries):
        return [None] * len(entries)
    sizes = division.inner_shape
    if all(isinstance(entry, np.ndarray) for entry in entries):  # points
        along = zip(entries, sizes, division.distances, strict=True)
        numbers = np.ravel(sum([entry // size * distance for entry, size, distance in along]))
        is_rising = not np.any(np.diff(numbers) < 0)
        order = np.arange(numbers.size) if is_rising else np.argsort(numbers)
        return [np.argsort(order)] * len(entries)
    ranks: list[Offsets | None] = []
    for entry, size in zip(entries, sizes, strict=True):
        ranks.append(None)
        if isinstance(entry, np.ndarray):
            indices = np.ravel(entry)
            is_falling = not np.any(np.diff(indices) >= 0)
            order = np.arange(indices.size)[::-1] if is_falling else np.argsort(indices // size)
            ranks[-1] = np.argsort(order)
    return ranks


def chunk_as_zarr(
    array: zarr.Array[Any],
    spec: ArraySpec,
    division: Division,
    grid: Grid,
    alike: Alike,
    ranks: list[Offsets | None],
    *,
    is_complete: bool,
) -> ChunkOfRead:
    """One of the chunks that are selected alike, in the form that zarr's pipelines get."""
    getter = array.store_path / array.metadata.encode_chunk_key(division.place_of(alike.number))
    if len(alike.axes) != array.ndim:  # points
        (axis,) = alike.axes
        indices, places = _in_order(axis, ranks[0])
        points = np.unravel_index(np.asarray(indices), spec.shape)
        return getter, spec, points, (cast("Offsets", places),), False
    axes = [_in_order(*axis) for axis in zip(alike.axes, ranks, strict=True)]
    local, targets = [axis.indices for axis in axes], [axis.targets for axis in axes]
    selection: list[Any] = [
        _entry(indices, is_integer=shape is None)
        for indices, shape in zip(local, grid.shapes, strict=True)
    ]
    if any(isinstance(shape, tuple) for shape in grid.shapes):
        selection = list(np.ix_(*map(np.asarray, local)))
    kept = [t for t, shape in zip(targets, grid.shapes, strict=True) if shape is not None]
    return getter, spec, tuple(selection), combination(kept), is_complete


def _in_order(axis: Axis, ranks: Offsets | None) -> Axis:
    """An axis with its indices in zarr's order."""
    if ranks is None or isinstance(axis.targets, slice):
        return axis
    order = np.argsort(ranks[axis.targets])
    return Axis(np.asarray(axis.indices)[order], axis.targets[order])


def _entry(indices: range | Offsets, *, is_integer: bool) -> int | slice | Offsets:
    """Indices along an axis as an entry of a selection."""
    if not isinstance(indices, range):
        return indices
    return indices[0] if is_integer else slice(indices.start, indices.stop, indices.step)


def dropped_axes(grid: Grid) -> tuple[int, ...]:
    """The axes of integers beside arrays, which zarr's pipelines drop."""
    if not any(isinstance(shape, tuple) for shape in grid.shapes):
        return ()
    return tuple([i for i, shape in enumerate(grid.shapes) if shape is None])
