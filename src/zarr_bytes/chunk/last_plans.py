"""The plans of the last selections, kept for the next chunk, read or write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from zarr_bytes.chunk.selection import is_basic

if TYPE_CHECKING:
    from collections.abc import Callable

    from zarr_bytes.settings import Cost

__all__ = ["LastPlans"]


class _Kept(Protocol):
    @property
    def is_small(self) -> bool: ...


P = TypeVar("P", bound=_Kept)

_COSTS: Final = 8  # of one program: local and remote stores, and writing


class LastPlans:
    """The last plan for each cost of a request, of chunks or shards that are alike."""

    def __init__(self) -> None:
        self._plans: dict[Cost | None, tuple[tuple[Any, ...], _Kept]] = {}

    def plan(self, selection: tuple[Any, ...], cost: Cost | None, make: Callable[[], P]) -> P:
        """The plan that is kept for this selection and cost, or a new one.

        Parameters
        ----------
        selection : tuple
            One entry an axis.
        cost : Cost or None
        make : callable
            Function that makes the plan.
        """
        is_kept = is_basic(selection)
        if is_kept and (last := self._plans.get(cost)) is not None and last[0] == selection:
            return cast("P", last[1])
        plan = make()
        if is_kept and plan.is_small:
            if len(self._plans) >= _COSTS:  # settings that change at each read
                self._plans.clear()
            self._plans[cost] = selection, plan  # one tuple: no thread sees half of it
        return plan
