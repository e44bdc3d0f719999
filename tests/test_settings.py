"""The settings: what is permitted, from code and from the environment."""

import warnings

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

from zarr_bytes import settings
from zarr_bytes.settings import (
    DEFAULTS,
    SETTINGS,
    fill_values_are_lenient,
    partial_writes_enabled,
    reading_cost,
    unknown_settings,
)


@pytest.fixture(autouse=True)
def nothing_warned_of(monkeypatch):
    """As in a process that has not warned of any key yet."""
    monkeypatch.setattr(settings, "_warned", set())


def in_environment(**variables):
    """As in a process that has these environment variables."""
    return zarr.config.set(zarr.config.collect(paths=[], env=variables))


class TestTrueAndFalse:
    @pytest.mark.parametrize("word", ["true", "True", "TRUE", True])
    def test_true_in_any_case_of_letters(self, word):
        with zarr.config.set({"zarr_bytes": {"partial_reads": word, "partial_writes": word}}):
            assert reading_cost(MemoryStore()) == DEFAULTS["remote"]
            assert partial_writes_enabled() is True

    @pytest.mark.parametrize("word", ["false", "False", "FALSE", False])
    def test_false_in_any_case_of_letters(self, word):
        with zarr.config.set({"zarr_bytes": {"partial_reads": word, "partial_writes": word}}):
            assert reading_cost(MemoryStore()) is None
            assert partial_writes_enabled() is False

    @pytest.mark.parametrize("word", ["true", "True", "TRUE"])
    def test_from_the_environment(self, word):
        with in_environment(ZARR_ZARR_BYTES__PARTIAL_WRITES=word):
            assert partial_writes_enabled() is True

    @pytest.mark.parametrize("value", ["yes", "", 1, 0, None])
    def test_anything_else_is_an_error_that_names_the_setting(self, value):
        with zarr.config.set({"zarr_bytes.partial_writes": value}):
            expected = f"zarr_bytes.partial_writes is {value!r}; permitted are True and False"
            with pytest.raises(ValueError, match=expected):
                partial_writes_enabled()

    def test_partial_writes_are_off_where_nothing_is_set(self):
        assert partial_writes_enabled() is False

    def test_a_value_in_place_of_a_section_is_refused_with_what_is_in_it(self):
        names = r"gap\.local, zarr_bytes\.gap\.remote$"
        with zarr.config.set({"zarr_bytes.gap": 5}), pytest.raises(ValueError, match=names):
            reading_cost(LocalStore("a"))


class TestNamesThatAreNoSettings:
    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("partial_read", "partial_reads"),
            ("partial_write", "partial_writes"),
            ("fill_value", "fill_values"),
            ("gap.locale", "gap.local"),
            ("largest_requests.remote", "largest_request.remote"),
            ("gap.local.bytes", "gap.local"),
        ],
    )
    def test_a_sentence_names_the_nearest(self, name, nearest):
        *sections, key = f"zarr_bytes.{name}".split(".")
        value = {key: 1}
        for section in reversed(sections):
            value = {section: value}
        with zarr.config.set(value):
            assert unknown_settings() == [
                f"zarr_bytes.{name} is no setting; the nearest is zarr_bytes.{nearest}"
            ]

    def test_a_sentence_names_all_where_none_is_near(self):
        with zarr.config.set({"zarr_bytes.xyz": 1}):
            (sentence,) = unknown_settings()
        assert sentence == f"zarr_bytes.xyz is no setting; these are: {', '.join(SETTINGS)}"

    def test_settings_are_none_of_them_in_either_spelling(self):
        hyphens = {name.replace("_", "-"): value for name, value in SETTINGS.items()}
        for values in (SETTINGS, hyphens, {"zarr_bytes.gap": 5}):
            with zarr.config.set(values):
                assert unknown_settings() == []

    def test_a_warning_when_an_array_is_read_once_for_each_key(self, tmp_path):
        values = np.arange(20_000.0).reshape(100, 200)
        zarr.create_array(tmp_path, data=values, chunks=values.shape, compressors=None)
        array = zarr.open_array(tmp_path)
        with zarr.config.set({"zarr_bytes.partial_read": False}):
            with pytest.warns(UserWarning, match="partial_read is no .* zarr_bytes.partial_reads;"):
                assert array[7, 8] == values[7, 8]
            assert array[9, 9] == values[9, 9]  # again would be an error
            with (
                zarr.config.set({"zarr_bytes.gap.locale": 5}),
                pytest.warns(UserWarning, match=r"gap\.locale is no setting; .* has no effect"),
            ):
                assert array[7, 8] == values[7, 8]

    def test_a_warning_from_each_place_that_asks_for_a_setting(self):
        asked = (lambda: reading_cost(MemoryStore()), fill_values_are_lenient)
        for number, ask in enumerate((*asked, partial_writes_enabled)):
            with zarr.config.set({f"zarr_bytes.a{number}": 1}):
                with pytest.warns(UserWarning, match=rf"zarr_bytes\.a{number} is no setting"):
                    ask()
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    ask()

    def test_from_the_environment(self):
        sentence = "zarr_bytes.partial_read is no setting; the nearest is zarr_bytes.partial_reads"
        with in_environment(ZARR_ZARR_BYTES__PARTIAL_READ="False"):
            assert unknown_settings() == [sentence]
            with pytest.warns(UserWarning, match=sentence):
                assert reading_cost(LocalStore("a")) == DEFAULTS["local"]


def test_a_hyphen_is_as_good_as_an_underscore():
    with zarr.config.set({"zarr_bytes": {"partial-reads": False}}):
        assert reading_cost(LocalStore("a")) is None
    with zarr.config.set({"zarr_bytes": {"fill-values": "lenient"}}):
        assert fill_values_are_lenient()
