"""Other threads that act between any two lines of a function, one place after another.

A race needs two threads that meet at one place. Here the place is chosen: Python calls a trace
function before each line, and what another thread might do is done there, all of it.
"""

import sys
from functools import cached_property

from zarr_bytes.io import counters


def has_lock(frame):
    """Whether a thread that runs `frame` holds a lock of the package or of a cached property."""
    while frame is not None:
        if frame.f_code is cached_property.__get__.__code__:
            return True
        frame = frame.f_back
    return counters.lock.locked()


def results_with(other, work, *modules):
    """Each result of ``work()``, as ``other()`` is called before one line of it after another.

    The lines are those of `modules`, each where it is first reached without a lock for which
    another thread would wait: that of the package, or that of a cached property in Python 3.11.
    """
    files, done = {module.__file__ for module in modules}, set()

    def trace(frame, event, argument):
        nonlocal is_new
        if frame.f_code.co_filename not in files:
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and not (is_new or place in done or has_lock(frame)):
            is_new = True
            done.add(place)
            other()  # without a trace
        return trace

    is_new = True
    while is_new:
        is_new, before = False, sys.gettrace()
        sys.settrace(trace)
        try:
            result = work()
        finally:
            sys.settrace(before)
        yield result
