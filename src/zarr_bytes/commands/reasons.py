"""The reasons that `explain` gives, each with a remedy: why a chunk is read whole, or replaced.

A reason that depends on the bytes that are read is found where they are counted:
`ForecastSum.why_whole_or_more_is_fetched`.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zarr.abc.codec import ArrayBytesCodec
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.registry import get_buffer_class

from zarr_bytes.chains import (
    codec_name_or_class_name,
    iter_codecs_unsupported_by_themselves,
    why_uncompressed_chunks_are_read_by_zarr,
    why_uncompressed_chunks_are_written_by_zarr,
)
from zarr_bytes.commands.result import class_path
from zarr_bytes.commands.status import source_of_setting
from zarr_bytes.io.drivers import driver_of
from zarr_bytes.io.file_writing import CAN_WRITE_IN_PLACE
from zarr_bytes.settings import CLASSES, PIPELINE, code_that_sets, zarr_setting_or_default
from zarr_bytes.zarr_versions import codecs_or_empty_if_unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr
    from zarr.abc.codec import Codec

    from zarr_bytes.io.drivers import Driver
    from zarr_bytes.zarr_versions import ArraySpec

NOT_NEEDED: Final = "none is needed"
"""The remedy if there is nothing to mend."""

_WRITE_WHOLE: Final = "write whole chunks at a time, which needs no read"
_OWN_CLASSES: Final = {"codecs.bytes": CLASSES["bytes"], "codec_pipeline.path": PIPELINE}


class Reason(NamedTuple):
    """Why more than the selection is read, or why chunks are replaced; and the remedy.

    Both are sentences without a full stop.
    """

    text: str
    remedy: str

    def with_path(self, path: str) -> Reason:
        """The reason, with the path of its file in front."""
        return self._replace(text=f"{path} {self.text}")


IS_LINK: Final = Reason(
    "is a symbolic link",
    "none is needed: the first write replaces the link with a file, and keeps the link's target",
)
"""Why a file that is a link isn't written in place; `Reason.with_path` adds the path."""

HAS_OTHER_NAMES: Final = Reason(
    "has other names (hard links), which keep their content",
    "none is needed: the first write replaces the file with one that has no other names",
)
"""Why a file with hard links isn't written in place; without the path, too."""

IS_READ_ONLY: Final = Reason("is read-only", "change its mode (chmod u+w), if it may be written")
"""Why a read-only file isn't written in place; without the path, too."""

ARRAY_IS_READ_ONLY: Final = Reason(
    "the array was opened read-only, so a write is an error",
    'open it with mode="r+", from a store that is not read-only',
)
"""Why a write to a read-only array writes nothing."""

NOTHING_IS_SELECTED: Final = Reason("no element is selected", NOT_NEEDED)
"""Why nothing is read or written."""


def first_reason_zarr_handles_chunks() -> Reason:
    """The first reason why zarr reads and writes uncompressed chunks by itself."""
    buffer_class = get_buffer_class()
    if not issubclass(buffer_class, cpu.Buffer):
        return Reason(
            f"buffers are {class_path(buffer_class)}, into which zarr reads chunks by itself",
            "read into main memory, and copy the selection from there:"
            ' zarr.config.set({"buffer": "zarr.buffer.cpu.Buffer",'
            ' "ndbuffer": "zarr.buffer.cpu.NDBuffer"})',
        )
    for key, own in _OWN_CLASSES.items():
        if (chosen := zarr_setting_or_default(key)) != own:
            does = "reads and writes chunks, and inner chunks of shards, as a whole"
            if not str(chosen).startswith("zarr."):
                does = "is from another package: its reads and writes are not known here"
            source = source_of_setting(key)
            return Reason(
                f"zarr's configuration has {chosen} for {key} (set by {source}), which {does}",
                f"set it to {own}, and open the array again: {how_to_set(key, value=own)}",
            )
    return Reason("the array was opened before zarr-bytes was chosen", "open it again")


def first_reason_not_uncompressed(array: zarr.Array[Any], *, is_write: bool) -> Reason:
    """The first reason why the chunks of an array are not stored uncompressed."""
    first = f"{_WRITE_WHOLE}, or " if is_write else ""
    codec = next(
        iter_codecs_unsupported_by_themselves(codecs_or_empty_if_unknown(array.metadata)), None
    )
    if codec is None:
        return Reason(
            "chunks go through the codec sharding_indexed with nested shards, or with index_codecs"
            " other than bytes and crc32c",
            f"{first}write the array again with one level of shards and the default index_codecs",
        )
    name = codec_name_or_class_name(codec)
    text = f"chunks go through the codec {name}, so no part of a chunk can be read or written"
    text += " by itself"
    if isinstance(codec, ArrayBytesCodec) or name.startswith("vlen-"):  # the latter in format 2
        return Reason(
            text,
            f"{first}write the array again with a data type that the codec bytes stores, such as"
            ' strings of a fixed length (dtype="U8")',
        )
    return Reason(
        text,
        f"{first}write the array again with compressors=None and filters=None (only TransposeCodec"
        " and codecs that change each element by itself are permitted), or with chunks, or inner"
        " chunks of shards, about as large as a selection",
    )


def why_read_by_zarr(codecs: Sequence[Codec], spec: ArraySpec) -> Reason | None:
    """The reason of `why_uncompressed_chunks_are_read_by_zarr` and its remedy, or None."""
    if not (text := why_uncompressed_chunks_are_read_by_zarr(codecs, spec)):
        return None
    if isinstance(codecs[-1], ShardingCodec):
        remedy = "write the array again with inner chunk lengths that divide the shard lengths"
    else:
        remedy = "write the array again with filters=None"
    return Reason(text, remedy)


def why_written_by_zarr(codecs: Sequence[Codec], spec: ArraySpec) -> Reason | None:
    """The reason of `why_uncompressed_chunks_are_written_by_zarr` and its remedy, or None."""
    if not (text := why_uncompressed_chunks_are_written_by_zarr(codecs, spec)):
        return None
    return Reason(
        text,
        f"{_WRITE_WHOLE}, or write the array again with the codec inside the shards (filters= of"
        " zarr.create_array)",
    )


def why_never_in_place(driver: Driver, *, writes_in_place: bool) -> Reason | None:
    """Why partly written chunks are always replaced; None if it depends on their files.

    `writes_in_place` is whether the array writes files in place, on a system that supports it.
    """
    if not driver.files_root:
        name = type(driver.store).__name__
        return Reason(
            f"its store is a {name}, and only chunks in files (LocalStore) are changed in place",
            f"{_WRITE_WHOLE}, or keep the array in a folder",
        )
    if why_no_files := driver.why_not_in_place():
        return Reason(why_no_files, f"none here: {_WRITE_WHOLE}")
    if not writes_in_place:
        name = "zarr_bytes.partial_writes"
        return Reason(
            f"{name} was False when the array was opened",
            f"set it to True, and open the array again: {how_to_set(name, value=True)}",
        )
    if not CAN_WRITE_IN_PLACE:
        return Reason(
            "this system has no hard links, so chunks are replaced",
            f"none here: {_WRITE_WHOLE}",
        )
    return None


def how_to_preallocate(array: zarr.Array[Any]) -> str:
    """The remedy for an incomplete shard of an array in a folder."""
    path = shlex.quote(f"{driver_of(array.store, array.path).files_root}/{array.path}".rstrip("/"))
    return (
        "none is needed: this first write completes the shard. To complete all shards in advance:"
        f" zarr_bytes.preallocate(array), or `zarr-bytes preallocate {path}`"
    )


def how_to_set(name: str, *, value: object) -> str:
    """How to change a setting, in code and for a command."""
    variable = f"ZARR_{name.upper().replace('.', '__')}={value}"
    return f"{code_that_sets(name, value=value)}, or {variable} in the environment of a command"
