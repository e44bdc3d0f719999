"""Hostile hierarchies, and a program that runs the commands on them and says how each ended.

    python hostile.py FOLDER CASE...

Each case is made anew for every command. A command that takes longer than it may is interrupted,
and the memory of the process is bounded. One line of JSON for each command says how it ended.
"""

import faulthandler
import json
import os
import shutil
import signal
import sys
import unicodedata
import warnings
import zipfile
from pathlib import Path

SECONDS = 20  # of computing, for one command
PATIENCE = 120  # seconds by the clock, after which a command waits for something
MEMORY = 4 * 2**30  # bytes of addresses, of which most are never used

ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [2],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "attributes": {},
}
DRAFT = ARRAY | {"codecs": [{"name": "endian", "configuration": {"endian": "little"}}]}
GROUP = {"zarr_format": 3, "node_type": "group", "attributes": {}}
TERMINAL = "\x1b[31m\x9b2J\u202e\u2066\x07\r\x00\x7f\n\u2028"

STORED = {  # the commands that are given a store
    "check": ["check"],
    "check --json": ["check", "--json"],
    "migrate --dry-run": ["migrate", "--dry-run"],
    "migrate": ["migrate", "--yes"],
}


def write(folder, document=ARRAY, chunk=b"\1\0\2\0"):
    """A node at `folder`; `document` is a dict, or the text or bytes of the file."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(document, dict):
        document = json.dumps(document)
    if isinstance(document, str):
        document = document.encode("utf-8", "surrogatepass")
    (folder / "zarr.json").write_bytes(document)
    if chunk is not None and b'"array"' in document:
        (folder / "c").mkdir(exist_ok=True)
        (folder / "c/0").write_bytes(chunk)


def nested(depth, inner="0"):
    return "[" * depth + inner + "]" * depth


def text_of(**members):
    """An array's document whose `members` are JSON texts."""
    text = json.dumps(ARRAY)
    for name, value in members.items():
        text = text.replace(f'"{name}": {json.dumps(ARRAY[name])}', f'"{name}": {value}')
    return text


def _document(**members):
    return lambda root: write(root, ARRAY | members)


def _text(text):
    return lambda root: write(root, text)


def _deep_groups(root):
    """Groups 1,200 deep in a zip: no folder has so long a path."""
    with zipfile.ZipFile(root.with_suffix(".zip"), "w") as archive:
        for depth in range(1200):
            document = GROUP if depth < 1199 else ARRAY
            archive.writestr("g/" * depth + "zarr.json", json.dumps(document))


def _names_in_a_zip(root):
    with zipfile.ZipFile(root.with_suffix(".zip"), "w") as archive:
        archive.writestr("zarr.json", json.dumps(GROUP))
        for name in (
            "/abs",
            "../up",
            "a/../../up",
            "./dot",
            "C:",
            "a//b",
            "\\back",
            TERMINAL.replace("\x00", ""),
        ):
            archive.writestr(f"{name}/zarr.json", json.dumps(DRAFT))
            archive.writestr(f"{name}/c/0", b"\1\0\2\0")


def _hostile_names(root):
    write(root, GROUP)
    for name in (TERMINAL.replace("\x00", ""), "..x", "-rf", "[red]x", "a b", "x" * 200):
        write(root / name, DRAFT)
    write(Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")), DRAFT)


def _hostile_texts(root):
    write(root, GROUP | {"attributes": {TERMINAL: TERMINAL}})
    for n, member in enumerate(ARRAY):
        write(root / f"a{n}", ARRAY | {member: TERMINAL})
        write(root / f"b{n}", ARRAY | {member: {"name": TERMINAL, "configuration": {TERMINAL: 1}}})
        write(root / f"c{n}", ARRAY | {member: [{"name": "bytes", "configuration": TERMINAL}]})
    write(root / "lone", json.dumps(ARRAY | {"data_type": "\ud800", "fill_value": "\udfff"}))


def _wrong_types(root):
    write(root, GROUP)
    wrong = [
        None,
        True,
        -1,
        2.5,
        10**400,
        -(10**1500),
        "x",
        "",
        [],
        {},
        [[]],
        [None],
        {"name": None},
    ]
    for n, (member, value) in enumerate((m, v) for m in ARRAY for v in wrong):
        write(root / f"{n}", ARRAY | {member: value}, chunk=None)
    for n, (member, value) in enumerate(
        (m, v) for m in ("chunk_grid", "chunk_key_encoding") for v in wrong
    ):
        write(root / f"c{n}", ARRAY | {member: ARRAY[member] | {"configuration": value}})
        inner = dict.fromkeys(ARRAY[member]["configuration"], value)
        write(root / f"d{n}", ARRAY | {member: ARRAY[member] | {"configuration": inner}})
        write(root / f"e{n}", ARRAY | {"codecs": [{"name": "bytes", "configuration": value}]})
        write(root / f"f{n}", ARRAY | {"codecs": [value, *ARRAY["codecs"]]})


def _not_documents(root):
    write(root, GROUP)
    texts = [
        "",
        " ",
        "null",
        "5",
        '"x"',
        "[]",
        "{}",
        "{",
        "NaN",
        '{"a": NaN}',
        "\x00" * 50,
        "\ufeff{}",
    ]
    texts += [json.dumps(ARRAY).encode(code) for code in ("utf-16", "utf-32", "utf-8-sig")]
    texts += [
        b"\xff\xfe\xfd",
        '{"node_type": "array"}',
        '{"zarr_format": 3}',
        '{"zarr_format": 99}',
    ]
    texts += [text_of(fill_value="1" * 5000), text_of(shape="[1e400]"), text_of(shape="[NaN]")]
    for n, text in enumerate(texts):
        write(root / f"{n}", text)


def _links(root):
    """Links that lead back, twice over at every level: a walk by names would take 2 ** 12 paths."""
    write(root, GROUP)
    folder = root
    for _ in range(12):
        write(folder / "a", GROUP)
        (folder / "b").symlink_to("a")
        folder = folder / "a"
    write(folder / "x", DRAFT)
    (folder / "root").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "gone").symlink_to("nowhere")


def _no_files(root):
    """FIFOs, devices, folders and links to nowhere, where documents and chunks should be."""
    write(root, GROUP)
    for place in ("zarr.json", "c/0"):
        for kind in ("fifo", "device", "folder", "loop"):
            node = root / f"{kind}-{place[0]}"
            write(node)
            path = node / place
            path.unlink()
            if kind == "fifo":
                os.mkfifo(path)
            elif kind == "folder":
                path.mkdir()
            else:
                path.symlink_to("/dev/zero" if kind == "device" else path.name)


def _consolidated(metadata):
    inline = {"kind": "inline", "must_understand": False, "metadata": metadata}

    def make(root):
        write(root, GROUP | {"consolidated_metadata": inline})
        write(root / "a", DRAFT)

    return make


def _many_arrays(root):
    write(root, GROUP)
    for n in range(100):
        write(root / f"g{n % 7}/a{n}", DRAFT if n % 3 else ARRAY)


CASES = {
    "deep attributes": _text(text_of(attributes='{"a": ' + nested(1400) + "}")),
    "deep data type": _text(
        text_of(data_type='{"name": "x", "configuration": ' + nested(1400) + "}")
    ),
    "deep fill value": _text(text_of(fill_value=nested(1400))),
    "deep codecs": _text(text_of(codecs=nested(1400))),
    "very deep": _text(text_of(attributes='{"a": ' + nested(100_000) + "}")),
    "shape of 400 digits": _document(
        shape=[10**400],
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**399 + 1]}},
    ),
    "number of 5000 digits": _text(text_of(shape="[1" + "0" * 5000 + "]")),
    "sixty dimensions": _document(
        shape=[10**300] * 60,
        chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1] * 60}},
    ),
    "a chunk of 10**18 elements": _document(
        shape=[10**18], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**18]}}
    ),
    "10**8 chunks": _document(
        shape=[10**8], chunk_grid={"name": "regular", "configuration": {"chunk_shape": [1]}}
    ),
    "a raw type of 10**18 bits": _document(data_type=f"r{8 * 10**17}", fill_value=[0]),
    "deep groups": _deep_groups,
    "names in a zip": _names_in_a_zip,
    "hostile names": _hostile_names,
    "hostile texts": _hostile_texts,
    "wrong types": _wrong_types,
    "not documents": _not_documents,
    "links": _links,
    "no files": _no_files,
    "consolidated, and missing": _consolidated({"b": ARRAY, "g/c": ARRAY, "../d": ARRAY}),
    "consolidated, of wrong types": _consolidated({"a": 5, "b": None, TERMINAL: [], "": ARRAY}),
    "consolidated, no object": _consolidated(5),
    "many arrays": _many_arrays,
    "an empty folder": Path.mkdir,
    "nothing": lambda root: None,
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
    """What a command did that no hierarchy may make it do."""
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
    """Not an error that a command might take for one of the store."""


def _interrupt(number, frame):
    raise TookTooLong(f"longer than {SECONDS} seconds")


def main(folder, *names):
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in names:
        for command, arguments in STORED.items():
            root, archive = Path(folder, "a.zarr"), Path(folder, "a.zip")
            archive.unlink(missing_ok=True)  # of the last command, also of one that has died
            shutil.rmtree(root, ignore_errors=True)
            CASES[name](root)
            location = str(archive if archive.exists() else root)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            ended = run([*arguments, location])
            faulthandler.cancel_dump_traceback_later()
            found = list(faults_of(arguments, ended))
            print(json.dumps([name, command, found, ended["output"][-500:]]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
