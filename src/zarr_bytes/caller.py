"""Warnings that point at the line that has called zarr."""

from __future__ import annotations

import sys
import warnings
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_CALLED: Final = ("zarr", "zarr_bytes")


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Issue a warning for the line outside zarr and this package that led to this call.

    A number of levels of the stack cannot say which line that is: zarr reads on an event loop in
    a thread of its own, while the caller's thread waits.
    """
    frame = _calling_frame()
    if frame is None:  # such as a callback of an event loop that nobody waits for
        warnings.warn(message, category, stacklevel=2)
        return
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def _calling_frame() -> FrameType | None:
    own: FrameType | None = sys._getframe()
    for frame in chain([own], sys._current_frames().values()):
        is_called = False
        while frame is not None:
            package = frame.f_globals.get("__name__", "").partition(".")[0]
            is_called = is_called or package in _CALLED
            # The standard library runs coroutines and threads, and is never meant.
            if is_called and package not in _CALLED and package not in sys.stdlib_module_names:
                return frame
            frame = frame.f_back
    return None
