"""A stand-in for the typed configuration that zarr-python pull request 4101 proposes.

Its names are fixed: `set` raises for any other, and `get` too, or it gives the default. There is
one mapping of defaults, and neither paths nor a way to collect files. What files and the
environment have under other names is passed over.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

PROLOGUE = f"""
import sys
import zarr
sys.path.insert(0, {str(Path(__file__).parent)!r})
import typed_zarr
typed_zarr.replace_configuration({{kind!r}})
"""
KINDS = "get raises", "get gives the default", "takes other names"


class TypedConfig:
    """Values by name, of the names in the defaults; `codecs` takes others."""

    def __init__(self, defaults, found, kind):
        self.defaults, self._kind = defaults, kind
        self._values = {n: value for n, value in leaves(found) if self._is_known(n)}

    def _is_known(self, name):
        if self._kind == "takes other names":
            return True
        section, _, key = name.partition(".")
        found = self.defaults.get(section, self)
        return section == "codecs" or (found is not self and (not key or key in found))

    def get(self, name, *default):
        prefix = f"{name}."
        section = {
            n.removeprefix(prefix): v for n, v in self._values.items() if n.startswith(prefix)
        }
        if name in self._values or section:
            return self._values.get(name, section)
        if default and self._kind != "get raises":
            return default[0]
        raise KeyError(f"{name!r} is not a valid configuration key.")

    def set(self, values):
        for name in values:
            if not self._is_known(name):
                raise KeyError(f"{name!r} is not a valid configuration key.")
        before, self._values = self._values, self._values | values
        return _Restoring(self, before)


class _Restoring:
    def __init__(self, config, before):
        self._config, self._before = config, before

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._config._values = self._before


def leaves(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def replace_configuration(kind):
    """Once zarr is imported: its modules then have this configuration, by whatever name."""
    former = sys.modules["zarr.core.config"].config
    (defaults,) = former.defaults
    typed = TypedConfig(defaults, former.config, kind)
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "zarr"]:
        for name in [name for name, value in vars(module).items() if value is former]:
            setattr(module, name, typed)


def printed(code, kind="get raises", **environment):
    """Lines that a program prints where zarr has a typed configuration; warnings are errors."""
    assert kind in KINDS
    program = PROLOGUE.format(kind=kind) + textwrap.dedent(code)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
