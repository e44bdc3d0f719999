"""The errors of this package, and warnings that point at the line that called zarr.

Each message has the value that was found and the permitted values.
"""

from __future__ import annotations

import reprlib
import sys
import warnings
from itertools import chain
from typing import TYPE_CHECKING, Final

import zarr

if TYPE_CHECKING:
    from types import FrameType

# Not the extra `ml`, which pip only finds once zarr-bytes is on a package index.
HOW_TO_INSTALL: Final = {"ml_dtypes": 'pip install "ml_dtypes>=0.6"'}


class ChunkSizeError(ValueError):
    """A chunk that has the wrong size for its shape and data type.

    Also a byte range of a chunk that is too short, or that is missing while other byte ranges
    exist. The message has both sizes in bytes, and for a byte range the key of the chunk.
    """


class ChunkFileError(ValueError):
    """Something other than a regular file where a local store should have a chunk file.

    It is a folder, a FIFO, a socket or a device; reading could block forever. Also a file that was
    replaced or deleted while a view changed it.
    """


class ShardIndexError(ValueError):
    """A shard index that is truncated or damaged, or has byte ranges that aren't inner chunks."""


class BoolValueError(ValueError):
    """A byte of a stored bool that is neither 0 nor 1.

    The message has the byte, its index in the chunk or selection, and its position in bytes.
    """


class StoreError(ValueError):
    """A store that can't be opened or written, or has no Zarr metadata."""


class _HintingMetadataError(Exception):
    """A part of a metadata document that is not permitted.

    zarr opens the members of a group one by one, and raises the error of a member without the name
    of its array. A note on the error has the command that names the array.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*arguments, **keywords)
        self.add_note("If a group was opened, `zarr-bytes check STORE` names the array.")


class ConfigurationError(_HintingMetadataError, ValueError):
    """A codec configuration that is not permitted, or doesn't fit the data type."""


class FillValueError(_HintingMetadataError, TypeError):
    """A fill value that is not permitted for its data type, and that zarr doesn't read either.

    If the setting ``zarr_bytes.fill_values`` is "strict", any fill value that is not permitted.
    """

    # A TypeError, because zarr would replace a ValueError with its own error, which doesn't have
    # the permitted values.

    def __init__(self, message: str, permitted: str = "") -> None:
        super().__init__(message)
        self.permitted = permitted


class FillValueWarning(UserWarning):
    """A fill value that zarr reads, in a form that the specification doesn't permit.

    The warning is given once for an array, for the line that opens the array or its group.
    """


class DataTypeNameError(_HintingMetadataError, TypeError):
    """A data type name that looks like a raw data type, such as ``r12``, but is not permitted."""

    # A TypeError, because after a ValueError zarr would try other data types.


class MissingPackageError(_HintingMetadataError, ImportError):
    """A missing package that a data type needs.

    The message names the data type and the package, and the command that installs the package.
    """


def describe_causes_of_wrong_size(found_nbytes: int, expected_nbytes: int) -> str:
    """A clause for a message: the possible causes of a stored chunk of the wrong size."""
    fault = "truncated" if found_nbytes < expected_nbytes else "too long"
    return (
        f"the stored chunk is {fault}, or it was written with another data type, chunk shape or"
        " codec than the metadata names"
    )


def wrong_size_error(key: str, start: int, stop: int, found_nbytes: int) -> ChunkSizeError:
    """Error for bytes `start` to `stop` of the chunk at `key`, where `found_nbytes` are stored."""
    return ChunkSizeError(
        f"bytes {start} to {stop} of {key} are {stop - start} bytes, found {found_nbytes}:"
        f" {describe_causes_of_wrong_size(found_nbytes, stop - start)}"
    )


def shape_mismatch_error(found_shape: tuple[int, ...], needed_shape: tuple[int, ...]) -> ValueError:
    """Error for elements of `found_shape` assigned to a selection of the shape `needed_shape`."""
    permitted = (
        "this shape, or one that NumPy broadcasts to it"
        if needed_shape
        else "a scalar or an array without axes, such as value[0]"
    )
    return ValueError(
        f"elements of shape {found_shape} do not fit the selection, which has the shape"
        f" {needed_shape}:"
        f" permitted is {permitted}"
    )


def not_an_array_error(found: object) -> TypeError:
    """Error for an argument `found` that isn't an array, with a call that opens the array.

    For a group or an object of xarray, the call gets the array from there.
    """
    call = "zarr.open_array(...)"
    if isinstance(found, zarr.Group):
        call = 'group["NAME"]'
    elif any(kind.__module__.partition(".")[0] == "xarray" for kind in type(found).__mro__):
        name = getattr(found, "name", None)  # of a DataArray
        path = repr(name) if isinstance(name, str) else '"NAME"'
        call = f"zarr.open_array(store, path={path}), with the store that xarray has opened"
    return TypeError(
        f"array is of type {type(found).__qualname__}; permitted is a zarr.Array, such as {call}"
    )


def describe_error(error: Exception) -> str:
    """Text of an error for a message, after its class if the class isn't from this package."""
    if type(error).__module__ == __name__:
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def short_repr(value: object) -> str:
    """`repr` of a value for a message, shortened if it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits; goes with Python 3.13
        return "an integer of thousands of digits"


_CALLED_PACKAGES: Final = ("zarr", "zarr_bytes")


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Issue a warning for the line outside zarr and this package that led to this call.

    zarr reads in its own thread, so no `stacklevel` gives that line.
    """
    # This line if there is no caller, as in a callback of an event loop that nothing waits for.
    frame = _find_user_frame_in_any_thread() or sys._getframe()
    module_globals = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=module_globals.get("__name__"),
        registry=module_globals.setdefault("__warningregistry__", {}),
    )


def _find_user_frame_in_any_thread() -> FrameType | None:
    """The innermost frame of a caller of zarr or of this package; None if there is none.

    The frame is from this thread if possible, and otherwise from any thread, since zarr reads in
    its own thread.
    """
    own: FrameType | None = sys._getframe()
    for frame in chain([own], sys._current_frames().values()):
        is_called = False
        while frame is not None:
            package = frame.f_globals.get("__name__", "").partition(".")[0]
            is_called = is_called or package in _CALLED_PACKAGES
            # The standard library runs coroutines and threads, and is never the caller.
            if (
                is_called
                and package not in _CALLED_PACKAGES
                and package not in sys.stdlib_module_names
            ):
                return frame
            frame = frame.f_back
    return None
