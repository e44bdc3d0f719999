"""Calls of the system that do less than they were asked for, or between which something happens."""

import errno
import os
import sys
from contextlib import contextmanager
from zlib import crc32

import numpy as np
import pytest

READING = ("read", "pread", "preadv", "readv")
WRITING = ("write", "pwrite", "pwritev", "writev")
OTHERS = (
    *("open", "close", "lseek", "stat", "lstat", "fstat", "scandir"),
    *("link", "rename", "replace", "unlink", "truncate", "ftruncate"),
)


@contextmanager
def _replaced(names, replacement):
    """The functions of `os` of these names, each replaced by what `replacement` makes of it.

    Modules of the package that hold a function by a name of their own get the replacement too.
    """
    package = [module for name, module in sys.modules.items() if name.startswith("zarr_bytes")]
    functions = {name: getattr(os, name) for name in names if hasattr(os, name)}
    new = {id(function): replacement(name, function) for name, function in functions.items()}
    with pytest.MonkeyPatch.context() as patch:
        for module in (os, *package):
            for name, value in list(vars(module).items()):
                if id(value) in new:
                    patch.setattr(module, name, new[id(value)])
        yield


@contextmanager
def ending_early(seed):
    """Reads and writes take at least one byte and as many more as `seed` says.

    Some that must not wait are refused. All follows from the arguments of a call, so that threads
    change nothing.
    """

    def number(*arguments):
        return crc32(repr((seed, *arguments)).encode())

    def part_of(count, *arguments):
        return 1 + number(count, *arguments) % count if count else 0

    def replacement(name, function):
        def of_count(file, count, *offset):
            return function(file, part_of(count, *offset), *offset)

        def of_memory(file, memory, *offset):
            memory = memoryview(memory).cast("B")
            return function(file, memory[: part_of(len(memory), *offset)], *offset)

        def of_memories(file, memories, *offset_and_flags):
            must_not_wait = offset_and_flags[1:] and offset_and_flags[1] & os.RWF_NOWAIT
            if must_not_wait and not number(*offset_and_flags) % 4:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            memories = [np.frombuffer(memory, np.uint8) for memory in memories]
            left = part_of(sum(m.size for m in memories), *offset_and_flags)
            cut = []
            for memory in memories:
                cut.append(memory[:left])
                left -= cut[-1].size
            return function(file, [memory for memory in cut if memory.size], *offset_and_flags)

        if name.endswith("v"):
            return of_memories
        return of_memory if name in WRITING else of_count

    with _replaced(READING + WRITING, replacement):
        yield


@contextmanager
def before_each(act):
    """`act` is called before each call of the system that concerns files, with its arguments.

    Not for calls that `act` makes itself.
    """
    is_acting = False

    def replacement(name, function):
        def wrapped(*arguments, **named):
            nonlocal is_acting
            if not is_acting:
                is_acting = True
                try:
                    act(name, *arguments)
                finally:
                    is_acting = False
            return function(*arguments, **named)

        return wrapped

    with _replaced(READING + WRITING + OTHERS, replacement):
        yield
