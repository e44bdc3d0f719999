"""Other threads that act between any two lines of a function, one place after another.

A race needs two threads that meet at one place. Here the place is chosen: Python calls a trace
function before each line, and what another thread might do is done there, all of it.
"""

import sys

from zarr_bytes.io import counters


def results_with(other, work, *functions):
    """Each result of ``work()``, as ``other()`` is called before one line of it after another.

    The lines are those of `functions`; without any, of all of this package. None of them are lines
    at which the lock of the package is held, for which another thread would wait.
    """
    codes = {function.__code__ for function in functions}
    number, is_reached = 0, True

    def trace(frame, event, argument):
        nonlocal line
        name = frame.f_globals.get("__name__", "")
        if frame.f_code not in codes if codes else not name.startswith("zarr_bytes."):
            return None
        if event == "line":
            if line == number and not counters.lock.locked():
                other()  # without a trace
            line += 1
        return trace

    while is_reached:
        line, before = 0, sys.gettrace()
        sys.settrace(trace)
        try:
            result = work()
        finally:
            sys.settrace(before)
        is_reached = line > number
        number += 1
        yield result
