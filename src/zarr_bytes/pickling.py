"""Pickles that load with or without this package: they name functions of zarr and of Python.

When such a pickle is loaded, zarr chooses the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

from zarr.registry import get_codec_class, get_pipeline_class

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class CallOnUnpickling:
    """A call in a pickle, which is made when the pickle is loaded.

    Unpickling gives the result of the call, not an instance of this class. `__reduce_ex__` may
    return an instance as the function that recreates an object.
    """

    function: Callable[..., Any]
    arguments: tuple[object, ...] = ()

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.function, self.arguments

    def __call__(self, *arguments: object) -> NoReturn:
        """Always an error: pickle requires a callable, but calls only the result of the call."""
        raise TypeError(f"{self} is called when it is unpickled, not with {arguments}")


def attribute(owner: CallOnUnpickling, attribute_name: str) -> CallOnUnpickling:
    """An attribute of the result of another call, such as a method of a class."""
    return CallOnUnpickling(attrgetter(attribute_name), (owner,))


PIPELINE_FROM_CODECS: Final = attribute(CallOnUnpickling(get_pipeline_class), "from_codecs")
"""The method of the pipeline that zarr's configuration chooses."""


@cache
def codec_from_dict(codec_name: str) -> CallOnUnpickling:
    """The method `from_dict` of the class that zarr's configuration chooses for a codec name."""
    return attribute(CallOnUnpickling(get_codec_class, (codec_name,)), "from_dict")


_GET_DATA_TYPE_CLASS: Final = attribute(
    CallOnUnpickling(import_module, ("zarr.dtype",)), "data_type_registry.get"
)


@cache  # one object for all fields of a record: a pickle stores each object once
def data_type_class(name: str) -> CallOnUnpickling:
    """The class in zarr's registry for the name of a data type: this package's, or zarr's."""
    return CallOnUnpickling(_GET_DATA_TYPE_CLASS, (name,))
