"""`explain`: the forecast of a read or write, with a reason and a remedy if it isn't partial.

zarr's indexer divides the selection by chunk. `ForecastSum` counts chunk by chunk, with the plans
that reads and writes use.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import zarr
from zarr.codecs import ShardingCodec

from zarr_bytes.chains import encoding_of_uncompressed, is_uncompressed
from zarr_bytes.commands.forecast import ForecastSum
from zarr_bytes.commands.reasons import ARRAY_IS_READ_ONLY, NOTHING_IS_SELECTED
from zarr_bytes.commands.result import (
    Result,
    Table,
    percentage,
    short_json,
    thousands_or_power_of_ten,
    verdict_line,
)
from zarr_bytes.commands.stores import not_an_array_error_listing_arrays
from zarr_bytes.errors import StoreError
from zarr_bytes.io.store_names import store_path_name
from zarr_bytes.zarr_versions import (
    axis_indexers_or_empty_if_points,
    chunk_spec_of_shape,
    codecs_or_empty_if_unknown,
    divide_selection_without_reading,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.commands.reasons import Reason
    from zarr_bytes.commands.result import Cell, OutputPart

# The limit for the chunks of a selection, and for the steps of large chunks. A chunk that is like
# the previous one takes about 20 microseconds, mostly in zarr's indexer.
_MAX_CHUNKS: Final = 10**6
_LARGE_CHUNK_STEP: Final = 2**20  # bytes
_FEW_ROUNDS: Final = 4  # of requests; of more, a note says how to have fewer
_ACCESSORS: Final = ("oindex", "vindex", "blocks")  # of an array, each with its own indexer
# The attributes of an explanation that its table shows, each with a note.
_READ_ROWS: Final = {
    "acts": "the class that reads",
    "kind": "",
    "chunks": "",
    "chunks_assumed": "not looked at, and assumed to exist",
    "opens": "files that are opened",
    "requests": "to the store",
    "rounds": "of concurrent requests; the settings limit how many run at a time",
    "ranges": "of bytes",
    "bytes_selected": "",
    "bytes_fetched": "",
    "bytes_of_chunks": "as a whole, uncompressed",
}
_WRITE_ROWS: Final = _READ_ROWS | {
    "acts": "the class that writes",
    "chunks_in_place": "changed without replacing the file",
    "ranges": "of bytes to read",
    "bytes_written": "",
    "may_share": "whether processes may write different elements of a chunk at the same time",
}
# Numbers that are smaller if chunks become empty.
_DEPEND_ON_VALUES: Final = ("opens", "chunks_in_place", "bytes_written")
_IN_WORDS: Final = {"None": "not known in advance", "True": "yes", "False": "no"}


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The forecast of a read or write of a selection; prints as a table of its attributes.

    Attributes
    ----------
    array, selection : str
        Location of the array, and the selection as written between brackets.
    is_write : bool
        Whether the explanation is of a write.
    acts : str
        The class of the pipeline; also the class of the codec if a pipeline of zarr calls the codec
        of this package.
    is_partial : bool
        For a read, whether it fetches less than whole chunks. For a write, whether no chunk is read
        and then replaced; False for an array that was opened read-only.
    reason : str
        The first reason why more than the selected bytes are fetched, why chunks are replaced, why
        processes may not share a chunk that is written in part, or why nothing is read or written.
        Empty if there is none.
    remedy : str
        The remedy for the reason: a setting, or another way to open, select or write the array. It
        says so if there is no remedy, or if none is needed. Empty without a reason.
    kind : {"chunk", "shard"}
        Kind of the files or objects.
    chunks, opens, requests, ranges, bytes_fetched, bytes_written : int
        As in `Counts`; 0 if nothing is read or written. All except `chunks` are None if they are
        not known in advance: for compressed chunks, for shards that zarr reads by itself, and for a
        write to more than a thousand files.
    depends_on_values : bool
        Whether `opens`, `chunks_in_place` and `bytes_written` are upper bounds, shown with "at
        most" in the table. They depend on the written values: chunks and inner chunks that become
        empty, with the fill value everywhere, are not stored unless the array has
        ``write_empty_chunks``. False for a read.
    chunks_assumed : int
        Number of chunks that are assumed to exist. Shards among them are assumed to have all inner
        chunks, in the order in which this array writes them. The other files have been looked at:
        shards, and files of which a write keeps a part.
    chunks_in_place : int
        Number of chunks that a write changes in place, or creates if they are missing, so that
        other processes can write to them at the same time.
    rounds : int
        Number of requests that follow one another, with the current values of
        ``zarr_bytes.small_requests`` and zarr's ``async.concurrency``. None as above.
    bytes_selected, bytes_of_chunks : int
        Uncompressed size of the selected elements, and of the whole chunks.
    may_share : bool
        Whether processes of one machine, all with ``zarr_bytes.partial_writes``, may write
        different elements of a chunk at the same time without losing any. Writers of a file that
        must be replaced wait for a lock. On a file system without locks (`flock`), False unless all
        files are known to be changed in place. False for a read, and if no element is selected.
    """

    array: str
    selection: str
    is_write: bool
    acts: str
    is_partial: bool
    reason: str
    remedy: str
    kind: str
    chunks: int
    chunks_assumed: int
    chunks_in_place: int
    opens: int | None
    requests: int | None
    rounds: int | None
    ranges: int | None
    bytes_selected: int
    bytes_fetched: int | None
    bytes_written: int | None
    bytes_of_chunks: int
    depends_on_values: bool
    may_share: bool

    def _iter_output_parts(self, **_: bool) -> Iterator[OutputPart]:
        colour = "green" if self.is_partial else "yellow"
        if self.acts.partition(".")[0] not in ("zarr", "zarr_bytes"):
            yield verdict_line("Not known", "yellow", f"{self.acts} reads and writes by itself.")
        elif self.is_write:
            yield verdict_line(
                self._verdict_of_write(), colour, f"{self._clause_on_share_of_write()}."
            )
        else:
            word = "Partial" if self.is_partial else "Not partial"
            fetched = self.bytes_fetched
            if self.is_partial and fetched and 10 * fetched > 9 * self.bytes_of_chunks:
                word = "Hardly partial"
            yield verdict_line(word, colour, f"{self._clause_on_share_of_read()}.")
        yield ("Selection: ", "bold"), f"{self.selection} of ", self.array
        if self.reason:
            yield ("Reason: ", "bold"), f"{self.reason}."
            yield ("Remedy: ", "bold"), f"{self.remedy}."
        notes = _WRITE_ROWS if self.is_write else _READ_ROWS
        rows = [
            (
                name.replace("_", " "),
                self._in_words(name, value),
                (self._note_on_attribute(name), "dim"),
            )
            for name, value in vars(self).items()
            if name in notes and self._is_in_table(name, value)
        ]
        yield Table(("A write" if self.is_write else "A read", "", ""), rows)

    def _verdict_of_write(self) -> str:
        if not self.chunks:
            return "Nothing is written"
        if not self.is_partial:
            return "Chunks are replaced"
        if self.chunks_in_place == self.chunks:
            return "Written in place"
        return "Written without reading"

    def _clause_on_share_of_read(self) -> str:
        """The share of the chunks that is read, and the selected part of it, in words."""
        if not self.chunks:
            return "nothing is read"
        chunks = self._chunks_in_words()
        fetched = self.bytes_fetched
        if fetched is None and self.kind == "shard":  # zarr reads the inner chunks by itself
            text = "whole inner chunks are read"
        else:  # zarr reads other chunks as a whole
            all_nbytes = self.bytes_of_chunks
            # With their indexes, more bytes of shards may be read than their chunks have.
            share = "100 %" if fetched is None else percentage(min(fetched, all_nbytes), all_nbytes)
            text = f"{share} of the bytes of the {chunks} are read"
        if fetched is not None and self.is_partial:
            unselected = fetched - self.bytes_selected
            if unselected <= 0:  # some may be selected twice
                return text
            kind = "gaps between the selected elements"
            if self.kind == "shard":
                kind += " or indexes of shards"
            return f"{text}, and {percentage(unselected, fetched)} of the bytes read are {kind}"
        if self.bytes_selected >= self.bytes_of_chunks:  # some may be selected twice
            return text
        selected = percentage(self.bytes_selected, self.bytes_of_chunks)
        if self.kind == "shard":
            selected = f"{selected} of the bytes of the {chunks}"
        return f"{text}, and {selected} are selected"

    def _clause_on_share_of_write(self) -> str:
        """The share of the chunks that is written, in words; the reason if it is none."""
        if not self.chunks:
            return self.reason
        chunks = self._chunks_in_words()
        in_place = ""
        if 0 < self.chunks_in_place < self.chunks:
            in_place = f"; changed in place: {self.chunks_in_place:,} of {self.chunks:,}"
        selected = percentage(self.bytes_selected, self.bytes_of_chunks)
        if not self.is_partial:
            return f"they are read and written whole, to change {selected} of their bytes{in_place}"
        share = f"{selected} of the bytes of the {chunks} are selected"
        if self.bytes_written is not None:
            written = percentage(self.bytes_written, self.bytes_of_chunks)
            if self.depends_on_values and not written.startswith("less than"):
                written = f"at most {written}"
            share = f"{written} of the bytes of the {chunks} are written"
        return f"{share}{in_place}"

    def _chunks_in_words(self) -> str:
        """The kind of the files or objects; plural if there are several."""
        return self.kind if self.chunks == 1 else f"{self.kind}s"

    def _is_in_table(self, name: str, value: Any) -> bool:
        """Whether the table shows an attribute: neither zero nor one of several unknown numbers."""
        if name == "may_share":
            return self.chunks > 0
        return bool(value) or (value is None and name.startswith("bytes_"))

    def _note_on_attribute(self, attribute_name: str) -> str:
        """The note on an attribute, beside its value in the table."""
        if self.kind == "shard" and attribute_name == "chunks_assumed":
            return "not looked at, and assumed to exist and to have all inner chunks"
        if (
            self.kind == "shard"
            and attribute_name == "bytes_fetched"
            and self.bytes_fetched is not None
        ):
            return "with the indexes of shards"
        has_many_rounds = not self.is_write and (self.rounds or 0) > _FEW_ROUNDS
        has_gaps = (self.ranges or 0) > self.chunks
        if attribute_name == "rounds" and has_many_rounds and has_gaps:
            return f"{_READ_ROWS['rounds']}; longer gaps (zarr_bytes.gap) make them fewer"
        return (_WRITE_ROWS if self.is_write else _READ_ROWS)[attribute_name]

    def _in_words(self, name: str, value: Any) -> Cell:
        """The value of an attribute as a cell of the table."""
        if self.depends_on_values and name in _DEPEND_ON_VALUES and value:
            return f"at most {thousands_or_power_of_ten(value)}"
        return cast("Cell", _IN_WORDS.get(str(value), value))


def explain(array: Any, selection: Any = ..., *, write: bool = False) -> Explanation:
    """Explain what ``array[selection]`` reads or writes, without reading a chunk.

    Parameters
    ----------
    array : zarr.Array, or its oindex, vindex or blocks
        Any array. ``explain(array.oindex, selection)`` explains ``array.oindex[selection]``.
    selection : int, slice, Ellipsis, array of integers or bools, or a tuple of these, optional
        Any selection that zarr takes between the brackets. The default is the whole array.
    write : bool, optional
        Whether to explain ``array[selection] = values`` instead. For up to a thousand files, this
        looks at the status of each file, and at the index of each shard.

    Returns
    -------
    Explanation
        The numbers come from the plan that the read or write itself uses.

    Raises
    ------
    TypeError
        If `array` isn't an array. For a group, the notes of the error list its arrays.
    IndexError
        If the selection does not fit the array, or has fields.
    ValueError
        If more than a million chunks are selected, or if a chunk and the selection both have more
        than a million MiB. Also if a file that is looked at isn't a regular file, or the index of a
        shard is damaged.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_array({}, shape=(60, 100), dtype="f8", compressors=None)
    >>> explained = explain(array, (7, slice(40, 44)))
    >>> explained.bytes_selected, explained.is_partial
    (32, False)
    >>> explained.reason, explained.remedy
    ('the chunks are in memory, where reading one whole costs nothing', 'none is needed')
    >>> explain(array.oindex, ([1, 3], [5, 7])).selection
    'oindex[[1, 3], [5, 7]]'
    """
    indexed = array  # the array, or an accessor of it
    array = getattr(indexed, "array", indexed)
    if not isinstance(array, zarr.Array):
        raise not_an_array_error_listing_arrays(indexed)
    indexer, fields = divide_selection_without_reading(indexed, selection)
    if fields:
        raise IndexError(
            f"the selection has {fields!r}, and fields of records are not explained: permitted are"
            " integers, slices with positive steps, `...`, and arrays of integers or bools"
        )
    accessors = [name for name in _ACCESSORS if type(getattr(array, name)) is type(indexed)]
    entries = selection if isinstance(selection, tuple) else (selection,)
    text = f"{''.join(accessors)}[{', '.join(map(_entry_as_python_text, entries))}]"
    item_size = _stored_item_size(array)
    # For a mask, zarr's shape has NumPy integers.
    selected_nbytes = prod(map(int, indexer.shape)) * item_size
    largest_chunk_nbytes = prod(_largest_shard_or_chunk_shape(array)) * item_size
    counts_by_axis = [
        sum(1 for _ in islice(axis, _MAX_CHUNKS + 1))
        for axis in axis_indexers_or_empty_if_points(indexer)
    ]
    steps = min(largest_chunk_nbytes, selected_nbytes) // _LARGE_CHUNK_STEP
    if max(prod(counts_by_axis), steps) > _MAX_CHUNKS:
        raise ValueError(
            f"the selection {text} has more than a million chunks of"
            f" {store_path_name(array.store_path)}, or more than a million MiB of larger chunks:"
            " explain a part of it"
        )
    chunk_count = prod(counts_by_axis) if counts_by_axis else sum(1 for _ in indexer)
    forecast = ForecastSum(
        array,
        tuple(indexer.shape),
        indexer.drop_axes,
        largest_chunk_nbytes,
        item_size,
        chunk_count,
        is_write=write,
    )
    is_refused = write and array.read_only and selected_nbytes > 0
    if selected_nbytes and not is_refused:
        for projection in indexer:
            forecast.add(projection)
        forecast.add_postponed_chunks()
    totals = forecast.totals
    reason: Reason | None
    if is_refused:
        reason = ARRAY_IS_READ_ONLY
    elif not totals.chunks:
        reason = NOTHING_IS_SELECTED
    elif write:
        reason = forecast.why_chunks_are_replaced_or_not_shared
    else:
        reason = forecast.why_whole_or_more_is_fetched(selected_nbytes)
    fetches_less = totals.bytes_fetched < totals.bytes_of_chunks
    codecs = codecs_or_empty_if_unknown(array.metadata)

    def if_known(number: int) -> int | None:
        return number if forecast.is_known or is_refused else None

    return Explanation(
        array=store_path_name(array.store_path),
        selection=text,
        is_write=write,
        acts=forecast.acts,
        is_partial=not (forecast.reason or is_refused) if write else fetches_less,
        reason=reason.text if reason else "",
        remedy=reason.remedy if reason else "",
        kind="shard" if ShardingCodec in map(type, codecs) else "chunk",
        chunks=totals.chunks,
        chunks_assumed=totals.chunks_assumed,
        chunks_in_place=totals.chunks_in_place,
        opens=if_known(totals.opens),
        requests=if_known(totals.requests),
        rounds=if_known(forecast.rounds_of_concurrent_requests),
        ranges=if_known(totals.ranges),
        bytes_selected=selected_nbytes,
        bytes_fetched=if_known(totals.bytes_fetched),
        bytes_written=if_known(totals.bytes_written),
        bytes_of_chunks=totals.bytes_of_chunks,
        depends_on_values=forecast.depends_on_values,
        may_share=write and forecast.chunks_may_have_several_writers,
    )


def _stored_item_size(array: zarr.Array[Any]) -> int:
    """Size in bytes of an element as the chunks store it, before any compression."""
    codecs = codecs_or_empty_if_unknown(array.metadata)
    if not is_uncompressed(codecs):
        return int(array.dtype.itemsize)
    spec = chunk_spec_of_shape(array.metadata, (1,) * array.ndim)
    return encoding_of_uncompressed(codecs).encoded_dtype_of(spec).itemsize


def _largest_shard_or_chunk_shape(array: zarr.Array[Any]) -> tuple[int, ...]:
    """Shape of a shard or chunk; for chunks of several shapes, the largest size along each axis."""
    try:
        return array.shards or array.chunks
    except NotImplementedError:  # from zarr, for chunks of several shapes
        return tuple(map(max, array.write_chunk_sizes))


def _entry_as_python_text(entry: Any) -> str:
    """An entry of a selection as Python code; a long array is cut."""
    if entry is Ellipsis:
        return "..."
    if isinstance(entry, slice):
        return f"{entry.start}:{entry.stop}:{entry.step}".replace("None", "").removesuffix(":")
    return short_json(np.asarray(entry).tolist(), 40)


class ParsedSelection(NamedTuple):
    """A selection that was written as text."""

    accessor: str | None  # "oindex", "vindex" or "blocks"; None for the array itself
    entries: tuple[Any, ...]  # between the brackets


def parse_selection(text: str) -> ParsedSelection:
    """The selection in a text such as ``oindex[[1, 2], 3:9]``; a StoreError for any other text.

    The text is parsed, never evaluated.
    """
    with suppress(SyntaxError, TypeError, ValueError, RecursionError, MemoryError):
        match ast.parse(f"_{text.strip()}", mode="eval").body:
            case ast.Subscript(ast.Name(name), node) if name[1:] in ("", *_ACCESSORS):
                entries = node.elts if isinstance(node, ast.Tuple) else [node]
                values = tuple(map(_entry_of_literal_node, entries))
                return ParsedSelection(accessor=name[1:] or None, entries=values)
    raise StoreError(
        f"{text!r} is not a selection: write integers, slices, ... or lists of integers between"
        " brackets, such as '[:, 7, 3]'; oindex, vindex or blocks may stand before the brackets"
    )


def _entry_of_literal_node(node: ast.expr) -> Any:
    """An entry of a selection; a ValueError or TypeError if it isn't a literal."""
    if not isinstance(node, ast.Slice):
        return ast.literal_eval(node)
    bounds = (node.lower, node.upper, node.step)
    return slice(*[None if bound is None else ast.literal_eval(bound) for bound in bounds])
