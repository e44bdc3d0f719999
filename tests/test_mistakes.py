"""Each mistake of `mistakes.py` still fits the source, and the test that it names exists."""

import ast
import re
from functools import cache

import pytest
from mistakes import MISTAKES, PACKAGE, ROOT, MisfitError, Mistake, definitions

SOURCE = """\
LIMIT = 10


class Reader:
    def read(self, start, stop):
        def length():
            return stop - start

        return length()

    async def close(self):
        return None
"""


def mistake_in(function, before, after=""):
    return Mistake("reader.py", function, before, after, "test_reader.py::test_it", "It matters.")


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        ("LIMIT", "10", "11"),
        ("Reader", "async def", "def"),
        ("Reader.read", "return length()", "pass"),
        ("Reader.read.length", "stop - start", "stop"),
        ("Reader.close", "return None", "pass"),
    ],
)
def test_an_edit_is_made_in_its_function_wherever_that_has_moved(function, before, after):
    expected = SOURCE.replace(before, after, 1)
    assert mistake_in(function, before, after).edited(SOURCE) == expected
    moved = "import os\n\n\n"
    assert mistake_in(function, before, after).edited(moved + SOURCE) == moved + expected


@pytest.mark.parametrize(
    ("source", "function", "before", "says"),
    [
        (SOURCE, "Reader.fetch", "stop", "reader.py has no Reader.fetch"),
        (SOURCE, "read", "stop", "reader.py has no read,"),
        (2 * SOURCE, "Reader.read", "stop", "reader.py has Reader.read 2 times"),
        (SOURCE, "Reader.read", "count", "Reader.read in reader.py has no text 'count'"),
        (SOURCE, "Reader.read", "start", "Reader.read in reader.py has the text 'start' 2 times"),
    ],
)
def test_an_edit_that_does_not_fit_is_an_error_that_says_what_is_gone(
    source, function, before, says
):
    with pytest.raises(MisfitError, match=f"^{re.escape(says)}") as caught:
        mistake_in(function, before).edited(source)
    assert repr(before) in str(caught.value)


@cache
def source_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_each_mistake_fits_the_source_and_names_one_test(mistake):
    source = source_of(ROOT / PACKAGE / mistake.module)
    changed = mistake.edited(source)
    assert changed != source
    first, last = mistake.lines_in(source)
    edited = changed.splitlines()[first : last + changed.count("\n") - source.count("\n")]
    is_indented = edited[0].startswith(" ")
    ast.parse("\n".join(["if True:"] * is_indented + edited))  # not the whole module, once for each
    path, _, test = mistake.test.partition("::")
    name = test.partition("[")[0].replace("::", ".")
    number = len(definitions(source_of(ROOT / "tests" / path), name))
    assert number == 1, f"{mistake.name}: there are {number} tests {mistake.test}"
