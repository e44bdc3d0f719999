"""Mistakes that would give wrong data or lose some, and the test that sees each.

Each is a small edit within a function of `src`, and of a kind that only an understanding of the code
finds: a lock, a publication, a cancellation, an order, a size, a bit. `run_mistakes.py` makes them
in a copy of the source, one at a time. `test_mistakes.py` checks that each still fits.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = "src/zarr_bytes"
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class MisfitError(ValueError):
    """An edit doesn't fit the source, or a test that it names is gone."""


class Mistake(NamedTuple):
    """An edit of one function, class or constant, wherever it is in its module."""

    module: str  # its path below `PACKAGE`
    function: str  # with its classes and outer functions: "Requests.fetch.work"
    before: str  # text that the function has once
    after: str
    test: str  # as pytest names it, below `tests`
    why: str  # what a user would see or lose

    @property
    def name(self) -> str:
        return f"{self.module}: {self.function}: {self.before}"

    def edited(self, source: str) -> str:
        """The source of the module with the mistake in it; a MisfitError if it doesn't fit."""
        first, last = self.lines_in(source)
        lines = source.splitlines(keepends=True)
        text = "".join(lines[first:last])
        if (count := text.count(self.before)) != 1:
            found = (
                f"the text {self.before!r} {count} times" if count else f"no text {self.before!r}"
            )
            raise MisfitError(
                f"{self.function} in {self.module} has {found}, where a mistake replaces it: adapt"
                " the mistake to the code, or delete it if what it is about is gone"
            )
        return "".join([*lines[:first], text.replace(self.before, self.after), *lines[last:]])

    def lines_in(self, source: str) -> tuple[int, int]:
        """The first line of the function in the source of its module, and the one after its last."""
        found = definitions(source, self.function)
        if len(found) != 1:
            count = f"{self.function} {len(found)} times" if found else f"no {self.function}"
            raise MisfitError(
                f"{self.module} has {count}, where a mistake replaces {self.before!r}: give the"
                " function's new name, or delete the mistake if what it is about is gone"
            )
        return found[0].lineno - 1, found[0].end_lineno


@cache
def definitions(source: str, name: str) -> list[ast.stmt]:
    """The functions, classes and assignments of a name in the source of a module."""
    *outer, last = name.split(".")
    scopes: list[ast.AST] = [syntax_tree(source)]
    for part in outer:
        scopes = [
            n for scope in scopes for n in statements(scope) if getattr(n, "name", "") == part
        ]
    return [node for scope in scopes for node in statements(scope) if last in names_of(node)]


@cache
def syntax_tree(source: str) -> ast.Module:
    return ast.parse(source)


def statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module, a class or a function, within `if` and others too."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.stmt):
            yield node
            if not isinstance(node, SCOPES):
                yield from statements(node)


def names_of(statement: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(statement, SCOPES):
        return [statement.name]
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return [target.id for target in targets if isinstance(target, ast.Name)]


MISTAKES = [
    # Zarr format 2.
    Mistake(
        "layout/objects.py",
        "ChunkEncoding.layout_of",
        "tuple(reversed(range(len(spec.shape))))",
        "tuple(range(len(spec.shape)))",
        "test_tensorstore.py::test_uncompressed_chunks_of_zarr_format_2_are_exchanged_with_tensorstore",
        "Arrays in order F are read and written in order C.",
    ),
    Mistake(
        "layout/objects.py",
        "_copy_or_swap_dtypes_or_none",
        "endian_or_none_if_of_dtype is None and view_dtype != layout_dtype",
        "False",
        "test_partial_write.py::test_records_of_format_2_keep_the_byte_order_of_each_field",
        "Records with fields of both byte orders are read into memory with their bytes swapped.",
    ),
    Mistake(
        "write.py",
        "ChunkUpdate.__init__",
        "self.layout.endian is None or not differs_in_byte_order_only",
        "not differs_in_byte_order_only",
        "test_partial_write.py::test_records_of_format_2_keep_the_byte_order_of_each_field",
        "Records are stored in the byte orders of the values, and not in those of the metadata.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.__init__",
        "element_layout._replace(bool_offsets=())",
        "element_layout",
        "test_damaged.py::TestBools::test_a_bool_of_format_2_is_any_byte_as_for_plain_zarr",
        "Bools that zarr reads are an error.",
    ),
    # Locks.
    Mistake(
        "io/locks.py",
        "lock_if_supported",
        "fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX",
        "fcntl.LOCK_EX if is_shared else fcntl.LOCK_SH",
        "test_locks.py::test_a_write_in_place_and_a_replacement_of_the_file_wait_for_each_other",
        "A file is replaced while others write into it, and what they write is lost.",
    ),
    Mistake(
        "io/locks.py",
        "_try_lock",
        "fcntl.flock",
        "fcntl.lockf",
        "test_locks.py::test_a_write_in_place_and_a_replacement_of_the_file_wait_for_each_other",
        "Locks of this kind belong to the process, so that two of its threads don't exclude each other.",
    ),
    Mistake(
        "io/locks.py",
        "_retry_lock_until_nothing_is_written",
        "raise WorkCancelledError",
        "return 0",
        "test_locks.py::TestWaiting::test_the_event_loop_goes_on_while_a_write_waits_for_a_lock",
        "A cancelled write that waits for a lock goes on without it.",
    ),
    Mistake(
        "io/file_writing.py",
        "open_and_lock_if_exists",
        " is_shared=lock_is_shared,",
        " is_shared=True,",
        "test_locks.py::test_a_write_in_place_and_a_replacement_of_the_file_wait_for_each_other",
        "A writer that replaces a chunk doesn't wait for those that write into it.",
    ),
    Mistake(
        "write.py",
        "write_object",
        "if opened.lock_is_shared:",
        "if False:",
        "test_locks.py::test_a_write_in_place_and_a_replacement_of_the_file_wait_for_each_other",
        "A shard that lacks inner chunks is replaced under the lock of those who write in place.",
    ),
    # Publication: by link, by rename.
    Mistake(
        "io/file_writing.py",
        "_state_of",
        "if not is_same_file(path, status, follow_symlinks=not may_write):",
        "if False:",
        "test_file_writing.py::TestOthersAtTheSameMoment::test_a_write_goes_into_the_chunk_file_that_replaced_another_meanwhile",
        "A selection is written into a file that has been replaced since it was opened, and is lost.",
    ),
    Mistake(
        "io/file_writing.py",
        "_state_of",
        "not is_hard_linked_or_read_only(descriptor, status, path)",
        "True",
        "test_file_writing.py::TestWhatIsThere::test_a_chunk_file_that_must_not_be_changed_in_place_is_replaced",
        "A write changes the copy of a store that was made by hard links.",
    ),
    Mistake(
        "io/file_writing.py",
        "_publish_by_link",
        "os.link(temporary, path)",
        "os.replace(temporary, path)",
        "test_locks.py::test_the_second_of_two_writers_that_make_a_chunk_file_writes_into_the_first",
        "Of two processes that make a missing chunk at the same moment, one loses its elements.",
    ),
    Mistake(
        "io/file_writing.py",
        "OpenedOrMissingChunk.delete",
        "if self.publish is _publish_by_link_or_replace:",
        "if False:",
        "test_meanwhile.py::test_a_write_to_a_missing_chunk_keeps_what_others_make_meanwhile",
        "A write of fill values to a missing chunk deletes one that another process has made meanwhile.",
    ),
    Mistake(
        "io/file_writing.py",
        "OpenedOrMissingChunk.delete",
        "if self.publish is _publish_by_link_or_replace:",
        "if self.file is None:",
        "test_file_writing.py::TestWhatIsThere::test_a_fifo_or_device_at_the_path_of_a_chunk_is_refused_without_waiting",
        "A chunk that is overwritten by fill values stays, and reads as before.",
    ),
    Mistake(
        "io/file_writing.py",
        "OpenedOrMissingChunk.overwrite",
        "if size_now != size:",
        "if False:",
        "test_file_writing.py::TestOthersAtTheSameMoment::test_a_file_that_is_shortened_while_it_is_mapped_is_an_error",
        "A write into a file that was shortened meanwhile is lost without an error.",
    ),
    Mistake(
        "write.py",
        "write_object",
        "lock_is_shared = False",
        "return why_rebuilt",
        "test_shards.py::TestInPlace::test_a_shard_without_a_needed_inner_chunk_is_replaced_by_a_complete_one",
        "A write to a shard that lacks the inner chunk is lost without an error.",
    ),
    Mistake(
        "io/files.py",
        "WRITE_FLAGS",
        'getattr(os, "O_NOFOLLOW", 0)',
        "0",
        "test_file_writing.py::TestWhatIsThere::test_a_chunk_file_that_must_not_be_changed_in_place_is_replaced",
        "A write goes through a symbolic link into a file outside of the store.",
    ),
    # Files: what is missing, short reads, sizes.
    Mistake(
        "io/files.py",
        "open_descriptor_into_if_exists",
        "except (FileNotFoundError, NotADirectoryError):",
        "except OSError:",
        "test_view.py::TestFaults::test_an_error_of_opening_a_file_for_a_view_is_raised_as_it_is",
        "A chunk that cannot be opened, for whatever reason, reads as the fill value.",
    ),
    Mistake(
        "io/files.py",
        "open_chunk_file_nowait_if_exists",
        "except FileNotFoundError:",
        "except OSError:",
        "test_threads.py::TestWaiting::test_an_error_of_one_chunk_keeps_no_others_off_the_event_loop",
        "On the event loop, a chunk that cannot be opened reads as the fill value.",
    ),
    Mistake(
        "io/files.py",
        "ChunkFile._fill",
        "start + done)\n",
        "start)\n",
        "test_partial_read.py::TestLocalFiles::test_a_read_that_the_system_cuts_short_goes_on_where_it_ended",
        "After a read that the system cuts short, the rest of a range is its beginning again.",
    ),
    Mistake(
        "io/files.py",
        "ChunkFile._read_short_ranges",
        "start + count",
        "start",
        "test_partial_read.py::TestLocalFiles::test_a_read_that_the_system_cuts_short_goes_on_where_it_ended",
        "After a short read of one of many ranges, its end has the bytes of its beginning.",
    ),
    Mistake(
        "io/files.py",
        "ChunkFile.read_whole",
        "if count != nbytes or not nbytes:",
        "if count < nbytes:",
        "test_damaged.py::TestSizes::test_a_chunk_of_a_wrong_size_is_an_error_that_changes_nothing",
        "A chunk file that is too long, as of another shape, is read without an error.",
    ),
    # Writing ranges.
    Mistake(
        "io/range_writing.py",
        "write_block",
        "os.pwrite(descriptor, memory[done:], start + done)",
        "os.pwrite(descriptor, memory[done:], start)",
        "test_file_writing.py::test_an_error_of_a_write_names_the_file_the_offset_and_the_written_bytes",
        "After a write that the system cuts short, the rest is written over its beginning.",
    ),
    Mistake(
        "io/range_writing.py",
        "_write_mapped_and_count_ranges",
        "if read_to_addresses(source, batch, copied) != nbytes:",
        "if read_to_addresses(source, batch, copied) < 0:",
        "test_file_writing.py::TestFileSystems::test_a_write_that_a_mapping_cuts_short_is_finished_by_pwrite",
        "Ranges that the system has copied in part count as written.",
    ),
    # Requests.
    Mistake(
        "io/requests.py",
        "StoreTransport._request_range",
        "plan.reads_whole_chunk and stop == self._stored_nbytes",
        "False",
        "test_remote.py::test_a_chunk_in_parts_of_another_size_is_an_error_and_a_missing_one_the_fill_value",
        "A chunk that is too long is read without an error where it comes in several requests.",
    ),
    Mistake(
        "io/requests.py",
        "StoreTransport.check_nothing_has_come",
        "if self._was_there:",
        "if False:",
        "test_partial_read.py::TestFaults::test_a_chunk_that_is_deleted_between_requests_is_an_error",
        "A chunk that is deleted while it is read has the fill value in some elements, and not in others.",
    ),
    Mistake(
        "io/requests.py",
        "StoreTransport._keep_whole_object",
        "content.size != expected",
        "content.size < expected",
        "test_damaged.py::TestSizes::test_a_chunk_of_a_wrong_size_is_an_error_that_changes_nothing",
        "An object that is too long for its shape is read without an error.",
    ),
    Mistake(
        "io/requests.py",
        "StoreTransport._fetch_ranges.fetch_request",
        "fetched[position : position + content.size] = content",
        "fetched[start:stop] = content",
        "test_cost.py::TestReading::test_requests_are_as_large_as_the_settings_of_the_moment_say",
        "Ranges that take several requests have their bytes in wrong places.",
    ),
    Mistake(
        "io/requests.py",
        "StoreTransport.fetch",
        "slots.for_fetched_bytes.take(is_small=is_small) if slots else _NO_SLOT",
        "_NO_SLOT",
        "test_remote.py::test_memory_of_a_remote_read_is_that_of_the_result_and_of_a_request_for_each_slot",
        "A read of many chunks holds the bytes of all of them in memory, besides the result.",
    ),
    # Tasks and threads.
    Mistake(
        "io/tasks.py",
        "_result_once_threads_have_ended",
        "while not work.done():",
        "while False:",
        "test_file_writing.py::TestCancelling::test_a_cancelled_write_begins_no_other_chunk",
        "A cancelled read returns while threads still write into the caller's result.",
    ),
    Mistake(
        "io/tasks.py",
        "map_in_threads.run",
        "                stop()",
        "                pass",
        "test_threads.py::TestSeveralThreads::test_a_write_that_is_cancelled_or_fails_ends_when_the_chunks_that_have_begun_have_ended",
        "After the error of one chunk, all others are still written.",
    ),
    Mistake(
        "io/tasks.py",
        "map_in_threads",
        "asyncio.gather(*runs, return_exceptions=True)",
        "asyncio.gather(*runs)",
        "test_threads.py::TestSeveralThreads::test_a_write_that_is_cancelled_or_fails_ends_when_the_chunks_that_have_begun_have_ended",
        "A failed write is over for the caller while other threads still write.",
    ),
    Mistake(
        "io/tasks.py",
        "map_in_threads",
        "if error is not None:",
        "if False:",
        "test_threads.py::TestSeveralThreads::test_a_write_that_is_cancelled_or_fails_ends_when_the_chunks_that_have_begun_have_ended",
        "The error of one of several threads is lost, and its chunks with it.",
    ),
    Mistake(
        "io/tasks.py",
        "_run_in_tasks.record_failure",
        "except (Exception, asyncio.CancelledError) as error:",
        "except Exception as error:",
        "test_remote.py::test_an_error_of_a_store_is_raised_as_it_is",
        "A chunk whose request the store cancels is neither read nor an error.",
    ),
    # Mappings.
    Mistake(
        "io/mapping.py",
        "copy_if_maybe_mapped",
        "return array.copy() if identity in map(_identity_if_exists, paths) else array",
        "return array",
        "test_partial_write.py::TestForms::test_values_that_map_the_chunk_file_itself_are_written",
        "A write from a view of the same file overwrites elements before it reads them.",
    ),
    Mistake(
        "io/mapping.py",
        "WritableMappings.sync",
        "if identity not in (None, synced):",
        "if False:",
        "test_view.py::TestWriting::test_flush_is_an_error_for_changes_of_a_chunk_that_was_replaced",
        "`flush` doesn't say that the changes of a view are lost.",
    ),
    Mistake(
        "io/mapping.py",
        "_map_file_if_exists",
        "mmap.ACCESS_WRITE if is_writable",
        "mmap.ACCESS_COPY if is_writable",
        "test_view.py::TestWriting::test_assignments_to_a_view_are_numpys_and_stored_at_once",
        "Changes of a view stay in the memory of this process.",
    ),
    # Stores that are not what they look like.
    Mistake(
        "io/drivers.py",
        "_DRIVERS_OF_SUBCLASSES",
        "LocalStore: _LocalMediaDriver",
        "LocalStore: FileDriver",
        "test_partial_write.py::TestChunkFiles::test_a_subclass_of_the_local_store_gets_whole_chunks",
        "The files of a subclass of LocalStore, which may encrypt, are read and written as they are.",
    ),
    # Elements.
    Mistake(
        "layout/elements.py",
        "_common_unsigned_unit_or_none",
        '"c": 2',
        '"c": 1',
        "test_elements.py::test_byte_order_of_records_of_one_size_is_swapped_as_of_plain_numbers",
        "Complex numbers in the other byte order have their two parts exchanged.",
    ),
    Mistake(
        "layout/elements.py",
        "encode_elements",
        "encoded = encoded.copy()",
        "pass",
        "test_elements.py::test_the_first_byte_that_is_no_bool_is_named_with_its_index",
        "Writing bools changes the array of the caller.",
    ),
    # The format of a chunk and a shard.
    Mistake(
        "layout/objects.py",
        "ObjectLayout.__init__",
        "self.order.index(i) for i",
        "self.order[i] for i",
        "test_layouts.py::test_elements_are_found_in_every_order_of_three_axes",
        "Arrays of three axes that a transpose turns around have their elements in wrong places.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.__init__",
        "order=None if sharding is None else sharding.index_order",
        "order=None",
        "test_shards.py::test_shards_are_exchanged_both_ways",
        "The inner chunks of transposed shards are exchanged.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.__init__",
        "not (element_layout.bool_offsets or element_layout.narrow_bytes)",
        "True",
        "test_damaged.py::TestBools::test_a_bool_that_is_neither_0_nor_1_is_named_by_its_index",
        "Wrong bools are read without an error, and int4 with bits that it doesn't have.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.stored_fill_value",
        "self.encode(self._fill_array_before_chunks)",
        "self._fill_array_before_chunks",
        "test_view.py::TestSelections::test_a_missing_block_of_a_view_has_the_fill_value_and_takes_no_memory",
        "New chunks are filled with the fill value in the byte order of memory.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.decode_index_of_object",
        ".copy()",
        "",
        "test_view.py::TestFaults::test_a_shard_index_that_changes_after_its_check_is_not_used_by_a_view",
        "A view follows an index that has changed since it was checked, even out of the file.",
    ),
    Mistake(
        "layout/objects.py",
        "ShardIndex.__init__",
        "if found != computed:",
        "if False:",
        "test_damaged.py::TestIndexes::test_a_changed_or_truncated_shard_index_is_an_error",
        "The places of inner chunks come from a damaged index.",
    ),
    Mistake(
        "layout/objects.py",
        "ShardIndex.share_no_bytes_with_others",
        'np.searchsorted(self._sorted_present_offsets, begin - nbytes, "right")',
        "np.searchsorted(self._sorted_present_offsets, begin)",
        "test_shards.py::TestInPlace::test_inner_chunks_that_share_bytes_are_separated_by_a_new_shard",
        "A write in place changes the end of another inner chunk, which shares the bytes.",
    ),
    Mistake(
        "layout/objects.py",
        "ChunkEncoding.layout_of",
        "and spec.shape == last.shape",
        "",
        "test_partial_read.py::test_every_selection_of_a_rectilinear_chunk_grid_is_read",
        "A chunk of another shape is read by the shape of the last one.",
    ),
    # Selections and their division.
    Mistake(
        "indexing/selection.py",
        "selects_all",
        "if type(axis.indices) is range",
        "",
        "test_partial_write.py::TestForms::test_as_many_indices_as_a_chunk_is_long_may_leave_some_out",
        "As many indices as the chunk is long, one of them repeated, count as all: the others are lost.",
    ),
    Mistake(
        "indexing/selection.py",
        "ChunkGrid.try_in_one_chunk",
        "if stop > before + size:",
        "if stop > size + 1:",
        "test_indexing.py::test_a_box_of_a_chunk_grid_is_found_in_one_chunk",
        "A slice that ends with the first element of an inner chunk has a wrong one there.",
    ),
    Mistake(
        "indexing/selection.py",
        "ChunkGrid._points_by_chunk",
        "outer, indices = np.divmod(indices, size)",
        "outer = indices // size",
        "test_cost.py::TestReading::test_a_file_is_read_at_the_selected_byte_ranges",
        "Points outside of the first inner chunk are looked for at other places.",
    ),
    # Plans: joining of ranges, places in what is fetched.
    Mistake(
        "indexing/plan.py",
        "group_into_fetches",
        "0 <= unread <= max_gap_within_range",
        "unread <= max_gap_within_range",
        "test_damaged.py::TestIndexes::test_an_index_entry_gives_its_inner_chunk_or_an_error_that_names_it",
        "Ranges of inner chunks that share bytes are joined as if they were one after another.",
    ),
    Mistake(
        "indexing/plan.py",
        "SlabPlanner._slab",
        "(axis.indices[first] - axis.indices[0])",
        "(axis.indices[0] - axis.indices[0])",
        "test_indexing.py::test_ranges_join_where_the_gap_allows_and_are_divided_where_they_are_many",
        "A read of more than a MiB has the elements of its first piece in all others.",
    ),
    Mistake(
        "indexing/plan_cache.py",
        "PlanCache.fetches_of",
        "kept is not None and kept[0] == entries",
        "kept is not None",
        "test_meanwhile.py::test_a_chunk_file_that_others_change_reads_old_or_new_or_is_named[shard-replaced]",
        "A shard is read at the places of the one before it.",
    ),
    Mistake(
        "write.py",
        "SelectionUpdate.locate_inner_chunks_to_overwrite",
        "last is not None and last[0] == key",
        "last is not None",
        "test_shards.py::TestInPlace::test_writes_of_one_selection_go_where_the_index_of_each_shard_says",
        "A write goes to the places of the shard before it.",
    ),
    Mistake(
        "write.py",
        "SelectionUpdate.ranges_at",
        "last is not None and last[0] == inner_chunk_offsets",
        "last is not None",
        "test_shards.py::TestInPlace::test_writes_of_one_selection_go_where_the_index_of_each_shard_says",
        "A write goes to the ranges of the shard before it.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.__init__",
        " and converter is None",
        "",
        "test_elementwise_codecs.py::test_a_point_of_scaled_integers_is_the_two_bytes_of_its_integer",
        "Elements that a codec must decode are assigned as they are stored.",
    ),
    Mistake(
        "layout/elementwise_codecs.py",
        "_decode_by_stages",
        "reversed(stages)",
        "stages",
        "test_elementwise_codecs.py::test_every_selection_has_the_values_and_the_data_type_of_zarr",
        "Codecs decode in the order in which they encode.",
    ),
    Mistake(
        "layout/elementwise_codecs.py",
        "_ConverterByCodecs.absent_inner_chunk_value",
        "self._stages_before_shards",
        "[*self._stages_before_shards, *self._stages_in_chunks]",
        "test_elementwise_codecs.py::TestMissing::test_an_absent_inner_chunk_is_as_zarr_has_it_in_each_place",
        "The fill value of inner chunks is decoded by the codecs in them, too.",
    ),
    Mistake(
        "io/files.py",
        "ChunkFile._read",
        "start = self._offset + offset",
        "start = offset",
        "test_references.py::TestLocalFiles::test_a_series_opens_the_file_once_and_reads_its_elements",
        "A chunk that is a part of a file is read from the start of the file.",
    ),
    Mistake(
        "read_references.py",
        "pieces_of_fetches",
        "positions -= positions[first_pieces][owners]",
        "pass",
        "test_references.py::TestAnyPlaces::test_selections_are_those_of_numpy",
        "Pieces of a chunk come to the places that they have among those of all chunks.",
    ),
    Mistake(
        "read_references.py",
        "referenced_chunks_by_file",
        "part.nbytes != expected",
        "False",
        "test_references.py::TestFaults::test_a_reference_of_a_wrong_length_is_an_error_with_both_and_the_remedy",
        "Of a reference to half a chunk, the rest is read from what follows it.",
    ),
    Mistake(
        "read_many.py",
        "_SmallChunk.exists_or_none_if_unclear",
        "len(self.missing) == len(self.requests)",
        "True",
        "test_get_many.py::TestAnswers::test_answers_that_never_come_are_asked_for_by_get",
        "A chunk for which no answer has come is read as the fill value.",
    ),
    Mistake(
        "read.py",
        "thread_count_for_files",
        "may_read_inline",
        "is_known_as_local",
        "test_threads.py::TestSeveralThreads::test_threads_are_as_many_as_requests_after_a_read_that_would_have_waited_for_the_disk",
        "Files outside the page cache are waited for one after another.",
    ),
    Mistake(
        "read.py",
        "_store_transports",
        "RequestSlots(limits) if is_whole_batch else",
        "",
        "test_remote.py::test_each_read_of_an_event_loop_has_the_limit_of_the_moment_for_itself",
        "The threads of Dask that read a chunk each wait for one another.",
    ),
    Mistake(
        "indexing/plan.py",
        "Plan.needs_nearly_whole_chunk",
        " and chunk_nbytes - self.nbytes <= self.gap",
        "",
        "test_explain.py::test_a_chunk_that_is_needed_except_for_its_first_or_last_bytes_needs_no_remedy",
        "More than the gap is read of a chunk.",
    ),
    Mistake(
        "io/tasks.py",
        "request_limits",
        "min(max_large, shards_at_once)",
        "1",
        "test_remote.py::test_zarr_limits_the_shards_at_once_and_the_requests_for_each",
        "All shards of a read share the requests of one.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.are_fill_values",
        "if self._converter is None:",
        "if True:",
        "test_elementwise_codecs.py::TestEmptyChunks::test_a_value_that_is_stored_as_the_fill_value_does_not_vanish",
        "A chunk of values that are stored as the fill value is not stored.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.inner_chunk_has_only_fill_values",
        "if not self.are_fill_values(new):",
        "if False:",
        "test_elementwise_codecs.py::TestEmptyChunks::test_a_value_that_is_stored_as_the_fill_value_does_not_vanish",
        "A part of such values in a missing chunk is not stored.",
    ),
    Mistake(
        "layout/objects.py",
        "ObjectLayout.stores_fill_value_exactly",
        "return found.tobytes() == self._fill_array.tobytes()",
        "return True",
        "test_elementwise_codecs.py::TestFillValuesThatCodecsChange::test_a_shard_keeps_inner_chunks_absent_in_place",
        "NaN becomes a number where nobody has written, in a shard that is made complete.",
    ),
    Mistake(
        "write.py",
        "ChunkUpdate.__init__",
        "elements = self.layout.encode_before_shards(elements)",
        "pass",
        "test_elementwise_codecs.py::TestWrites::test_the_stored_bytes_are_those_of_zarr",
        "The codecs before shards are left out of a write.",
    ),
    Mistake(
        "read.py",
        "Reader._fill_absent_and_yield_present",
        "layout.absent_inner_chunk_value",
        "layout.dtype.type()",
        "test_cost.py::TestReading::test_absent_inner_chunks_are_not_requested",
        "Absent inner chunks read as zeros.",
    ),
    Mistake(
        "indexing/plan_cache.py",
        "PlanCache.plan_of",
        "(one.start, one.stop, one.step)",
        "one.step",
        "test_layouts.py::test_a_kept_plan_serves_other_integers_of_a_selection",
        "A read with another slice gives elements of the last slice.",
    ),
    # Reading.
    Mistake(
        "read.py",
        "read_batch",
        " and known_stores.may_read_inline(root)",
        "",
        "test_threads.py::TestWaiting::test_a_chunk_outside_the_page_cache_keeps_reads_off_the_event_loop_for_a_second",
        "The event loop waits for files on a network.",
    ),
    Mistake(
        "read.py",
        "read_batch",
        "target = copy_if_maybe_mapped(out, paths, array_is_out=True)",
        "target = out",
        "test_pipeline.py::TestReadingIntoABufferOfTheCaller::test_a_read_fills_a_buffer_that_maps_the_file_itself",
        "A read into a mapping of the same file changes the file while it is read.",
    ),
    Mistake(
        "indexing/plan_cache.py",
        "PlanCache.take_prepared_read_if_kept",
        "self._prepared_reads.pop((key, layout), None)",
        "self._prepared_reads.get((key, layout))",
        "test_threads.py::TestOnTheEventLoop::test_threads_that_read_the_same_selection_at_once_share_no_scratch_memory",
        "Two threads that read the same selection of two chunks get each other's elements.",
    ),
    Mistake(
        "read.py",
        "Reader.__init__",
        "            out.dtype,\n            out.strides,\n            out.flags.behaved,\n",
        "",
        "test_layouts.py::test_a_kept_plan_reads_into_memory_of_any_form",
        "A result of another data type or memory order is filled like the last one.",
    ),
    Mistake(
        "read.py",
        "Reader._single_range_read",
        "view.flags.carray",
        "True",
        "test_layouts.py::test_long_ranges_in_native_byte_order_are_read_in_every_order_of_axes",
        "Long ranges are read into a result of another order of memory.",
    ),
    # Writing.
    Mistake(
        "write.py",
        "NO_GAPS",
        "RequestCost(0, UNLIMITED)",
        "RequestCost(2**15, UNLIMITED)",
        "test_cost.py::TestWriting::test_a_write_in_place_writes_the_selected_byte_ranges_and_no_others",
        "Bytes between the selected elements, which belong to other writers, are overwritten.",
    ),
    Mistake(
        "write.py",
        "SelectionUpdate.__init__",
        "selects_everything or (is_complete_chunk and not layout.keeps_padding)",
        "selects_everything or is_complete_chunk",
        "test_shards.py::test_elements_behind_the_edge_of_the_array_are_kept_as_by_zarr",
        "Elements behind the edge, which an array that was shrunk keeps, become the fill value.",
    ),
    Mistake(
        "write.py",
        "_bytes_of_new_object",
        "content[start : start + nbytes].copy()",
        "content[start : start + nbytes]",
        "test_view.py::TestArrays::test_a_replaced_chunk_is_seen_by_a_view_after_refresh",
        "A write to a chunk in memory changes the views of it, and the chunk even where the write fails.",
    ),
    Mistake(
        "write.py",
        "_locate",
        'elif not index.share_no_bytes_with_others(cast("list[int]", offsets)):',
        "if False:",
        "test_shards.py::TestInPlace::test_inner_chunks_that_share_bytes_are_separated_by_a_new_shard",
        "A write in place changes another inner chunk, which has the same bytes.",
    ),
    Mistake(
        "write.py",
        "ChunkUpdate._new_bytes_of_ranges",
        "len(slabs) == 1 and first_slab.selected_index is None",
        "len(slabs) == 1",
        "test_partial_write.py::TestForms::test_the_last_value_of_a_point_that_is_selected_twice_is_written",
        "A write with a repeated index overwrites the element behind the selection.",
    ),
    Mistake(
        "write.py",
        "ChunkUpdate._inner_chunk_blocks",
        "_inner_chunk_of_fill_values(layout) if inner is None else inner",
        "np.zeros(layout.inner_chunk_nbytes, np.uint8) if inner is None else inner",
        "test_cost.py::TestWriting::test_a_chunk_that_is_written_whole_is_not_read",
        "Elements of a new chunk that are not selected are zeros, and not the fill value.",
    ),
    Mistake(
        "write.py",
        "ChunkUpdate._inner_chunk_blocks",
        "merged = _inner_chunk_of_fill_values(layout) if inner is None else inner",
        "merged = _inner_chunk_of_fill_values(layout)",
        "test_partial_write.py::TestForms::test_as_many_indices_as_a_chunk_is_long_may_leave_some_out",
        "A write to a part of a chunk loses the rest of it.",
    ),
    Mistake(
        "layout/elements.py",
        "consists_of_repeated",
        'encoded[: len(element)].tobytes() not in (element, b"")',
        "any(encoded[: len(element)] & 0x7F)",
        "test_partial_write.py::TestNewAndEmptyChunks::test_numbers_equal_to_the_fill_value_with_other_bits_are_stored",
        "A chunk of -0.0 counts as empty, and reads as 0.0.",
    ),
    # Kept indexes of shards.
    Mistake(
        "io/index_cache.py",
        "IndexCache.get",
        "if is_of_store and kept.content.size == index_nbytes",
        "if is_of_store",
        "test_remote.py::TestIndexCache::test_has_no_index_of_another_length",
        "The index of another chunk shape is read for that of a shard.",
    ),
    # The pipeline, the codec and the chains: what is left to zarr.
    Mistake(
        "pipeline.py",
        "BatchedBytesPipeline.from_codecs",
        "if _is_chosen():",
        "if True:",
        "test_choice_of_pipeline.py::test_zarrs_pipeline_or_codec_is_used_where_the_user_chooses_it",
        "Chunks are read by this package although the user has chosen another codec.",
    ),
    Mistake(
        "pipeline.py",
        "BatchedBytesPipeline.__reduce_ex__",
        "self.in_place or ",
        "",
        "test_pickles.py::TestArrays::test_arrays_equal_their_pickles_which_load_without_this_package",
        "Workers that get a pickled array replace chunks that they share.",
    ),
    Mistake(
        "chains.py",
        "is_uncompressed",
        "type(last) in SAME_BYTES_CLASSES",
        "isinstance(last, tuple(SAME_BYTES_CLASSES))",
        "test_pipeline.py::TestWhatIsLeftToZarr::test_a_subclass_of_a_codec_is_left_to_zarrs_pipeline",
        "Chunks of a subclass of the codec, which may store other bytes, are read as this codec's.",
    ),
    Mistake(
        "codec.py",
        "BytesCodec.evolve_from_array_spec",
        "if dtype.names is not None:",
        "if True:",
        "test_specification.py::TestEndianParameter::test_is_required_for_multi_byte_data_types",
        "Numbers without a byte order in the metadata are read as little-endian.",
    ),
    # Views.
    Mistake(
        "views.py",
        "_Blocks.load",
        "block.flags.writeable and not inner_chunk_index.share_no_bytes_with_others([offset])",
        "False",
        "test_shards.py::TestInPlace::test_inner_chunks_that_share_bytes_are_separated_by_a_new_shard",
        "A change through a view changes another inner chunk too.",
    ),
    Mistake(
        "views.py",
        "ArrayView.refresh",
        "self._load_block = self._blocks.load_with_new_caches()",
        "pass",
        "test_view.py::TestWriting::test_flush_is_an_error_for_changes_of_a_chunk_that_was_replaced",
        "A view goes on to show, and to change, chunks that others have replaced.",
    ),
    Mistake(
        "views.py",
        "_values_to_assign",
        "values = values.copy()",
        "pass",
        "test_view.py::TestWriting::test_a_value_assigned_to_a_view_may_overlap_its_target",
        "An assignment from a view of the same file overwrites elements before it reads them.",
    ),
    Mistake(
        "indexing/numpy_selection.py",
        "_bounding_slice",
        "return slice(low, high + 1)",
        "return slice(low, low + 1)",
        "test_view.py::TestSelections::test_selections_of_views_are_numpys_for_any_array_and_layout",
        "A selection of a view ends at the end of the first chunk.",
    ),
    # Fill values.
    Mistake(
        "data_type/fill_value.py",
        "float_to_json",
        "is_canonical = bits == FLOATS[_name_of(value.dtype)].nan",
        "is_canonical = True",
        "test_fill_value.py::test_every_float_fill_value_goes_to_json_and_back_with_its_hexadecimal_digits",
        "The bits of a NaN fill value are lost when metadata is written again.",
    ),
    # Commands.
    Mistake(
        "io/file_writing.py",
        "create_file_if_missing",
        "_publish_by_link",
        "_publish_by_replace",
        "test_meanwhile.py::test_preallocate_keeps_a_chunk_file_that_others_make_meanwhile",
        "`preallocate` replaces chunks that writers make meanwhile.",
    ),
    Mistake(
        "commands/check.py",
        "_StoreCheck._find_fault_or_raise_if_missing",
        "ShardIndex(layout, full_key, content, size)",
        "ShardIndex(layout, full_key, content, None)",
        "test_check.py::TestChunks::test_a_wrong_size_of_a_chunk_or_a_damaged_shard_index_is_found",
        "`check` says that a truncated shard conforms.",
    ),
]
