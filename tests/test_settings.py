"""The settings: what is permitted, from code and from the environment, and what is warned of."""

import asyncio
import reprlib
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product

import numpy as np
import pytest
import zarr
from command import call
from conftest import HAS_FUSED_PIPELINE
from zarr.storage import LocalStore, MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes.errors import FillValueWarning, warn_caller
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.settings import DEFAULTS, SETTINGS, reading_cost, setting


def given(name, value):
    """As with this value of a setting, whose name is given without ``zarr_bytes``."""
    return zarr.config.set({f"zarr_bytes.{name}": value})


def in_environment(name, value):
    """As in a process that has this environment variable."""
    variables = {f"ZARR_ZARR_BYTES__{name.upper()}": str(value)}
    return zarr.config.set(zarr.config.collect(paths=[], env=variables))


NO_SIZES = [-1, "32", "32 KiB", 1.0, True, None, [], np.array([1, 2]), "9" * 5000]


class TestValues:
    def test_true_and_false_are_read_in_any_case_of_letters(self):
        for word in True, "True", "true", "TRUE", False, "False", "false", "FALSE":
            truth = str(word).lower() == "true"
            with given("partial_reads", word):
                assert reading_cost("remote") == (DEFAULTS["remote"] if truth else None)
            for set_to in given, in_environment:
                with set_to("partial_writes", word):
                    assert setting("zarr_bytes.partial_writes") is truth

    def test_sizes_are_numbers_of_bytes_and_one_leaves_the_others_at_their_defaults(self):
        with zarr.config.set({"zarr_bytes.gap": {"remote": 7}}):
            assert reading_cost("local") == DEFAULTS["local"]
            assert reading_cost("remote") == DEFAULTS["remote"]._replace(gap=7)
        with in_environment("largest_request__local", 2**16):
            assert reading_cost("local") == DEFAULTS["local"]._replace(largest_request=2**16)

    def test_an_integer_has_a_smallest_value_and_offsets_stay_within_64_bits(self):
        sizes = {"gap.local": 0, "gap.remote": 0, "mappings": 1, "index_cache": 0}
        sizes |= {"largest_request.local": 1, "largest_request.remote": 1}
        for name, smallest in sizes.items():
            for value in smallest, 10**5000:
                with given(name, value):
                    assert setting(f"zarr_bytes.{name}") == min(value, 2**62)
            message = rf"zarr_bytes\.{name} is \S.*; permitted is an integer from {smallest} on"
            for value in smallest - 1, -(10**5000):
                with given(name, value), pytest.raises(ValueError, match=message):
                    setting(f"zarr_bytes.{name}")

    def test_a_zip_file_is_as_local_as_a_folder(self):
        with given("gap", {"local": 5, "remote": 7}):
            stores = LocalStore("a"), ZipStore("a.zip"), MemoryStore()
            assert [driver_of(store).cost().gap for store in stores] == [5, 5, 7]

    def test_any_other_is_an_error_with_what_is_permitted_and_a_problem_for_status(self):
        pipelines = " and ".join(map(repr, ["batched"] + ["fused"] * HAS_FUSED_PIPELINE))
        for permitted, names, values in (
            ("are True and False", ["partial_reads", "partial_writes"], ["yes", "", 1, None, []]),
            ("are 'strict' and 'lenient'", ["fill_values"], ["loose", [], np.array(["a"])]),
            (f"are {pipelines}", ["other_chains"], ["fast", []]),
            ("is an integer from 0 on", ["gap.local"], NO_SIZES),
        ):
            for name, value in product(names, values):
                with given(name, value):
                    found = zarr_bytes.status()
                expected = f"zarr_bytes.{name} is {reprlib.repr(value)}; permitted {permitted}"
                assert (found.is_active, found.problems) == (False, [expected])
        # A TypeError, which zarr does not replace where it reads a fill value.
        with given("fill_values", "loose"), pytest.raises(TypeError, match="is 'loose'; permitted"):
            setting("zarr_bytes.fill_values")

    def test_a_hyphen_is_as_good_as_an_underscore(self):
        defaults = {n.replace("_", "-"): default for n, (default, _) in SETTINGS.items()}
        with zarr.config.set(defaults | {"zarr-bytes.partial-reads": False}):
            assert reading_cost("local") is None
            assert zarr_bytes.status().unknown == []


class TestNamesThatAreNoSettings:
    @pytest.mark.parametrize("name", ["partial_read", "gap.local.x", "gap", "fill-value", ""])
    @pytest.mark.parametrize("value", [None, 0, "", 5])
    def test_are_said_by_status_with_all_that_are_settings(self, name, value):
        with zarr.config.set({f"zarr_bytes.{name}".strip("."): value}):
            found, result = zarr_bytes.status(), call("status")
        (sentence,) = found.unknown
        known, shown = ", ".join(SETTINGS), f"zarr_bytes.{name}".strip(".").replace("-", "_")
        assert sentence == f"the setting `{shown}` is not known (known: {known})"
        assert (found.is_active, found.problems, result.exit_code) == (True, [], 1)
        assert str(found).startswith(f"Active, but {sentence}.")

    def test_are_warned_of_once_each_by_every_place_that_asks_for_a_setting(self, tmp_path):
        array = zarr.create_array(tmp_path, data=np.arange(20), compressors=None)
        asked = (lambda: reading_cost("remote"), lambda: setting("zarr_bytes.mappings"))
        with ExitStack() as unknown:
            for number, ask in enumerate([*asked, lambda: array[7]]):
                unknown.enter_context(given(f"a{number}", False))
                expected = rf"zarr_bytes\.a{number}` is not known .*; it has no effect"
                with pytest.warns(UserWarning, match=expected):
                    ask()
                ask()  # again would be an error


def test_a_warning_names_the_line_of_the_caller_though_zarr_reads_in_another_thread(
    tmp_path, pipeline
):
    zarr.create_array(tmp_path, data=np.arange(20), chunks=(5,), compressors=None)
    array = zarr.open_array(tmp_path)
    get, threads = array.async_array.getitem, ThreadPoolExecutor(1)
    open_ = lambda: zarr.open_array(tmp_path)  # noqa: E731
    read = lambda: array[7]  # noqa: E731
    read_async = lambda: asyncio.run(get(slice(0, 10)))  # noqa: E731
    read_in_a_thread = lambda: threads.submit(read).result()  # noqa: E731
    for name, act, caller in (
        ("opened", open_, open_),
        ("read", read, read),
        ("read_in_another_loop", read_async, read_async),
        ("read_in_a_thread", read_in_a_thread, read),
    ):
        code = caller.__code__
        with given(f"{name}_by_{pipeline}", 1), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            act()
        if name == "read" or pipeline == "BatchedBytesPipeline":
            found = [(warning.filename, warning.lineno) for warning in caught]
            assert found == [(code.co_filename, code.co_firstlineno)]
    threads.shutdown()


def test_a_warning_comes_once_for_a_line_and_is_one_of_its_module():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=__name__)
        for _ in range(2):
            warn_caller("said", FillValueWarning)
    assert [warning.category for warning in caught] == [FillValueWarning]
