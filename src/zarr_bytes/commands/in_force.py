"""Results of `status`, as plain data; the module `tables` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from zarr_bytes.commands.reports import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CodecInForce", "DataType", "Origin", "PipelineInForce", "Setting", "Status"]


@dataclass(frozen=True)
class Origin:
    """Who decided a value of zarr's configuration.

    Attributes
    ----------
    kind : {"default", "file", "environment variable", "code"}
        "code" is whatever has called ``zarr.config.set``.
    name : str
        The path of the file, the name of the variable, or empty.
    """

    kind: Literal["default", "file", "environment variable", "code"]
    name: str = ""


@dataclass(frozen=True)
class CodecInForce:
    """The class that zarr uses for a codec name, or why there is none."""

    name: str
    found: str
    expected: str
    origin: Origin

    @property
    def is_active(self) -> bool:
        """Whether it is this package's."""
        return self.found == self.expected


@dataclass(frozen=True)
class PipelineInForce:
    """The codec pipeline that zarr's configuration names.

    Attributes
    ----------
    found : str
        Its class.
    is_active : bool
        Whether it is this package's.
    acts_for : str
        In words, for which arrays this package reads parts of chunks.
    """

    found: str
    is_active: bool
    acts_for: str
    origin: Origin


@dataclass(frozen=True)
class DataType:
    """The class that zarr has for a data type name, and the package that it lacks."""

    name: str
    found: str
    is_active: bool
    lacks: str | None


@dataclass(frozen=True)
class Setting:
    """A setting of this package: its value, and who decided it."""

    name: str
    value: object
    origin: Origin


@dataclass(frozen=True, repr=False)
class Status(Result):
    """What is in force in this process.

    Prints as the tables that the command shows. A loop over it gives the `CodecInForce` of each
    codec name.

    Attributes
    ----------
    versions : dict
        By package.
    codecs : list of CodecInForce
        The class that zarr has for `bytes`, and for `endian`.
    pipeline : PipelineInForce
        The one that zarr's configuration names.
    data_types : list of DataType
        Each that this package has.
    data_types_need_import : bool
        Whether this zarr knows the data types only after ``import zarr_bytes``.
    settings : list of Setting
        Each of this package.
    new_arrays : str
        The codec of arrays that code has just made, and how to have this one.
    unknown : list of str
        Settings and environment variables that have no effect, with the nearest that has one.
    problems, advice : list of str
        Values of settings that are not permitted, and what to do where the package is not active.
    """

    versions: dict[str, str]
    codecs: list[CodecInForce]
    pipeline: PipelineInForce
    data_types: list[DataType]
    data_types_need_import: bool
    settings: list[Setting]
    new_arrays: str
    unknown: list[str]
    problems: list[str]
    advice: list[str]

    @property
    def is_active(self) -> bool:
        """Whether zarr uses this package for `bytes`, and every value of a setting is permitted."""
        return self.codecs[0].is_active and not self.problems

    @property
    def is_in_order(self) -> bool:
        """Whether the package is active, and nothing is set that has no effect."""
        return self.is_active and not self.unknown

    def __iter__(self) -> Iterator[CodecInForce]:
        return iter(self.codecs)
