"""Numbers and texts in what commands print."""

from zarr_bytes.commands.result import (
    Table,
    count_with_noun,
    in_largest_exact_unit,
    percentage,
    short_json,
    thousands_or_power_of_ten,
    truncate,
)


def test_sizes_have_their_largest_whole_unit_and_huge_numbers_their_magnitude():
    sizes = {0: "0 bytes", 1023: "1,023 bytes", 1025 * 2**10: "1,025 KiB", 2**40: "1,024 GiB"}
    assert {size: in_largest_exact_unit(size) for size in sizes} == sizes
    counts = {10**18 - 1: ",".join(["999"] * 6), 10**18: "about 10^18", 4 * 10**18: "about 10^19"}
    counts[-(10**5000)] = "about -10^5000"  # of which Python writes no digits
    assert {count: thousands_or_power_of_ten(count) for count in counts} == counts
    things = {0: "0 chunks", 1: "1 chunk", 2000: "2,000 chunks"}
    assert {count: count_with_noun(count, "chunk") for count in things} == things


def test_a_percentage_is_nothing_or_everything_only_where_that_is_so():
    shares = {0: "0 %", 1: "less than 1 %", 99: "less than 1 %", 100: "1 %", 249: "2 %"}
    shares |= {250: "3 %", 9900: "99 %", 9901: "more than 99 %", 9999: "more than 99 %"}
    shares |= {10_000: "100 %", 420_000: "4,200 %"}
    assert {part: percentage(part, 10_000) for part in shares} == shares
    assert percentage(0, 0) == "0 %"
    assert percentage(10**30 - 1, 10**30) == "more than 99 %"


def test_a_text_that_is_longer_than_it_may_be_is_cut():
    assert [truncate("x" * n, 9) for n in (9, 10)] == ["xxxxxxxxx", "xxxxx ..."]
    assert short_json([[[[[[[[[[]]]]]]]]]], 9) == "[[[[[ ..."
    ((cell, _),) = Table(["x" * 401], []).styled_rows_with_header()[0]
    assert cell == "x" * 396 + " ..."
