"""What `test_other_systems.py` runs in a process that lacks what its system would lack.

    python tests/other_systems.py FOLDER

prints, as JSON, for each system the tracebacks of every behaviour that does not hold there.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import zarr
from numpy.testing import assert_array_equal
from zarr.core import codec_pipeline

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
IS_REPLACING = ("Windows", "no links", "no O_NOFOLLOW")
PIPELINE = "zarr_bytes.BatchedBytesPipeline"
PIPELINES = [
    PIPELINE,
    *(
        f"zarr.core.codec_pipeline.{name}"
        for name in ("BatchedCodecPipeline", "FusedCodecPipeline")
        if hasattr(codec_pipeline, name)
    ),
]

SHAPE, CHUNKS = (64, 130), (32, 50)
VALUES = np.arange(64 * 130, dtype=">f8").reshape(SHAPE)
LARGE = np.arange(400 * 500, dtype=">i4").reshape(400, 500)  # one chunk, read by a thread
SELECTIONS = [
    np.s_[...],
    np.s_[7],
    np.s_[:, 3],
    np.s_[40, 77],
    np.s_[5:60:7, 10:120],
    np.s_[::3, ::2],
    np.s_[31:33, 49:51],
]
IN_PLACE = {"zarr_bytes.partial_writes": True}


def become(system):
    """Take from this process what `system` lacks, before the package is imported."""
    assert "zarr_bytes" not in sys.modules
    for name in LACKING[system]:
        if hasattr(os, name):
            delattr(os, name)

    def refuse_proc(event, arguments):
        if event == "open" and str(arguments[0]).startswith("/proc") and system != HAS_PROC:
            raise FileNotFoundError(arguments[0])

    sys.addaudithook(refuse_proc)
    if system == "Windows":
        os.open = refusing_folders(os.open)
    here, sys.platform = sys.platform, {"W": "win32", "m": "darwin"}.get(system[0], sys.platform)
    import zarr_bytes.codec  # noqa: F401 -- what differs between systems is decided here

    sys.platform = here  # for what Python and others import later


def refusing_folders(real):
    """As Windows, which opens no folder."""

    def opened(path, *args, **options):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **options)

    return opened


def created(folder, values, chunks):
    """An array on disk, opened from its metadata and so with this package's codec."""
    zarr.create_array(folder, data=values, chunks=chunks, compressors=None, fill_value=-1)
    array = zarr.open_array(folder)
    assert type(array.metadata.codecs[0]).__module__ == "zarr_bytes.codec"
    return array


def selections_are_read_as_numpy_selects(system, folder):
    array = created(folder / "a", VALUES, CHUNKS)
    large = created(folder / "b", LARGE, LARGE.shape)
    for gap in 0, 2**15:
        with zarr.config.set({"zarr_bytes.gap.local": gap}):
            for selection in [*SELECTIONS, np.s_[:, 7]]:
                assert_array_equal(array[selection], VALUES[selection])
                assert_array_equal(large[selection], LARGE[selection])


def points_and_grids_are_read_as_numpy_selects(system, folder):
    array = created(folder, VALUES, CHUNKS)
    rows, columns = np.array([63, 0, 31, 32]), np.array([0, 129, 49, 50])
    assert_array_equal(array.vindex[rows, columns], VALUES[rows, columns])
    assert_array_equal(array.oindex[rows, columns], VALUES[np.ix_(rows, columns)])


def a_selection_reads_its_own_bytes(system, folder):
    from system_calls import watched  # which imports the package

    array = created(folder, LARGE, LARGE.shape)
    array[0, 0]
    with watched(folder) as files:
        array[200, 100:110]
    assert files.nbytes == {"c/0/0": 40}


def selections_are_written_as_numpy_assigns(system, folder):
    for number, selection in enumerate(SELECTIONS):
        for values, chunks in ((VALUES, CHUNKS), (LARGE, LARGE.shape)):
            path, expected = folder / f"{number}-{values.size}", values.copy()
            created(path, values, chunks)
            with zarr.config.set(IN_PLACE):
                array = zarr.open_array(path)
            array[selection] = expected[selection] = 5
            assert_array_equal(array[...], expected)


def missing_chunks_are_made(system, folder):
    zarr.create_array(folder, shape=(9, 9), chunks=(9, 9), dtype="i2", compressors=None)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(folder)
    assert not array[...].any()
    array[3, 4:6] = [1, 2]
    expected = np.zeros((9, 9), "i2")
    expected[3, 4:6] = 1, 2
    assert_array_equal(array[...], expected)
    assert [path.name for path in folder.rglob("*") if "partial" in path.name] == []


def a_chunk_is_changed_in_place_only_where_that_is_safe(system, folder):
    created(folder, VALUES, SHAPE)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(folder)
    chunk = folder / "c/0/0"
    with chunk.open("rb"):  # its number is not given to another file
        before = chunk.stat().st_ino
        array[3] = 7
        is_in_place = zarr.config.get("codec_pipeline.path") == PIPELINE
        assert (chunk.stat().st_ino == before) is (is_in_place and system not in IS_REPLACING)


def a_symbolic_link_is_replaced_and_what_it_leads_to_is_not_changed(system, folder):
    created(folder / "a", VALUES, SHAPE)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(folder / "a")
    chunk, elsewhere = folder / "a/c/0/0", folder / "elsewhere"
    chunk.rename(elsewhere)
    chunk.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    array[3] = 7
    assert elsewhere.read_bytes() == before
    assert (array[3] == 7).all()


def a_truncated_chunk_is_the_same_error(system, folder):
    from zarr_bytes import ChunkSizeError

    created(folder, VALUES, SHAPE)
    with zarr.config.set(IN_PLACE):
        array = zarr.open_array(folder)
    chunk = folder / "c/0/0"
    content = chunk.read_bytes()[:-1]
    chunk.write_bytes(content)
    for attempt in (lambda: array[...], lambda: array[63], lambda: array.__setitem__(63, 1)):
        with pytest.raises(ChunkSizeError):
            attempt()
    assert chunk.read_bytes() == content


def a_folder_in_the_place_of_a_chunk_is_the_same_error(system, folder):
    from zarr_bytes import ChunkFileError

    array = created(folder, VALUES, SHAPE)
    (folder / "c/0/0").unlink()
    (folder / "c/0/0").mkdir()
    for selection in (np.s_[...], np.s_[3]):
        with pytest.raises(ChunkFileError, match="is a folder"):
            array[selection]


def a_store_is_checked(system, folder):
    import zarr_bytes

    created(folder, VALUES, CHUNKS)
    assert [report.findings for report in zarr_bytes.check(folder)] == [[]]


BEHAVIOURS = [
    selections_are_read_as_numpy_selects,
    points_and_grids_are_read_as_numpy_selects,
    a_selection_reads_its_own_bytes,
    selections_are_written_as_numpy_assigns,
    missing_chunks_are_made,
    a_chunk_is_changed_in_place_only_where_that_is_safe,
    a_symbolic_link_is_replaced_and_what_it_leads_to_is_not_changed,
    a_truncated_chunk_is_the_same_error,
    a_folder_in_the_place_of_a_chunk_is_the_same_error,
    a_store_is_checked,
]


def failed_on(system, root):
    """The behaviours that do not hold on `system`, with their tracebacks."""
    become(system)
    failed = {}
    for pipeline in PIPELINES:
        for behaviour in BEHAVIOURS:
            folder = Path(root, f"{system}-{pipeline}-{BEHAVIOURS.index(behaviour)}")
            folder.mkdir()
            try:
                with zarr.config.set({"codec_pipeline.path": pipeline}):
                    behaviour(system, folder)
            except Exception:  # noqa: BLE001 -- it is the outcome
                failed.setdefault(behaviour.__name__, []).append(traceback.format_exc())
    return failed


def main(root):
    for system in LACKING:
        process = os.fork()
        if not process:
            Path(root, f"{system}.json").write_text(json.dumps(failed_on(system, root)))
            os._exit(0)
        os.waitpid(process, 0)
    reports = {system: Path(root, f"{system}.json").read_text() for system in LACKING}
    print(json.dumps({system: json.loads(report) for system, report in reports.items()}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
