"""The commands, called in this process as a terminal calls them."""

import asyncio
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest
from zarr.storage import WrapperStore

import zarr_bytes
from zarr_bytes.__main__ import main


def call(*arguments):
    """Exit status and output of ``zarr-bytes ARGUMENTS``."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # of the parser of arguments
            code = error.code
    return SimpleNamespace(exit_code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def check_json(location, *options):
    """Exit status of ``check --json``, and the document that it prints."""
    result = call("check", location, "--json", *options)
    return result.exit_code, json.loads(result.stdout, parse_constant=pytest.fail)


def nodes_of(location):
    """The report of each node by ``check --json``, by its path."""
    return {node["path"]: node for node in check_json(location)[1]["nodes"]}


def found_in(node):
    """The findings for a node that `nodes_of` gives."""
    return [finding["found"] for finding in node["findings"]]


def reports_of(store):
    """The reports of all nodes of a store, by their paths."""
    return {report.path: report for report in zarr_bytes.check(store)}


class Watched(WrapperStore):
    """A store that remembers which objects were read and sized, and how many at once."""

    def __init__(self, store):
        super().__init__(store)
        self.read, self.sized, self.running, self.most = [], [], 0, 0

    async def get(self, key, *args, **kwargs):
        self.read.append(key)
        return await self._store.get(key, *args, **kwargs)

    async def getsize(self, key):
        self.sized.append(key)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(20):  # long enough for the others to begin
            await asyncio.sleep(0)
        self.running -= 1
        return await self._store.getsize(key)
