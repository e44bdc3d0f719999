"""Installing the package is all there is to do. In real virtual environments, as a user has them.

Each environment sees the packages of the one that runs the tests (zarr and what it needs), but not
this package, so that nothing is downloaded and installing it is what makes the difference.
"""

import configparser
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import zarr
from documents import document_of, text_of
from packaging.version import Version

from zarr_bytes.data_type import DATA_TYPES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LOADS_DATA_TYPES = Version(zarr.__version__) >= Version("3.4")

# What plain zarr code gets, with warnings as errors: the classes, and when they are imported.
DOCUMENT = text_of(document_of("float32", [1], fill_value="0x7f800001", endian="big"))
PROBE = f"""
import json, sys
import zarr
from zarr.buffer.cpu import Buffer
imported_by_zarr = "zarr_bytes" in sys.modules
store = zarr.storage.MemoryStore({{"zarr.json": Buffer.from_bytes({DOCUMENT})}})
array = zarr.open_array(store, mode="r")
of_format_2 = zarr.create_array({{}}, shape=1, dtype=">f4", compressors=None, zarr_format=2)
print(json.dumps({{
    "imported by zarr": imported_by_zarr,
    "codec": type(array.metadata.codecs[0]).__module__,
    "pipeline": type(array._async_array.codec_pipeline).__module__,
    "format 2": type(of_format_2._async_array.codec_pipeline).__module__,
    "data type": type(array.metadata.data_type).__module__,
    "fill value": array[:].tobytes().hex(),
}}))
"""
OWN = "zarr.codecs.bytes.BytesCodec"
SET_OWN = f"import zarr; zarr.config.set({{'codecs.bytes': {OWN!r}}})\n"
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


def run(*command, **environment):
    """Output of a command, and its text on stderr."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ZARR_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


class Environment:
    """A virtual environment in `path`, with zarr and without this package."""

    def __init__(self, path, *, system_site_packages=False):
        venv.create(path, with_pip=False, system_site_packages=system_site_packages)
        scripts = sysconfig.get_path("scripts", "venv", vars={"base": str(path)})
        self.python = Path(scripts) / Path(sys.executable).name
        shared = path / "shared"
        shared.mkdir()
        for name in ("purelib", "platlib"):
            for entry in Path(sysconfig.get_path(name)).iterdir():
                link = shared / entry.name
                if "zarr_bytes" not in entry.name and not link.exists():
                    link.symlink_to(entry)
        self.site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(path)}))
        (self.site / "shared.pth").write_text(f"{shared}\n")
        self.variables = {}

    def pip(self, *arguments):
        pip = (sys.executable, "-m", "pip", "--python", self.python, "--no-cache-dir")
        run(*pip, *arguments, **self.variables)

    def install(self, *arguments):
        self.pip("install", *OFFLINE, *arguments)

    def run(self, code, **environment):
        """What code prints, with warnings as errors, and what it leaves on stderr."""
        return run(self.python, "-W", "error", "-c", code, **self.variables, **environment)

    def probe(self, first="", **environment):
        printed, said = self.run(first + PROBE, **environment)
        assert said == ""
        return json.loads(printed)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", *OFFLINE, "--wheel-dir", folder, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(wheel)
    return environment


STRICT = """
from zarr_bytes.data_type import DATA_TYPES
try:
    DATA_TYPES["bool"]().from_json_scalar(1, zarr_format=3)
except TypeError:
    pass
else:
    raise SystemExit("taken")
"""
HINT = "zarr-bytes is installed and zarr does not use it"
OURS = {"codec": "zarr_bytes.codec", **dict.fromkeys(["pipeline", "format 2"], "zarr_bytes")}
ZARRS = {"codec": "zarr.codecs.bytes"}
ZARRS |= dict.fromkeys(["pipeline", "format 2"], "zarr.core.codec_pipeline")
OUR_TYPES = {"data type": "zarr_bytes.data_type.core", "fill value": "0100807f"}


@pytest.mark.parametrize(
    ("first", "environment", "expected"),
    [
        ("", {}, OURS | {"imported by zarr": False}),
        ("" if LOADS_DATA_TYPES else "import zarr_bytes\n", {}, OUR_TYPES),
        ("", {"ZARR_CODECS__BYTES": OWN}, ZARRS),
        (SET_OWN, {}, {"codec": "zarr.codecs.bytes"}),
        (STRICT, {"ZARR_ZARR_BYTES__FILL_VALUES": "strict"}, OURS),
    ],
    ids=["codec", "data types", "off by a variable", "off in code", "strict"],
)
def test_plain_zarr_code_gets_the_codec_that_is_installed_or_chosen(
    installed, first, environment, expected
):
    assert installed.probe(first, **environment).items() >= expected.items()


def test_importing_is_silent_where_zarr_finds_the_configuration_file(installed):
    assert installed.run("import zarr_bytes") == ("", "")


def into_a_folder(path, wheel):
    """`pip install --target`"""
    environment = Environment(path / "env")
    environment.install("--target", path / "folder", wheel)
    environment.variables = {"PYTHONPATH": str(path / "folder")}
    return environment


def for_the_user(path, wheel):
    """`pip install --user`"""
    environment = Environment(path / "env", system_site_packages=True)
    environment.variables = {"PYTHONUSERBASE": str(path / "user")}
    environment.install("--user", wheel)
    return environment


def below_a_virtual_environment(path, wheel):
    """One that sees the packages of another prefix, as `--system-site-packages` and `uv --with`."""
    outer, environment = Environment(path / "outer"), Environment(path / "env")
    outer.install(wheel)
    (environment.site / "outer.pth").write_text(f"{outer.site}\n")
    return environment


@pytest.mark.parametrize("install", [into_a_folder, for_the_user, below_a_virtual_environment])
def test_importing_warns_once_where_zarr_does_not_find_the_configuration_file(
    tmp_path, wheel, install
):
    environment = install(tmp_path, wheel)
    printed, said = environment.run(PROBE)  # which does not import the package
    assert json.loads(printed)["codec"] == "zarr.codecs.bytes"
    assert environment.run("import zarr_bytes, zarr, zarr_bytes") == ("", said)
    assert said.startswith(HINT)
    assert said.count(HINT) == 1
    code = "import logging; logging.getLogger('zarr_bytes').setLevel('ERROR')\n"
    assert environment.run(f"{code}import zarr_bytes") == ("", "")
    (line,) = re.findall(r"zarr\.config\.set\(.*\)", said)
    variables = dict(re.findall(r"(ZARR_\w+)=(\S+)", said))
    for first, chosen in (
        (f"import zarr; {line}; import zarr_bytes\n", {}),
        (f"{code}import zarr_bytes, zarr; {line}\n", {}),
        ("import zarr_bytes\n", variables),
    ):
        assert environment.probe(first, **chosen).items() >= OURS.items()


def test_a_process_that_imported_zarr_before_the_installation_is_told_to_restart(tmp_path, wheel):
    """And the line that it is told meanwhile works there, for arrays opened from then on."""
    environment = Environment(tmp_path)
    pip = (sys.executable, "-m", "pip", "--python", environment.python, "--no-cache-dir")
    install = [str(part) for part in (*pip, "install", *OFFLINE, wheel)]
    code = f"""
import contextlib, io, json, re, subprocess, sys
with contextlib.redirect_stdout(io.StringIO()):
    exec({PROBE!r})  # zarr has loaded all its entry points
subprocess.run({install!r}, check=True, capture_output=True)
import logging
said = io.StringIO()
logging.getLogger("zarr_bytes").addHandler(logging.StreamHandler(said))
import zarr_bytes
status = str(zarr_bytes.status())
with contextlib.redirect_stdout(io.StringIO()) as unharmed:
    exec({PROBE!r})
(line,) = re.findall(r"zarr\\.config\\.set\\(.*\\)", said.getvalue())
exec(line)
with contextlib.redirect_stdout(io.StringIO()) as chosen:
    exec({PROBE!r})
found = {{"unharmed": json.loads(unharmed.getvalue()), "chosen": json.loads(chosen.getvalue())}}
print(json.dumps(found | {{"said": said.getvalue(), "status": status}}))
"""
    printed, _ = environment.run(code, COLUMNS="400")
    found = json.loads(printed)
    assert found["unharmed"].items() >= ZARRS.items()
    assert found["said"].startswith(f"{HINT}: restart Python: zarr read its configuration before")
    assert "not where" not in found["said"]
    told = found["status"].partition("\n\nWhat to do\n")[2]
    assert told == "Restart Python: zarr read its configuration before zarr-bytes was installed."
    assert found["chosen"].items() >= OURS.items()
    assert environment.probe()["codec"] == "zarr_bytes.codec"  # once restarted


@pytest.fixture(scope="module")
def without_the_file(tmp_path_factory, wheel):
    return into_a_folder(tmp_path_factory.mktemp("without"), wheel)


@pytest.mark.parametrize("how", ["code", "ZARR_CODECS__BYTES", "ZARR_CONFIG"])
def test_importing_is_silent_where_the_user_chose_zarrs_codec(without_the_file, tmp_path, how):
    (tmp_path / "own.yaml").write_text(f"codecs: {{bytes: {OWN}}}")
    known = {"ZARR_CODECS__BYTES": OWN, "ZARR_CONFIG": str(tmp_path / "own.yaml")}
    variables = {name: value for name, value in known.items() if name == how}
    code = SET_OWN if how == "code" else ""
    found = without_the_file.probe(f"{code}import zarr_bytes\n", **variables)
    assert found["codec"] == "zarr.codecs.bytes"


def test_a_configuration_file_in_the_home_folder_activates_the_codec(without_the_file, tmp_path):
    (path,) = Path(without_the_file.variables["PYTHONPATH"]).rglob("zarr-bytes.yaml")
    home = tmp_path / ".config/zarr"
    home.mkdir(parents=True)
    (home / path.name).write_text(path.read_text())
    found = without_the_file.probe("import zarr_bytes\n", HOME=str(tmp_path))
    assert found["codec"] == "zarr_bytes.codec"
    code = "import zarr_bytes; print(zarr_bytes.status())"
    printed, _ = without_the_file.run(code)
    assert printed.startswith("Not active: ")
    variables = dict(re.findall(r"export (ZARR_\w+)=(\S+)", printed))
    assert without_the_file.run(code, COLUMNS="200", **variables)[0].startswith("Active: ")
    assert without_the_file.probe(**variables)["pipeline"] == "zarr_bytes"


def test_folders_with_the_names_of_packages_are_not_imported(tmp_path, wheel):
    """As where `python -m zarr_bytes` is run beside them."""
    environment = Environment(tmp_path)
    code = "from zarr_bytes.__main__ import main; main(['status'])"
    for link in (tmp_path / "shared").iterdir():
        if link.name.startswith(("ml_dtypes", "rich")):
            link.unlink()
    environment.install(wheel)
    expected = environment.run(code)
    for name in "ml_dtypes", "rich":
        (tmp_path / "here" / name).mkdir(parents=True)
    assert environment.run(code, PYTHONPATH=str(tmp_path / "here")) == expected


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_uninstalling_leaves_zarr_as_it_was(tmp_path, wheel, how):
    environment = Environment(tmp_path)
    before = environment.probe()
    assert before["codec"] == "zarr.codecs.bytes"
    assert before["fill value"] == "0100c07f"  # a NaN with other bits than 0x7f800001
    environment.install(*([wheel] if how == "wheel" else ["--editable", ROOT]))
    assert (tmp_path / "etc/zarr/zarr-bytes.yaml").is_file()
    assert environment.probe()["codec"] == "zarr_bytes.codec"
    environment.pip("uninstall", "--yes", "zarr-bytes")
    assert not (tmp_path / "etc/zarr/zarr-bytes.yaml").exists()
    assert environment.probe() == before


def test_a_configuration_file_without_the_package_is_an_error_that_names_the_pipeline(tmp_path):
    """As the page about installing says."""
    environment = Environment(tmp_path)
    file = tmp_path / "etc/zarr/zarr-bytes.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes((ROOT / "src/etc/zarr/zarr-bytes.yaml").read_bytes())
    code = "try: zarr.create_array({}, shape=3, dtype='i4')\nexcept Exception as e: print(e)"
    printed, _ = environment.run(f"import zarr\n{code}")
    assert "'zarr_bytes.BatchedBytesPipeline' not found in registered pipelines" in printed


@pytest.fixture
def in_wheel(wheel):
    """The names in the wheel, and the texts of its metadata by their names."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        texts = {Path(n).name: archive.read(n).decode() for n in names if ".dist-info/" in n}
    return names, texts


def test_the_wheel_declares_what_the_package_registers(in_wheel):
    names, texts = in_wheel
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(texts["entry_points.txt"])
    assert set(parser["zarr.codecs"]) == {"bytes", "endian"}
    ((name, entry),) = parser["zarr.data_type"].items()
    assert EntryPoint(name, entry, "").load() is DATA_TYPES[name]
    # By the package itself: two threads that load parts of it may wait for one another.
    groups = [parser[name].values() for name in parser.sections() if name.startswith("zarr.")]
    assert {entry.partition(":")[0] for entries in groups for entry in entries} == {"zarr_bytes"}
    assert all(data_type._zarr_v3_name == name for name, data_type in DATA_TYPES.items())
    assert ("struct" in DATA_TYPES) == (Version(zarr.__version__) >= Version("3.2"))
    assert "zarr_bytes/py.typed" in names


def test_the_readme_of_an_index_links_to_the_files_of_the_version_and_is_the_same_otherwise(
    in_wheel,
):
    metadata = HeaderParser().parsestr(in_wheel[1]["METADATA"])
    urls = [url.partition(", ")[0] for url in metadata.get_all("Project-URL")]
    assert urls == ["Documentation", "Source", "Changelog", "Issues"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    home = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    link = re.compile(r'((?:(?<=\]\()|(?<=href=")|(?<=src=")|(?<=srcset="))[^)"]+)')
    shown = link.split(metadata.get_payload().rstrip())
    written = link.split((ROOT / "README.md").read_text("utf-8").rstrip())
    assert shown[::2] == written[::2]
    files = [target for target in written[1::2] if "://" not in target and target[0] != "#"]
    assert len(files) > 5
    for target, expected in zip(shown[1::2], written[1::2], strict=True):
        file = expected.partition("#")[0]
        kind = "raw" if file.endswith((".png", ".svg")) else "blob"
        there = f"{home}/{kind}/v{project['project']['version']}/{expected}"
        assert target == (there if expected in files else expected)
        assert expected not in files or (ROOT / file).is_file()
