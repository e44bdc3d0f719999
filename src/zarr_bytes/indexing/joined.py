"""Requests for the bytes of many chunks in one file: pieces that lie close together are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zarr_bytes.indexing.plan import fastest_max_request_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.settings import RequestCost


class JoinedRequest(NamedTuple):
    """Bytes of a file from `start` to `stop`, which have the pieces of these numbers."""

    start: int
    stop: int
    piece_numbers: range


def joined_requests(
    starts: Sequence[int],
    stops: Sequence[int],
    cost: RequestCost,
    slots: int,
    min_piece_nbytes: int,
) -> list[JoinedRequest]:
    """Join pieces over gaps of at most `cost.gap`, to requests of no more than the largest size.

    `starts` ascend, and pieces may overlap. A piece that is larger than a request is one all the
    same. Where slots would be idle, requests are shorter, as those of one chunk are.
    """
    requests = list(_iter_joined(starts, stops, cost.gap, cost.max_request_nbytes))
    if len(requests) > 2 * slots:
        return requests
    sizes = [request.stop - request.start for request in requests]
    max_nbytes = fastest_max_request_nbytes(sizes, slots, 1, min_piece_nbytes)
    return list(_iter_joined(starts, stops, cost.gap, max_nbytes))


def _iter_joined(
    starts: Sequence[int], stops: Sequence[int], gap: int, max_nbytes: int
) -> Iterator[JoinedRequest]:
    """As `joined_requests`, with one largest size for all."""
    first, stop = 0, 0
    for number, (piece_start, piece_stop) in enumerate(zip(starts, stops, strict=True)):
        joined_stop = max(stop, piece_stop)
        is_far = piece_start - stop > gap
        if number > first and (is_far or joined_stop - starts[first] > max_nbytes):
            yield JoinedRequest(starts[first], stop, range(first, number))
            first = number
            joined_stop = piece_stop
        stop = joined_stop
    if stop:
        yield JoinedRequest(starts[first], stop, range(first, len(starts)))
