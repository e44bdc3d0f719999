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
from typed_zarr import printed
from zarr.storage import LocalStore, MemoryStore, ZipStore

import zarr_bytes
from zarr_bytes import FillValueWarning
from zarr_bytes.errors import warn_caller
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.settings import (
    DEFAULTS,
    SETTINGS,
    checked_setting,
    request_cost_or_none_if_partial_reads_are_off,
)


def given(name, value):
    """As with this value of a setting, whose name is given without ``zarr_bytes``."""
    return zarr.config.set({f"zarr_bytes.{name}": value})


def in_environment(name, value):
    """As in a process that has this environment variable."""
    variables = {f"ZARR_ZARR_BYTES__{name.upper()}": str(value)}
    return zarr.config.set(zarr.config.collect(paths=[], env=variables))


NO_SIZES = [-1, "32", "32 KiB", 1.0, True, None, [], np.array([1, 2]), "9" * 5000]


def test_a_setting_is_taken_from_zarrs_configuration():
    with zarr.config.set({"zarr_bytes.partial_writes": True}):
        assert checked_setting("zarr_bytes.partial_writes") is True
    assert checked_setting("zarr_bytes.partial_writes") is False


class ElsewhereStore(MemoryStore):
    """Of a class that is not known, and may be anywhere."""


class TestValues:
    def test_settings_of_true_and_false_are_read_in_any_case_of_letters(self):
        for word in True, "True", "true", "TRUE", False, "False", "false", "FALSE":
            truth = str(word).lower() == "true"
            with given("partial_reads", word):
                assert request_cost_or_none_if_partial_reads_are_off("remote") == (
                    DEFAULTS["remote"] if truth else None
                )
            for set_to in given, in_environment:
                with set_to("partial_writes", word):
                    assert checked_setting("zarr_bytes.partial_writes") is truth

    def test_settings_of_sizes_leave_the_others_at_their_defaults(self):
        with zarr.config.set({"zarr_bytes.gap": {"remote": 7}}):
            assert request_cost_or_none_if_partial_reads_are_off("local") == DEFAULTS["local"]
            assert request_cost_or_none_if_partial_reads_are_off("remote") == DEFAULTS[
                "remote"
            ]._replace(gap=7)
        with in_environment("largest_request__local", 2**16):
            assert request_cost_or_none_if_partial_reads_are_off("local") == DEFAULTS[
                "local"
            ]._replace(max_request_nbytes=2**16)

    def test_an_integer_has_a_smallest_value_and_offsets_stay_within_64_bits(self):
        sizes = {"gap.local": 0, "gap.remote": 0, "mappings": 1, "index_cache": 0}
        sizes |= {"largest_request.local": 1, "largest_request.remote": 1}
        for name, smallest in sizes.items():
            for value in smallest, 10**5000:
                with given(name, value):
                    assert checked_setting(f"zarr_bytes.{name}") == min(value, 2**62)
            message = rf"zarr_bytes\.{name} is \S.*; permitted is an integer from {smallest} on"
            for value in smallest - 1, -(10**5000):
                with given(name, value), pytest.raises(ValueError, match=message):
                    checked_setting(f"zarr_bytes.{name}")

    def test_a_zip_file_is_as_local_as_a_folder(self):
        with given("gap", {"local": 5, "remote": 7}):
            stores = LocalStore("a"), ZipStore("a.zip"), ElsewhereStore()
            costs = [
                driver_of(store, "").request_cost_or_none_if_partial_reads_are_off()
                for store in stores
            ]
            assert [cost.gap for cost in costs] == [5, 5, 7]

    def test_a_wrong_setting_is_an_error_with_what_is_permitted(self):
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
            checked_setting("zarr_bytes.fill_values")

    def test_names_of_settings_may_have_hyphens_for_underscores(self):
        defaults = {n.replace("_", "-"): default for n, (default, _) in SETTINGS.items()}
        with zarr.config.set(defaults | {"zarr-bytes.partial-reads": False}):
            assert request_cost_or_none_if_partial_reads_are_off("local") is None
            assert zarr_bytes.status().unknown == []


class TestNamesThatAreNoSettings:
    @pytest.mark.parametrize("name", ["partial_read", "gap.local.x", "gap", "fill-value", ""])
    @pytest.mark.parametrize("value", [None, 0, "", 5])
    def test_unknown_settings_are_said_by_status(self, name, value):
        with zarr.config.set({f"zarr_bytes.{name}".strip("."): value}):
            found, result = zarr_bytes.status(), call("status")
        (sentence,) = found.unknown
        known, shown = ", ".join(SETTINGS), f"zarr_bytes.{name}".strip(".").replace("-", "_")
        assert sentence == f"the setting `{shown}` is not known (known: {known})"
        assert (found.is_active, found.problems, result.exit_code) == (True, [], 1)
        assert str(found).startswith(f"Active, but {sentence}.")

    def test_unknown_settings_are_warned_of_once_each(self, tmp_path):
        array = zarr.create_array(tmp_path, data=np.arange(20), compressors=None)
        asked = (
            lambda: request_cost_or_none_if_partial_reads_are_off("remote"),
            lambda: checked_setting("zarr_bytes.mappings"),
        )
        with ExitStack() as unknown:
            for number, ask in enumerate([*asked, lambda: array[7]]):
                unknown.enter_context(given(f"a{number}", False))
                expected = rf"zarr_bytes\.a{number}` is not known .*; it has no effect"
                with pytest.warns(UserWarning, match=expected):
                    ask()
                ask()  # again would be an error


def test_a_warning_of_a_setting_names_the_line_of_the_caller(tmp_path, pipeline):
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


class TestConfigSet:
    """`zarr_bytes.config.set`, where zarr's configuration takes the settings of this package."""

    def test_sets_what_zarr_config_has_for_the_process_or_for_a_block(self):
        with zarr.config.set({"zarr_bytes.gap.local": 5}):
            with zarr_bytes.config.set({"zarr_bytes.gap.local": 6}, zarr_bytes__mappings=7):
                assert zarr.config.get("zarr_bytes") == {"gap": {"local": 6}, "mappings": 7}
                zarr_bytes.config.set({"zarr-bytes.gap.local": 8})  # in a call, for the process
                assert zarr.config.get("zarr_bytes.gap.local") == 8
            assert zarr.config.get("zarr_bytes") == {"gap": {"local": 5}}

    @pytest.mark.parametrize("name", ["array.order", "zarr", "zarr_bytes_", ""])
    def test_refuses_the_settings_of_zarr_and_others(self, name):
        with pytest.raises(
            ValueError, match=f"^'{name}' is not a setting of zarr-bytes; permitted"
        ):
            zarr_bytes.config.set({"zarr_bytes.mappings": 7, name: 5})
        assert zarr.config.get("zarr_bytes", {}) == {}


UNSETTABLE = ["get raises", "get gives the default"]
"""How a typed configuration of zarr treats the names of other packages, besides refusing to set."""


@pytest.mark.zarr
class TestWhereZarrTakesNoSettingsOfOthers:
    @pytest.mark.parametrize("kind", UNSETTABLE)
    def test_one_warning_at_the_line_of_the_caller_says_where_to_set_them(self, kind):
        code = """
            import warnings
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for size in 5, 6:
                    store = zarr.storage.MemoryStore()
                    zarr.create_array(store, shape=size, dtype="i4", compressors=None)[:] = size
                    print(zarr.open_array(store)[1:3])
            print(*[f"{w.filename} {w.category.__name__}: {w.message}" for w in caught], sep="\\n")
        """
        first, second, *warned = printed(code, kind)
        assert (first, second) == ("[5 5]", "[6 6]")
        (warning,) = warned
        assert warning.startswith(
            f"<string> UserWarning: the configuration of zarr {zarr.__version__} takes no settings"
            " of other packages: change the settings of zarr-bytes with zarr_bytes.config.set("
        )

    @pytest.mark.parametrize("kind", UNSETTABLE)
    def test_the_environment_and_files_are_read_and_code_sets_them_for_all_threads(
        self, kind, tmp_path
    ):
        path = tmp_path / "mine.yaml"
        path.write_text("zarr_bytes: {gap: {local: 5}, mappings: 9}")
        code = """
            import threading, zarr_bytes
            from zarr_bytes.settings import checked_setting

            NAMES = "partial_writes", "fill_values", "gap.local", "mappings"

            def printed():
                values = [checked_setting(f"zarr_bytes.{name}") for name in NAMES]
                thread = threading.Thread(target=lambda: print(*values))
                thread.start()
                thread.join()

            with __import__("warnings").catch_warnings(action="ignore"):
                printed()
            with zarr_bytes.config.set({"zarr_bytes.gap": {"local": 1}, "zarr-bytes.mappings": 2}):
                with zarr_bytes.config.set(zarr_bytes__partial_writes=False):
                    printed()
                printed()
            printed()
            zarr_bytes.config.set({"zarr_bytes.fill_values": "lenient"})
            printed()
            print(zarr.config.get("async.concurrency"))
            status = zarr_bytes.status()
            for name in *NAMES, "index_cache":
                print(*[s.source for s in status.settings if s.name == f"zarr_bytes.{name}"])
            print(*[codec.source for codec in status], sep="\\n")
            print(*[line for line in str(status).splitlines() if line.startswith("Settings ")])
        """
        environment = {
            "ZARR_CONFIG": str(path),
            "ZARR_ZARR_BYTES__PARTIAL_WRITES": "True",
            "ZARR_ZARR_BYTES__FILL_VALUES": "strict",
            "ZARR_ZARR_BYTES__MAPPINGS": "7",
            "ZARR_ASYNC__CONCURRENCY": "3",
        }
        *values, concurrency, b, c, d, e, f, x, y, z, said = printed(code, kind, **environment)
        assert values == [
            "True strict 5 7",
            "False strict 1 2",
            "True strict 1 2",
            "True strict 5 7",
            "True lenient 5 7",
        ]
        assert concurrency == "3"  # zarr's own, by zarr
        variable = "ZARR_ZARR_BYTES__{} in the environment"
        expected = variable.format("PARTIAL_WRITES"), "zarr_bytes.config.set", str(path)
        assert (b, c, d, e, f) == (*expected, variable.format("MAPPINGS"), "default")
        assert {x, y, z} == {x}
        assert x.endswith("etc/zarr/zarr-bytes.yaml")
        taker = f"zarr {zarr.__version__} takes none of other packages."
        assert said == f"Settings are set by zarr_bytes.config.set: {taker}"

    def test_messages_name_the_function_that_sets_them(self, tmp_path):
        zarr.create_array(tmp_path, shape=3, dtype="f4", compressors=None)[:] = 7
        document = (tmp_path / "zarr.json").read_text()
        code = f"""
            import warnings, zarr_bytes
            from pathlib import Path
            warnings.simplefilter("ignore", UserWarning)
            path = Path({str(tmp_path)!r})
            try:
                zarr_bytes.view(zarr.open_array(path), mode="r+")
            except ValueError as error:
                print(error)
            print(zarr_bytes.check(path).conforms)
            (path / "zarr.json").write_text({document.replace("0.0", '"1.5"')!r})
            zarr_bytes.config.set({{"zarr_bytes.fill_values": "strict"}})
            try:
                zarr.open_array(path)
            except TypeError as error:
                print(error)
        """
        in_place, conforms, strict = printed(code)
        assert '`with zarr_bytes.config.set({"zarr_bytes.partial_writes": True})`' in in_place
        assert conforms == "True"
        assert 'zarr_bytes.config.set({"zarr_bytes.fill_values": "lenient"}) reads' in strict

    def test_another_configuration_that_takes_them_is_used_as_it_is(self):
        code = """
            import zarr_bytes
            from zarr_bytes.settings import checked_setting
            for set in zarr.config.set, zarr_bytes.config.set:
                with set({"zarr_bytes.fill_values": "strict", "zarr_bytes.gap.local": 5}):
                    gap = zarr.config.get("zarr_bytes.gap.local")
                    print(checked_setting("zarr_bytes.fill_values"), gap)
                print(zarr.config.get("zarr_bytes", None))
        """
        assert printed(code, "takes other names") == ["strict 5", "None"] * 2

    def test_settings_of_zarr_that_are_gone_have_the_values_that_zarr_gave_them(self, tmp_path):
        code = f"""
            import warnings, numpy as np
            warnings.simplefilter("ignore", UserWarning)
            path, values, config = {str(tmp_path)!r}, np.arange(4000.0), zarr.config
            array = zarr.create_array(path, shape=4000, chunks=10, dtype="f8", compressors=None)
            pipeline = "codec_pipeline.max_workers", "codec_pipeline.batch_size"
            for name in *pipeline, "array.rectilinear_chunks":
                section, _, key = name.partition(".")
                config.defaults[section].pop(key, None)
                config._values.pop(name, None)
            array[:] = values
            print(np.array_equal(zarr.open_array(path)[:], values))
            import zarr_bytes
            print(zarr_bytes.check(path).conforms)
        """
        assert printed(code) == ["True", "True"]

    def test_the_pipeline_of_zarr_is_found_by_another_name_in_its_defaults(self):
        code = """
            import warnings
            from zarr.core import codec_pipeline
            warnings.simplefilter("ignore", UserWarning)
            codec_pipeline.Renamed = codec_pipeline.BatchedCodecPipeline
            del codec_pipeline.BatchedCodecPipeline
            zarr.config.defaults["codec_pipeline"]["path"] = "zarr.core.codec_pipeline.Renamed"
            import zarr_bytes
            print(issubclass(zarr_bytes.BatchedBytesPipeline, codec_pipeline.Renamed))
        """
        assert printed(code) == ["True"]

    def test_a_package_that_zarr_does_not_choose_is_said_with_a_mapping_of_defaults(self):
        code = """
            import logging, sys
            logging.basicConfig(stream=sys.stdout, format="%(message)s")
            zarr.config.set({"codecs.bytes": zarr.config.defaults["codecs"]["bytes"]})
            import zarr_bytes
        """
        assert printed(code)[0].startswith("zarr-bytes is installed and zarr does not use it")
