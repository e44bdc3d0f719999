"""The results of `explain` and `counting` as lines and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zarr_bytes.commands.screen import PATH, Line, Table
from zarr_bytes.commands.text import in_digits, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zarr_bytes.chunk.counters import Counts
    from zarr_bytes.commands.counting import Counted
    from zarr_bytes.commands.explain import Explanation
    from zarr_bytes.commands.screen import Part, Text

__all__ = ["counted_parts", "counted_verdict", "explanation_parts", "explanation_verdict"]


def explanation_verdict(found: Explanation) -> Line:
    """Whether a selection is read or written in part, in one line."""
    if found.is_write:
        what = "Written in place" if found.may_share else "Whole chunks are written"
        if not found.is_partial:
            what = "Chunks are replaced"
    else:
        what = "Partial" if found.is_partial else "Not partial"
    style = f"bold {'green' if found.is_partial else 'yellow'}"
    return Line((f"{what}: ", style), f"{found.selection} of ", (found.array, PATH))


def explanation_parts(found: Explanation) -> Iterator[Part]:
    """The reason why a selection is not read or written in part, and the numbers."""
    if found.reason:
        yield Line(("Reason: ", "bold"), f"{found.reason}.")
    if found.reopened:
        yield Line(("Settings: ", "bold"), f"{found.reopened}.")
    rows: list[tuple[str, str]] = [
        ("read and written by", found.acts),
        (f"{found.kind}s with selected elements", in_digits(found.chunks)),
        ("bytes selected", in_digits(found.bytes_selected)),
        ("bytes read", _nbytes(found.bytes_fetched)),
    ]
    if found.is_write:
        rows.append(("bytes written", _nbytes(found.bytes_written)))
    rows.append((f"bytes of these {found.kind}s", in_digits(found.bytes_of_chunks)))
    rows += [
        (name, in_digits(count))
        for name, count in (
            ("files opened", found.opens),
            ("requests", found.requests),
            ("byte ranges", found.ranges),
        )
        if count
    ]
    if found.is_write:
        shared = "of different elements, on one machine" if found.may_share else "no"
        rows.append((f"writes by several processes to one {found.kind}", shared))
    yield from (Line(), Table((("A write" if found.is_write else "A read"), ""), rows))


def counted_verdict(found: Counted) -> Line:
    """The numbers of all stores, in one line."""
    total = found.total
    texts = [number(total.chunks, "chunk"), f"{number(total.bytes_fetched, 'byte')} fetched"]
    texts += [f"{number(total.bytes_written, 'byte')} written"] * bool(total.bytes_written)
    return Line((", ".join(texts), "bold"))


def counted_parts(found: Counted) -> Iterator[Part]:
    """The numbers of each store."""
    columns = ("Store", "Chunks", "Opens", "Requests", "Ranges", "Bytes fetched", "Written")
    if found.stores:
        rows = [_row(store, counts) for store, counts in list(found.stores.items())]
        yield from (Line(), Table(columns, rows))


def _row(store: str, counts: Counts) -> tuple[Text, ...]:
    return (
        (store, PATH),
        in_digits(counts.chunks),
        in_digits(counts.opens),
        in_digits(counts.requests),
        in_digits(counts.ranges),
        in_digits(counts.bytes_fetched),
        in_digits(counts.bytes_written),
    )


def _nbytes(count: int | None) -> str:
    return "not known: the chunks are compressed" if count is None else in_digits(count)
