"""The errors of this package, and warnings that point at the line that has called zarr.

Each message names the value found and the permitted values.
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

# Not by the extra `ml`, which pip finds only once zarr-bytes is on a package index.
HOW_TO_INSTALL: Final = {"ml_dtypes": 'pip install "ml_dtypes>=0.6"'}


class ChunkSizeError(ValueError):
    """A chunk of the wrong size for its shape and data type.

    Also a byte range of a chunk that arrives short, or that is missing while other byte ranges
    exist. The message gives both sizes in bytes, and for a byte range the key of the chunk.
    """


class ChunkFileError(ValueError):
    """Something other than a regular file where a local store should have a chunk file.

    A folder, a FIFO, a socket or a device: reading could block for ever. Also a file that was
    replaced or deleted while a view changed it.
    """


class ShardIndexError(ValueError):
    """A shard index that is truncated or damaged, or has byte ranges that are not inner chunks."""


class BoolValueError(ValueError):
    """A byte of a stored bool that is neither 0 nor 1.

    The message gives the byte, its index in the chunk or selection, and its position in bytes.
    """


class StoreError(ValueError):
    """A store that cannot be opened or written, or has no Zarr metadata."""


class _HintingMetadataError(Exception):
    """A part of a metadata document that is not permitted.

    zarr opens the members of a group one after another, and raises the error of a member, which
    does not name the array. A note on the error gives the command that names it.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*arguments, **keywords)
        self.add_note("If a group was opened, `zarr-bytes check STORE` names the array.")


class ConfigurationError(_HintingMetadataError, ValueError):
    """A configuration of a codec that is not permitted, or does not fit the data type."""


class FillValueError(_HintingMetadataError, TypeError):
    """A fill value that is not permitted for its data type, and that zarr doesn't read either.

    With the setting ``zarr_bytes.fill_values`` "strict", every fill value that is not permitted.
    """

    # A TypeError, because zarr would replace a ValueError by its own error, which does not name the
    # permitted values.

    def __init__(self, message: str, permitted: str = "") -> None:
        super().__init__(message)
        self.permitted = permitted


class FillValueWarning(UserWarning):
    """A fill value in a form that the specification does not permit, which zarr reads.

    Given once for an array, for the line that opens it or its group.
    """


class DataTypeNameError(_HintingMetadataError, TypeError):
    """A data type name that looks like a raw data type, such as ``r12``, but is not permitted."""

    # A TypeError, because zarr would take a ValueError to mean that another data type matches.


class MissingPackageError(_HintingMetadataError, ImportError):
    """A missing package that a data type needs.

    The message names the data type and the package, and the command that installs the package.
    """


def describe_causes_of_wrong_size(found_nbytes: int, expected_nbytes: int) -> str:
    """A clause for a message: why a stored chunk may have another size than it should."""
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
    """Error for an argument `found` in place of an array; it says how to open the array.

    For a group, and for what xarray has opened, the call takes the array from there.
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
    """Text of an error for a message; with its class before it, if that is not of this package."""
    if type(error).__module__ == __name__:
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def short_repr(value: object) -> str:
    """`repr` of a value for a message, shortened if it is long."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits; goes with Python 3.13
        return "an integer of thousands of digits"


_CALLED_PACKAGES: Final = ("zarr", "zarr_bytes")


def warn_caller(message: str, category: type[UserWarning] = UserWarning) -> None:
    """Issue a warning for the line outside zarr and this package that led to this call.

    zarr reads in a thread of its own, so that no `stacklevel` says which line it is.
    """
    # Without a caller, as in a callback of an event loop that nobody waits for, it is this line.
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

    That of this thread, or else of any thread, since zarr reads in a thread of its own.
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
