"""Installing the package is all there is to do. In real virtual environments, as a user has them.

Each environment sees the packages of the one that runs the tests (zarr and what it needs), but not
this package, so that nothing is downloaded and installing it is what makes the difference.
"""

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
from pathlib import Path

import pytest
import zarr
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOADS_DATA_TYPES = Version(zarr.__version__) >= Version("3.4")

# What plain zarr code gets, with warnings as errors: the classes, and when they are imported.
PROBE = """
import json, sys
import zarr
from zarr.buffer.cpu import Buffer
imported_by_zarr = "zarr_bytes" in sys.modules
document = {
    "zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
    "chunk_key_encoding": {"name": "default"}, "fill_value": "0x7f800001",
    "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
}
store = zarr.storage.MemoryStore({"zarr.json": Buffer.from_bytes(json.dumps(document).encode())})
array = zarr.open_array(store, mode="r")
print(json.dumps({
    "imported by zarr": imported_by_zarr,
    "codec": type(array.metadata.codecs[0]).__module__,
    "data type": type(array.metadata.data_type).__module__,
    "fill value": array[:].tobytes().hex(),
}))
"""


def run(*command, **environment):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ZARR_", "PYTHON"))}
    done = subprocess.run(
        [str(part) for part in command],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Environment:
    """A virtual environment in `path`, with zarr and without this package."""

    def __init__(self, path):
        venv.create(path, with_pip=False)
        scripts = sysconfig.get_path("scripts", "venv", vars={"base": str(path)})
        self.prefix = path
        self.python = Path(scripts) / Path(sys.executable).name
        shared = path / "shared"
        shared.mkdir()
        for name in ("purelib", "platlib"):
            for entry in Path(sysconfig.get_path(name)).iterdir():
                link = shared / entry.name
                if "zarr_bytes" not in entry.name and not link.exists():
                    link.symlink_to(entry)
        site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(path)}))
        (site / "shared.pth").write_text(f"{shared}\n")

    def pip(self, *arguments):
        run(sys.executable, "-m", "pip", "--python", self.python, "--no-cache-dir", *arguments)

    def install(self, *arguments):
        self.pip("install", "--no-index", "--no-deps", "--no-build-isolation", *arguments)

    def probe(self, first="", **environment):
        return json.loads(run(self.python, "-W", "error", "-c", first + PROBE, **environment))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(wheel)
    return environment


def test_plain_zarr_code_gets_the_codec(installed):
    assert installed.probe()["codec"] == "zarr_bytes.codec"


def test_importing_zarr_does_not_import_this_package(installed):
    assert installed.probe()["imported by zarr"] is False


def test_data_types_come_with_zarr_3_4_and_before_that_with_one_import(installed):
    found = installed.probe(first="" if LOADS_DATA_TYPES else "import zarr_bytes\n")
    assert found["data type"] == "zarr_bytes.data_type.core"
    assert found["fill value"] == "0100807f"


def test_an_environment_variable_switches_the_codec_off(installed):
    found = installed.probe(ZARR_CODECS__BYTES="zarr.codecs.bytes.BytesCodec")
    assert found["codec"] == "zarr.codecs.bytes"


def test_the_configuration_in_code_switches_the_codec_off(installed):
    off = 'import zarr; zarr.config.set({"codecs.bytes": "zarr.codecs.bytes.BytesCodec"})\n'
    assert installed.probe(first=off)["codec"] == "zarr.codecs.bytes"


def test_an_environment_variable_makes_fill_values_lenient(installed):
    read = (
        "import warnings, zarr_bytes.data_type.core as d; warnings.simplefilter('ignore')\n"
        "assert d.Float32().from_json_scalar('1.5', zarr_format=3) == 1.5\n"
        "warnings.simplefilter('error')\n"
    )
    installed.probe(first=read, ZARR_ZARR_BYTES__FILL_VALUES="lenient")


def test_without_the_configuration_file_environment_variables_choose_the_codec(tmp_path, wheel):
    """As after `pip install --user`, which puts the file where zarr does not look."""
    environment = Environment(tmp_path)
    environment.install(wheel)
    (tmp_path / "etc/zarr/zarr-bytes.yaml").unlink()
    assert environment.probe()["codec"] == "zarr.codecs.bytes"
    found = environment.probe(ZARR_CODECS__BYTES="zarr_bytes.codec.BytesCodec")
    assert found["codec"] == "zarr_bytes.codec"


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


def test_the_wheel_declares_what_the_package_registers(wheel):
    import configparser

    from zarr_bytes.data_type.names import DATA_TYPES
    from zarr_bytes.zarr_versions import HAS_STRUCT

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith("entry_points.txt"))
        text = archive.read(path).decode()
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(text)
    assert set(parser["zarr.codecs"]) == {"bytes", "endian"}
    declared = {name: entry.split(":") for name, entry in parser["zarr.data_type"].items()}
    for name, data_type in DATA_TYPES.items():
        assert declared.pop(name) == [data_type.__module__, data_type.__qualname__]
        assert data_type._zarr_v3_name == name
    assert set(declared) == (set() if HAS_STRUCT else {"struct"})  # zarr has it from 3.2 on
    assert "zarr_bytes/py.typed" in names


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return HeaderParser().parsestr(archive.read(path).decode())


class TestMetadata:
    """What an index shows of the package, away from its repository."""

    def test_links_of_the_readme_lead_to_the_files_of_the_version_and_the_rest_is_as_it_was(
        self, metadata
    ):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        home = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
        link = re.compile(r'((?:(?<=\]\()|(?<=href=")|(?<=src=")|(?<=srcset="))[^)"]+)')
        shown = link.split(metadata.get_payload().rstrip())
        written = link.split((ROOT / "README.md").read_text("utf-8").rstrip())
        assert shown[::2] == written[::2]
        files = []
        for target, expected in zip(shown[1::2], written[1::2], strict=True):
            if "://" in expected or expected.startswith("#"):
                assert target == expected
            else:
                files.append(expected.partition("#")[0])
                kind = "raw" if files[-1].endswith((".png", ".svg")) else "blob"
                version = project["project"]["version"]
                assert target == f"{home}/{kind}/v{version}/{expected}"
        assert len(files) > 5
        assert [path for path in files if not (ROOT / path).is_file()] == []

    def test_the_addresses_of_the_project_are_named(self, metadata):
        urls = dict(url.split(", ") for url in metadata.get_all("Project-URL"))
        assert list(urls) == ["Documentation", "Source", "Changelog", "Issues"]
        assert all(url.startswith("https://") for url in urls.values())
