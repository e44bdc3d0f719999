"""Promises of the guide that no other test would miss, each once."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from stored_arrays import CountingStore, numbers, stored
from system_calls import Stop, fail_at, watched
from zarr.storage import LocalStore, MemoryStore

import zarr_bytes
from zarr_bytes import counting, explain, view

pytestmark = pytest.mark.zarr

VALUES = numbers((8, 6), "i4") + 1
LAYOUTS = {"chunks": {"chunks": (4, 6)}, "shards": {"chunks": (2, 3), "shards": (4, 6)}}
needs_pwrite = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="written in place on POSIX")
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def array_in(store, layout):
    """An array that writes in place where its store is a folder."""
    return stored(store, VALUES, in_place=True, config=None, serializer="auto", **LAYOUTS[layout])


@needs_pwrite
@every_layout
def test_a_chunk_that_becomes_empty_by_writes_in_place_stays(tmp_path, layout):
    """Finding out that it is empty would mean reading all of it."""
    array, path = array_in(LocalStore(tmp_path), layout), tmp_path / "c/0/0"
    inode = path.stat().st_ino
    for row in range(4):
        array[row] = 0
    assert path.stat().st_ino == inode
    assert not array[:4].any()
    array[:4] = 0
    assert not path.exists()
    assert np.array_equal(array[4:], VALUES[4:])


def test_the_defaults_in_the_tables_of_the_guide_are_those_in_force():
    page = Path(__file__).parents[1] / "docs/guide/pipeline.md"
    rows = re.findall(r"^\| `(zarr_bytes\.[a-z_.]+)` \| (.*?) \|", page.read_text(), re.MULTILINE)
    units = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    said = {}
    for name, text in rows:
        number, _, unit = text.strip("`").partition(" ")
        said[name] = str(int(number) * units[unit]) if unit else number
    if sys.version_info < (3, 13):
        said["zarr_bytes.mappings"] = "128"
    with zarr.config.set({"zarr_bytes": {}}):
        found = {setting.name: str(setting.found) for setting in zarr_bytes.status().settings}
    assert said == found


@every_layout
@pytest.mark.parametrize("kind", ["files", "requests"])
def test_explaining_reads_nothing_but_indexes_of_shards_in_files(tmp_path, layout, kind):
    store = LocalStore(tmp_path) if kind == "files" else CountingStore(MemoryStore())
    array, requests = array_in(store, layout), getattr(store, "requests", [])
    requests.clear()
    with watched(tmp_path) as files, counting() as counted:
        for selection in np.s_[...], np.s_[3], np.s_[:, 2], np.s_[1, 1]:
            for write in False, True:
                explain(array, selection, write=write)
    index = 4 * 16 + 4 if layout == "shards" else 0
    assert all(count <= index for _, _, count in files.reads)
    assert max(sum(files.nbytes.values()), counted.bytes_fetched) <= index * 8 * 2
    assert requests == []


@needs_pwrite
@every_layout
class TestViews:
    def test_views_see_writes_in_place_at_once(self, tmp_path, layout):
        array = array_in(LocalStore(tmp_path), layout)
        viewed, values = view(array), VALUES.copy()
        row = viewed[1, :3]  # of one chunk, or inner chunk: no copy
        for selection, value in (np.s_[1], 70), (np.s_[::3, 2], 80), (np.s_[5, 4], 90):
            array[selection] = values[selection] = value
            assert np.array_equal(viewed[...], values)
            assert np.array_equal(row, values[1, :3])

    def test_views_keep_the_shape_of_the_array_when_they_were_made(self, tmp_path, layout):
        """After a resize, a new view has the new one."""
        array = array_in(LocalStore(tmp_path), layout)
        viewed = view(array)
        array.resize((6, 6))
        assert np.array_equal(viewed[...], VALUES)
        assert np.array_equal(view(array)[...], VALUES[:6])
        array.resize((12, 6))
        assert np.array_equal(view(array)[...], array[...])
        assert not view(array)[8:].any()


@needs_pwrite
@pytest.mark.parametrize("selection", [np.s_[5:60], ...], ids=["part", "whole"])
def test_an_interrupt_cancels_no_write(tmp_path, monkeypatch, selection):
    """Ctrl-C ends the waiting; zarr's thread completes the write."""
    values, stop = numbers((70, 40), "i4") + 1, Stop()
    array = stored(LocalStore(tmp_path), values, in_place=True)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)
        stop()

    async def completed():
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        fail_at(monkeypatch, "pwrite", 0, before=interrupt)
        with pytest.raises(KeyboardInterrupt):
            array[selection] = -values[selection]
    finally:
        stop.go_on.set()
        signal.signal(signal.SIGINT, handler)
    zarr.core.sync.sync(completed())
    values[selection] *= -1
    assert np.array_equal(array[...], values)
    assert list(tmp_path.rglob("*.partial")) == []


@pytest.mark.parametrize("size", [1, 8])  # of an element
@pytest.mark.parametrize(("kind", "gap"), [("local", 2**15), ("remote", 2**16)])
def test_a_gap_of_the_default_size_is_read_over_and_no_larger_one(tmp_path, kind, gap, size):
    for unread, ranges in (gap // size, 1), (gap // size + 1, 2):
        values = numbers((10 * unread,), f"u{size}")
        folder = LocalStore(tmp_path / str(unread))
        array = stored(folder if kind == "local" else CountingStore(MemoryStore()), values)
        two = slice(0, unread + 2, unread + 1)
        with counting() as counted:
            assert np.array_equal(array[two], values[two])
        assert counted.ranges == ranges
