"""The last plans of a pipeline or a codec, for its next reads and writes.

Successive reads are often alike: they read equal rows of all chunks, one row after another, or one
box repeatedly. A box of many chunks has few forms, too: those of its corners, its edges and its
inside. Making a plan takes longer than reading a few kilobytes with it. So the last plans are kept,
with their fetches, with memory to read into, and with the ranges that were written.

Everything in the cache has a key of all that it depends on:

- a plan: the layout, the cost of a request, and the selection, except for its integers;
- the fetches of a plan: the plan, the largest size of a fetch, whether ranges are grouped, and the
  entries in the index of the inner chunks that it selects;
- a prepared read: its key, the layout and both selections (`PreparedRead.reads_alike`);
- a prepared write: the plan, and whether the selection is a complete chunk.

A plan for arrays of indices isn't kept: comparing the arrays takes as long as planning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from zarr_bytes.indexing.plan import plan_of
from zarr_bytes.indexing.selection import is_basic_selection

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from zarr_bytes.indexing.plan import AbsentInnerChunk, Fetch, Plan
    from zarr_bytes.layout.objects import InnerChunkIndex, ObjectLayout
    from zarr_bytes.settings import RequestCost

T = TypeVar("T")

_MAX_KEPT: Final = 8
"""Most prepared reads; if there are more, all are dropped. If layouts, settings or results change
with each read, no prepared read would be used again."""

_MAX_KEPT_RANGES: Final = 2**13
"""Most ranges of all plans, and of all fetches; if there are more, all are dropped."""

_LEAST_RANGES: Final = 2**8
"""The smallest number of ranges that a plan counts for, so that at most 32 are kept: all 27 of a
box in three dimensions."""


class PreparedRead(Protocol):
    """A prepared read of objects with one layout and one selection, with its memory."""

    @property
    def layout(self) -> ObjectLayout:
        """The layout of the objects."""

    def reads_alike(self, layout: ObjectLayout, chunk_selection: Any, out_selection: Any) -> bool:
        """Whether this prepared read fits an object with these selections."""


class PreparedWrite(Protocol):
    """A prepared write of objects with one layout and one selection, without elements."""

    @property
    def plan(self) -> Plan:
        """The plan of the selection."""

    @property
    def chunk_selection(self) -> Any:
        """The selection."""

    @property
    def is_complete_chunk(self) -> bool:
        """Whether the selection has all elements of the chunk that are within the array."""


class _KeptPlan(NamedTuple):
    """A plan for integers and slices, and its selection."""

    chunk_selection: Any  # in the axes of the array
    # The parts of inner chunk numbers, and of offsets in an inner chunk (in elements), that come
    # from the integers.
    inner_chunk_number: int
    start: int
    plan: Plan


class _BoundedByRanges(Generic[T]):
    """Values by their keys, which are dropped once they have too many ranges together."""

    def __init__(self) -> None:
        self._values: dict[Hashable, T] = {}
        self._ranges = 0

    def get(self, key: Hashable) -> T | None:
        """The value of a key; None without one."""
        return self._values.get(key)

    def put(self, key: Hashable, value: T, *, range_count: int) -> None:
        """Keep a value with so many ranges; all values of one key have equally many."""
        if key not in self._values:
            self._ranges += max(range_count, _LEAST_RANGES)
            if self._ranges > _MAX_KEPT_RANGES:
                self._values.clear()
                self._ranges = 0
        self._values[key] = value


class PlanCache:
    """A few plans, fetches and prepared reads of one pipeline or codec, and one prepared write.

    Any thread may use the cache without a lock: each entry is replaced as a whole, and at worst two
    threads make equal plans. A pickled cache is empty.
    """

    def __init__(self) -> None:
        self._plans: _BoundedByRanges[_KeptPlan] = _BoundedByRanges()
        self._fetches: _BoundedByRanges[tuple[Hashable, list[Fetch | AbsentInnerChunk]]] = (
            _BoundedByRanges()
        )
        self._prepared_reads: dict[tuple[Hashable, ObjectLayout], PreparedRead] = {}
        self._prepared_write: PreparedWrite | None = None

    def plan_of(
        self,
        layout: ObjectLayout,
        chunk_selection: Any,
        cost_or_none_if_read_whole: RequestCost | None,
        out_selection: Any = None,
        drop_axes: tuple[int, ...] = (),
    ) -> Plan:
        """The plan for a selection of an object: a kept plan, or a new one.

        The parameters are as in `indexing.plan.plan_of`. A kept plan for integers and slices also
        fits all selections that differ only in integers, which just shift the selected elements.
        """
        if not is_basic_selection(chunk_selection):
            return plan_of(
                layout, chunk_selection, cost_or_none_if_read_whole, out_selection, drop_axes
            )
        pattern = tuple(
            [0 if type(one) is int else (one.start, one.stop, one.step) for one in chunk_selection]
        )
        key = layout, cost_or_none_if_read_whole, pattern
        kept = self._plans.get(key)
        if kept is not None and kept.chunk_selection == chunk_selection:
            return kept.plan
        in_stored_order = layout.in_stored_order(chunk_selection)
        number, start = layout.grid.chunk_number_and_start_of_integers(in_stored_order)
        if kept is not None:
            byte_distance = (start - kept.start) * layout.item_size
            plan = kept.plan.shifted(number - kept.inner_chunk_number, byte_distance)
        else:
            plan = plan_of(
                layout, chunk_selection, cost_or_none_if_read_whole, out_selection, drop_axes
            )
        if plan.range_count <= layout.limits.inline_ranges:
            self._plans.put(
                key, _KeptPlan(chunk_selection, number, start, plan), range_count=plan.range_count
            )
        return plan

    def fetches_of(
        self, plan: Plan, index: InnerChunkIndex, max_fetch_nbytes: int, *, groups_ranges: bool
    ) -> Iterable[Fetch | AbsentInnerChunk]:
        """`Plan.fetches`, from the cache if the index has equal entries; kept if they are few."""
        if not plan.has_few_fetches:
            return plan.fetches(index, max_fetch_nbytes, groups_ranges=groups_ranges)
        key = plan, max_fetch_nbytes, groups_ranges
        entries = index.key_of_entries(plan.inner_chunk_numbers)
        kept = self._fetches.get(key)
        if kept is not None and kept[0] == entries:
            return kept[1]
        fetches = list(plan.fetches(index, max_fetch_nbytes, groups_ranges=groups_ranges))
        self._fetches.put(key, (entries, fetches), range_count=plan.range_count)
        return fetches

    def take_prepared_read_if_kept(
        self, key: Hashable, layout: ObjectLayout, chunk_selection: Any, out_selection: Any
    ) -> PreparedRead | None:
        """Take a prepared read out, so that no other thread uses its memory; None if none fits.

        `key` is for everything that it depends on besides the layout and the selections.
        """
        prepared = self._prepared_reads.pop((key, layout), None)
        if prepared is None or not prepared.reads_alike(layout, chunk_selection, out_selection):
            return None
        return prepared

    def keep_prepared_read(self, key: Hashable, prepared: PreparedRead) -> None:
        """Keep a prepared read for the next read of its layout and selection."""
        if len(self._prepared_reads) >= _MAX_KEPT:
            self._prepared_reads.clear()
        self._prepared_reads[key, prepared.layout] = prepared

    def get_prepared_write_if_kept(
        self, plan: Plan, *, is_complete_chunk: bool
    ) -> PreparedWrite | None:
        """The last prepared write, if it has this plan and this kind; else None."""
        last = self._prepared_write
        if last is None or last.plan is not plan or last.is_complete_chunk is not is_complete_chunk:
            return None
        return last

    def keep_prepared_write(self, prepared: PreparedWrite) -> None:
        """Keep a prepared write for the next write with its plan, if the plan is kept.

        Not if the index is large, since the write holds the entries of the last index.
        """
        if is_basic_selection(prepared.chunk_selection) and prepared.plan.may_be_inline:
            self._prepared_write = prepared

    def __reduce__(self) -> tuple[Any, ...]:
        return PlanCache, ()
