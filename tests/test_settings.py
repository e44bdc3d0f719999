"""The settings: what is permitted, from code and from the environment."""

import asyncio
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import zarr
from documents import open_document
from zarr.storage import LocalStore, MemoryStore, ZipStore

from zarr_bytes.io.drivers import driver_of
from zarr_bytes.settings import (
    DEFAULTS,
    SETTINGS,
    fill_values_are_lenient,
    partial_writes_enabled,
    reading_cost,
    unknown_settings,
)


def in_environment(**variables):
    """As in a process that has these environment variables."""
    return zarr.config.set(zarr.config.collect(paths=[], env=variables))


def setting(name, value):
    """As with this value of a setting, whose name is given without ``zarr_bytes``."""
    return zarr.config.set({f"zarr_bytes.{name}": value})


class TestTrueAndFalse:
    @pytest.mark.parametrize(
        ("words", "truth"),
        [(["true", "True", "TRUE", True], True), (["false", "False", "FALSE", False], False)],
    )
    def test_are_read_in_any_case_of_letters(self, words, truth):
        for word in words:
            with zarr.config.set({"zarr_bytes": {"partial_reads": word, "partial_writes": word}}):
                assert reading_cost("remote") == (DEFAULTS["remote"] if truth else None)
                assert partial_writes_enabled() is truth
            with in_environment(ZARR_ZARR_BYTES__PARTIAL_WRITES=str(word)):
                assert partial_writes_enabled() is truth

    @pytest.mark.parametrize("value", ["yes", "", 1, 0, None])
    def test_anything_else_is_an_error_that_names_the_setting(self, value):
        expected = f"zarr_bytes.partial_writes is {value!r}; permitted are True and False"
        with setting("partial_writes", value), pytest.raises(ValueError, match=expected):
            partial_writes_enabled()


class TestSizes:
    def test_are_numbers_of_bytes_from_code_and_from_the_environment(self):
        with setting("gap.local", 4096):
            assert reading_cost("local").gap == 4096
        with in_environment(ZARR_ZARR_BYTES__LARGEST_REQUEST__LOCAL="65536"):
            assert reading_cost("local").largest_request == 2**16

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            *(("gap", size) for size in ["32 KiB", "32", -1, 1.0, True, None, "9" * 5000]),
            ("largest_request", 0),
        ],
    )
    def test_anything_else_is_an_error_that_names_the_setting(self, name, size):
        least = "an integer from 1 on" if name == "largest_request" else "an integer from 0 on"
        message = f"zarr_bytes.{name}.local is .*; permitted is {least}$"
        with setting(f"{name}.local", size), pytest.raises(ValueError, match=message):
            reading_cost("local")

    def test_one_that_is_set_leaves_the_others_at_their_defaults(self):
        with zarr.config.set({"zarr_bytes.gap": {"remote": 7}}):
            assert reading_cost("local") == DEFAULTS["local"]
            assert reading_cost("remote") == DEFAULTS["remote"]._replace(gap=7)


def test_a_zip_file_is_as_local_as_a_folder():
    with zarr.config.set({"zarr_bytes.gap.local": 5, "zarr_bytes.gap.remote": 7}):
        stores = LocalStore("a"), ZipStore("a.zip"), MemoryStore()
        assert [driver_of(store).cost().gap for store in stores] == [5, 5, 7]


class TestNamesThatAreNoSettings:
    @pytest.mark.parametrize("name", ["partial_read", "gap.locale", "gap.local.x", "gap", "xyz"])
    def test_a_sentence_names_it_and_all_that_are(self, name):
        known = ", ".join(SETTINGS)
        with setting(name, 1):
            expected = f"the setting `zarr_bytes.{name}` is not known (known: {known})"
            assert unknown_settings() == [expected]

    def test_settings_are_none_of_them_in_either_spelling(self):
        hyphens = {name.replace("_", "-"): value for name, value in SETTINGS.items()}
        for values in (SETTINGS, hyphens):
            with zarr.config.set(values):
                assert unknown_settings() == []

    def test_are_warned_of_once_each_by_every_place_that_asks_for_a_setting(self, tmp_path):
        zarr.create_array(tmp_path, data=np.arange(20), compressors=None)
        array = zarr.open_array(tmp_path)
        asked = [lambda: reading_cost("remote"), fill_values_are_lenient]
        asked += [partial_writes_enabled, lambda: array[7]]
        for number, ask in enumerate(asked):
            with setting(f"a{number}", 1):
                expected = rf"zarr_bytes\.a{number}` is not known .*; it has no effect"
                with pytest.warns(UserWarning, match=expected):
                    ask()
                ask()  # again would be an error

    def test_from_the_environment(self):
        with in_environment(ZARR_ZARR_BYTES__IN_THE_ENVIRONMENT="False"):
            (sentence,) = unknown_settings()
            with pytest.warns(UserWarning, match=re.escape(sentence)):
                assert reading_cost("local") == DEFAULTS["local"]


def line_of(function):
    """File and line where `function`, of one line, calls zarr."""
    return function.__code__.co_filename, function.__code__.co_firstlineno


def lines_warned_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [(warning.filename, warning.lineno) for warning in caught]


class TestTheLineThatAWarningNames:
    """Is that of the caller, though zarr reads in another thread."""

    @pytest.fixture
    def store(self, tmp_path):
        values = np.arange(200.0).reshape(10, 20)
        zarr.create_array(tmp_path, data=values, chunks=(5, 20), compressors=None)
        return tmp_path

    def test_where_an_array_is_opened_and_read(self, store, pipeline):
        open_ = lambda: zarr.open_array(store)  # noqa: E731
        with setting(f"opened_by_{pipeline}", 1):
            is_asked = pipeline == "BatchedBytesPipeline"  # whether selections are written in place
            assert lines_warned_of(open_) == [line_of(open_)] * is_asked
        array = open_()
        read = lambda: array[7, 8]  # noqa: E731
        with setting(f"read_by_{pipeline}", 1):
            assert lines_warned_of(read) == [line_of(read)]

    def test_where_another_event_loop_than_zarrs_reads_or_another_thread(self, store):
        array = zarr.open_array(store)
        reads = array.async_array.getitem
        read_async = lambda: asyncio.run(reads((slice(0, 10), 8)))  # noqa: E731
        with setting("read_by_a_loop", 1):
            assert lines_warned_of(read_async) == [line_of(read_async)]
        read = lambda: array[7, 8]  # noqa: E731
        with setting("read_by_a_thread", 1), ThreadPoolExecutor(1) as threads:
            lines = lines_warned_of(lambda: threads.submit(read).result())
        assert lines == [line_of(read)]

    def test_where_a_fill_value_is_read_that_is_not_permitted(self):
        for data_type, value in (("float32", "1.5"), ("int4", None)):
            open_ = partial(open_document, data_type, fill_value=value)
            with setting("fill_values", "lenient"):
                ((file, _),) = lines_warned_of(open_)
            assert file == open_document.__code__.co_filename


def test_a_hyphen_is_as_good_as_an_underscore():
    with zarr.config.set({"zarr_bytes": {"partial-reads": False}}):
        assert reading_cost("local") is None
    with zarr.config.set({"zarr_bytes": {"fill-values": "lenient"}}):
        assert fill_values_are_lenient()
