"""Hostile hierarchies, and a program that runs the commands on them and says how each ended.

    python hostile.py FOLDER

Each case is made anew for every command. A command that takes longer than it may is interrupted,
and the memory of the process is bounded. One line of JSON for each command says how it ended.
"""

import faulthandler
import json
import os
import signal
import sys
import unicodedata
import warnings
import zipfile
from itertools import product
from pathlib import Path

from documents import ARRAY, DRAFT, GROUP, consolidated, regular, with_text, write

SECONDS = 20  # of computing, for one command
PATIENCE = 120  # seconds by the clock, after which a command waits for something
MEMORY = 4 * 2**30  # bytes of addresses, of which most are never used

TERMINAL = "\x1b[31m\x9b2J\u202e\u2066\x07\r\x00\x7f\n\u2028"
NAME = TERMINAL.replace("\x00", "")
CHUNK = b"\1\0\2\0"

STORED = {  # the commands that are given a store
    "check": ["check"],
    "check --json": ["check", "--json"],
}


def arrays(root, documents):
    """A group of arrays, each with one chunk."""
    write(root, GROUP)
    for number, document in enumerate(documents):
        write(root / f"{number}", document, c0=CHUNK)


def deep(root):
    for depth in (1400, 100_000):
        lists = "[" * depth + "0" + "]" * depth
        for member in ARRAY:
            write(root / f"{depth}/{member}", with_text(ARRAY, member, lists))
    codecs = "[]"
    for _ in range(1000):
        codecs = f'[{{"name":"sharding_indexed","configuration":{{"codecs":{codecs}}}}}]'
    write(root / "shards", with_text(ARRAY, "codecs", codecs))
    write(root, GROUP)


def deep_groups(root):
    """Groups 1,200 deep in a zip: no folder has so long a path."""
    with zipfile.ZipFile(root.with_suffix(".zip"), "w") as archive:
        for depth in range(1200):
            document = GROUP if depth < 1199 else ARRAY
            archive.writestr("g/" * depth + "zarr.json", json.dumps(document))


def sizes(root):
    grids = [
        ([10**400], [10**399 + 1]),
        ([10**300] * 60, [1] * 60),
        ([10**18], [10**18]),
        ([10**8], [1]),
    ]
    members = [{"shape": shape, "chunk_grid": regular(chunks)} for shape, chunks in grids]
    members += [{"data_type": f"r{8 * 10**17}", "fill_value": [0]}]
    digits = [with_text(ARRAY, "shape", f"[1{'0' * 5000}]")]
    arrays(root, [*(ARRAY | member for member in members), *digits])


def names_in_a_zip(root):
    names = ["/abs", "../up", "a/../../up", "./dot", "C:", "a//b", "\\back", NAME]
    with zipfile.ZipFile(root.with_suffix(".zip"), "w") as archive:
        archive.writestr("zarr.json", json.dumps(GROUP))
        for name in names:
            archive.writestr(f"{name}/zarr.json", json.dumps(DRAFT))
            archive.writestr(f"{name}/c/0", CHUNK)


def names(root):
    write(root, GROUP)
    for name in (NAME, "..x", "-rf", "[red]x", "a b", "x" * 200):
        write(root / name, DRAFT, c0=CHUNK)
    write(Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")), DRAFT)


def texts(root):
    documents = [ARRAY | {"data_type": "\ud800", "fill_value": "\udfff"}]
    for member in ARRAY:
        named = {"name": TERMINAL, "configuration": {TERMINAL: 1}}
        codecs = [{"name": "bytes", "configuration": TERMINAL}]
        documents += [ARRAY | {member: value} for value in (TERMINAL, named, codecs)]
    arrays(root, documents)
    write(root, GROUP | {"attributes": {TERMINAL: TERMINAL}})


def wrong_types(root):
    wrong = [None, True, -1, 2.5, 10**400, -(10**1500), "x", "", [], {}, [[]], [None]]
    wrong += [{"name": None}]
    documents = [ARRAY | {member: value} for member in ARRAY for value in wrong]
    for value in wrong:
        for member in ("chunk_grid", "chunk_key_encoding"):
            inner = dict.fromkeys(ARRAY[member]["configuration"], value)
            for configuration in (value, inner):
                documents += [ARRAY | {member: ARRAY[member] | {"configuration": configuration}}]
        documents += [ARRAY | {"codecs": [{"name": "bytes", "configuration": value}]}]
        documents += [ARRAY | {"codecs": [value, *ARRAY["codecs"]]}]
    arrays(root, documents)


def not_documents(root):
    texts = ["", " ", "null", "5", '"x"', "[]", "{}", "{", "NaN", '{"a": NaN}', "\x00" * 50]
    texts += ["\ufeff{}", b"\xff\xfe\xfd", '{"node_type": "array"}', '{"zarr_format": 99}']
    texts += [json.dumps(ARRAY).encode(code) for code in ("utf-16", "utf-32", "utf-8-sig")]
    members = [("fill_value", "1" * 5000), ("shape", "[1e400]"), ("shape", "[NaN]")]
    arrays(root, [*texts, *(with_text(ARRAY, *member) for member in members)])


def copies(root):
    write(root, consolidated({"a": 5, "b": None, TERMINAL: [], "": ARRAY, "../d": ARRAY}))
    write(root / "a", DRAFT)


CASES = {
    case.__name__: case
    for case in (
        *(deep, deep_groups, sizes, names_in_a_zip, names),
        *(texts, wrong_types, not_documents, copies),
    )
}


def run(arguments):
    """How a command ended; an interruption after `SECONDS` is an error like others."""
    from command import call

    signal.signal(signal.SIGPROF, _interrupt)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            result = call(*arguments)
        except (Exception, TookTooLong) as error:  # noqa: BLE001 -- whatever it is, it is shown
            return {"status": None, "error": repr(error), "output": "", "stdout": ""}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "status": result.exit_code,
        "error": None,
        "output": result.output,
        "stdout": result.stdout,
    }


def faults_of(arguments, ended):
    """Faults of a command that no hierarchy may cause."""
    if ended["error"] is not None:
        yield f"a traceback: {ended['error']}"
    elif ended["status"] not in (0, 1, 2):
        yield f"exit status {ended['status']}"
    shown = [
        c for c in ended["output"] if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")
    ]
    shown += [c for c in ended["output"] if unicodedata.category(c) in ("Zl", "Zp")]
    if shown:
        yield f"control characters in the output: {sorted(set(shown))}"
    if "--json" in arguments and ended["error"] is None and ended["status"] != 2:
        try:
            found = json.loads(ended["stdout"], parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError) as error:
            yield f"no JSON: {error!r}"
        else:
            if "conforms" in found and ended["status"] != (not found["conforms"]):
                yield f"exit status {ended['status']} of a store that conforms: {found['conforms']}"


class TookTooLong(BaseException):
    """An interruption, which no command takes for an error of the store."""


def _interrupt(number, frame):
    raise TookTooLong(f"longer than {SECONDS} seconds")


def main(folder):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for (name, case), (command, arguments) in product(CASES.items(), STORED.items()):
        root = Path(folder, name, command, "a.zarr")
        root.parent.mkdir(parents=True)
        case(root)
        archive = root.with_suffix(".zip")
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        ended = run([*arguments, str(archive if archive.exists() else root)])
        faulthandler.cancel_dump_traceback_later()
        found = list(faults_of(arguments, ended))
        print(json.dumps([name, command, found, ended["output"][-500:]]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
