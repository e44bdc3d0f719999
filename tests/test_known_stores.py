"""What is known of stores is asked again after a time, or at once after `forget`."""

import sys
import threading
from types import SimpleNamespace

import pytest

from zarr_bytes.io.known_stores import KnownStores


class Store:
    """As those of many libraries: without a hash."""

    __hash__ = None


@pytest.fixture
def clock():
    return SimpleNamespace(now=0)


@pytest.fixture
def known(clock, tmp_path):
    return KnownStores(tmp_path / "mounts", clock=lambda: clock.now)


@pytest.mark.parametrize("origin", ["", "a.org:80"])
def test_a_store_is_known_to_answer_ranges_for_ten_minutes_after_its_last_answer(
    known, clock, origin
):
    store, found = Store(), []
    known.record_range_answer(store, origin)
    for seconds, answers in (599, True), (599, False), (2, True), (601, False):
        clock.now += seconds
        found.append(known.is_known_to_answer_ranges(store, origin))
        if answers:
            known.record_range_answer(store, origin)
    assert found == [True, True, False, False]


def test_stores_of_one_host_share_what_is_known_of_its_ranges_and_others_do_not(known):
    first, second = Store(), Store()
    known.record_range_answer(first, "a.org:80")
    assert known.is_known_to_answer_ranges(second, "a.org:80")
    assert not known.is_known_to_answer_ranges(second, "a.org:81")
    known.record_range_answer(first, "")
    assert not known.is_known_to_answer_ranges(second, "")


def test_a_service_answers_ranges_whatever_is_forgotten(known, clock):
    store = Store()
    known.record_range_answer(store, "s3://")
    clock.now += 10**6
    known.forget()
    assert known.is_known_to_answer_ranges(store, "s3://")


def test_a_store_is_known_to_ignore_ranges_for_ten_minutes_and_its_user_is_warned_once(
    known, clock
):
    store, found = Store(), []
    for seconds in 0, 599, 2:
        clock.now += seconds
        found.append(known.is_known_to_ignore_ranges(store))
        if not found[-1]:
            found.append(known.record_whole_object_answer(store))
    assert found == [False, True, True, False, False]
    assert known.is_known_to_ignore_ranges(store)
    assert known.record_whole_object_answer(Store()), "another store is another one"


def test_one_of_many_threads_is_the_first_to_say_that_a_store_ignores_ranges(known):
    store, found, together = Store(), [], threading.Barrier(8, timeout=30)

    def record():
        together.wait()
        found.append(known.record_whole_object_answer(store))

    threads = [threading.Thread(target=record) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [False] * 7 + [True]


@pytest.mark.skipif(sys.platform == "win32", reason="a folder cannot be opened there")
def test_after_forget_everything_is_asked_again(known, tmp_path):
    store, other, root = Store(), Store(), str(tmp_path)
    known.record_range_answer(store, "")
    known.record_range_answer(store, "a.org")
    known.record_whole_object_answer(other)
    with (tmp_path / "file").open("w") as file:
        known.record_file_system_unless_known(file.fileno(), root)
    known.avoid_inline_reads(root)

    def facts():
        return (
            known.is_known_to_answer_ranges(store, ""),
            known.is_known_to_answer_ranges(store, "a.org"),
            known.is_known_to_ignore_ranges(other),
            known.file_system_is_known(root),
        )

    assert facts() == (True,) * 4
    known.forget()
    assert facts() == (False,) * 4
    assert known.record_whole_object_answer(other)


def test_a_thousand_hosts_and_stores_are_known_and_then_forgotten(known):
    stores = [Store() for _ in range(1002)]
    for number, store in enumerate(stores):
        known.record_range_answer(store, f"{number}.org")
        known.record_whole_object_answer(store)
    hosts = [known.is_known_to_answer_ranges(None, f"{n}.org") for n in range(1002)]
    assert hosts == [False] * 1001 + [True]
    assert [known.is_known_to_ignore_ranges(store) for store in stores] == hosts
