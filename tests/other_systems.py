"""Run tests in a process that lacks what macOS, Windows or another system lacks.

    python tests/other_systems.py SYSTEM TEST...

exits as pytest does.
"""

import os
import sys
from pathlib import Path

import hypothesis.extra.numpy  # noqa: F401 -- which need what is taken away
import pytest
import zarr  # noqa: F401

# Not in `os` on each system. What is there and has no name here behaves as it does on this one.
LINUX = ["memfd_create", "posix_fallocate", "posix_fadvise", "RWF_NOWAIT", "RWF_DSYNC"]
CALLS = ["pread", "preadv", "pwrite", "pwritev", "mkfifo", "fork", "statvfs", "fstatvfs"]
FLAGS = ["O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_NOCTTY", "O_DIRECTORY"]
LACKING = {
    "macOS": [*LINUX, "preadv", "pwritev"],  # which macOS 11 has
    "Windows": [*LINUX, *CALLS, *FLAGS],
    "no links": [*LINUX, "link"],
    "no O_NOFOLLOW": [*LINUX, "O_NOFOLLOW"],
    "Linux without proc": [],
    "Linux of old": LINUX,
}
HAS_PROC = "Linux of old"


def become(system):
    """Take from this process what `system` lacks, before the package is imported."""
    assert "zarr_bytes" not in sys.modules
    for name in LACKING[system]:
        if hasattr(os, name):
            delattr(os, name)

    def refuse_proc(event, arguments):
        if event == "open" and str(arguments[0]).startswith("/proc") and system != HAS_PROC:
            raise FileNotFoundError(arguments[0])

    def opened(path, *args, real=os.open, **options):
        if Path(path).is_dir():  # Windows opens no folder
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **options)

    sys.addaudithook(refuse_proc)
    if system == "Windows":
        os.open = opened
    here, sys.platform = sys.platform, {"W": "win32", "m": "darwin"}.get(system[0], sys.platform)
    import zarr_bytes.codec  # noqa: F401 -- what differs between systems is decided here

    sys.platform = here  # for what Python and others import later


if __name__ == "__main__":
    become(sys.argv[1])
    of_imports = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of those above
    sys.exit(pytest.main(["-xq", "-p", "no:cacheprovider", *of_imports, *sys.argv[2:]]))
