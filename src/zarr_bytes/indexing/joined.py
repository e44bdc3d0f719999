"""Requests for the bytes of many chunks in one file: pieces that are close together are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zarr_bytes.indexing.plan import fastest_max_request_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zarr_bytes.settings import RequestCost


class JoinedRequest(NamedTuple):
    """Bytes of a file from `start` to `stop`, and the numbers of the pieces in them."""

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
    """Join pieces across gaps of at most `cost.gap` into requests of at most the largest size.

    `starts` ascend, and pieces may overlap. A piece that is larger than the largest request is one
    request. If slots would be idle, requests are shorter, as they are for a single chunk.
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
    """Like `joined_requests`, with one largest size for all requests."""
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
