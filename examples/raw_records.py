"""A record file of an instrument, read as Zarr in place: nothing is copied or converted.

A seismometer writes one record each second, as a C program would: the time in nanoseconds and the
number of the station, big-endian, then 1000 samples of 24 bits. The file becomes the one chunk of
two arrays, each a folder with a zarr.json and a link to the file:

- `records`: one element for each record, with its fields;
- `samples`: rows of `r24`, a data type of 3 bytes, the size of a sample.

A bisection finds the moment of an earthquake, and only the seconds around it are read.

    python examples/raw_records.py [--picture PATH]

Needs Linux for its count of bytes, and matplotlib for the picture.
"""

import base64
import bisect
import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import gallery
import numpy as np
import zarr

import zarr_bytes  # noqa: F401  # for r24: zarr before 3.4 does not load data types by itself

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADER = struct.Struct(">QI")  # time in ns since 1970, station
SAMPLES = 1000  # in each record, of 3 bytes
RECORD = HEADER.size + 3 * SAMPLES
COUNT = 50_000  # records: 150 MB
START, SECOND = 1_767_225_600 * 10**9, 10**9  # 2026-01-01
QUAKE = START + 30_000 * SECOND


def write(path: Path) -> None:
    """Write noise, with an earthquake in it."""
    seconds = np.arange(40 * SAMPLES) / SAMPLES
    waves = np.sin(40 * seconds) * np.exp(-seconds / 2)  # P, and after 8 seconds S
    later = seconds[: 32 * SAMPLES]
    waves[8 * SAMPLES :] += 4 * np.sin(15 * later) * np.exp(-later / 5)
    noise = np.random.default_rng(0).normal(0, 4e4, SAMPLES)
    with path.open("wb") as file:
        for i in range(COUNT):
            time = START + i * SECOND
            trace = np.roll(noise, 37 * i)
            if 0 <= (second := (time - QUAKE) // SECOND) < 40:
                trace = trace + 1e6 * waves[second * SAMPLES :][:SAMPLES]
            samples = trace.astype(">i4").view("u1").reshape(-1, 4)[:, 1:]  # the lower 24 bits
            file.write(HEADER.pack(time, 17) + samples.tobytes())


def describe(folder: Path, file: Path, shape: tuple, data_type: object, fill_value: object) -> None:
    """Make an array of one chunk, which is `file`."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
    }
    chunk = folder.joinpath("c", *"0" * len(shape))
    chunk.parent.mkdir(parents=True)
    chunk.symlink_to(file)
    (folder / "zarr.json").write_text(json.dumps(document, indent=2))


def draw(trace: np.ndarray, title: str) -> "Figure":
    """Draw the seconds around the earthquake."""
    figure, axes = gallery.new_figure()
    axes.plot(np.arange(trace.size) / SAMPLES - 5, trace / 1e6, gallery.BLUE, lw=0.6)
    axes.set_title(title)
    axes.set_xlabel("time after the first wave (seconds)")
    axes.set_ylabel("ground motion (million counts)")
    axes.margins(x=0)
    return figure


def find(records: zarr.Array) -> int:
    """The record of the earthquake, by bisection."""
    return bisect.bisect_left(range(COUNT), QUAKE, key=lambda i: int(records[i]["time"]))


def main() -> None:
    """Find the earthquake, and read it."""
    picture = gallery.picture_path(__doc__)
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "station17.raw"
        write(file)
        fields = [
            ["time", "uint64"],
            ["station", "uint32"],
            ["samples", {"name": "raw_bytes", "configuration": {"length_bytes": 3 * SAMPLES}}],
        ]
        # As written by zarr 3.1, and read by every zarr; newer ones write {"name": "struct", ...}.
        record = {"name": "structured", "configuration": {"fields": fields}}
        zeros = base64.b64encode(bytes(RECORD)).decode()
        describe(folder / "records", file, (COUNT,), record, zeros)
        describe(folder / "samples", file, (COUNT, RECORD // 3), "r24", [0, 0, 0])

        records = zarr.open_array(folder / "records", mode="r")
        samples = zarr.open_array(folder / "samples", mode="r")
        with zarr.config.set(gallery.PLAIN_ZARR):
            plain = zarr.open_array(folder / "records", mode="r")
        print(f"{file.name}: {file.stat().st_size:,} bytes, {COUNT:,} records of {RECORD:,} bytes")

        found = find(records)
        seconds = slice(found - 5, found + 40)
        rows = samples[seconds, HEADER.size // 3 :]
        costs = {
            "one record": gallery.costs_in_turn(
                {"plain zarr": lambda: plain[found], "zarr-bytes": lambda: records[found]}
            ),
            "16 records, by bisection": {
                "plain zarr": gallery.cost(lambda: find(plain), times=1),
                "zarr-bytes": gallery.cost(lambda: find(records)),
            },
        }
        fetched = gallery.cost(lambda: samples[seconds, HEADER.size // 3 :])

        # 24 bits are the upper three bytes of 32, shifted down again with their sign.
        padded = np.zeros((*rows.shape, 4), "u1")
        padded[..., :3] = rows.view("u1").reshape(*rows.shape, 3)
        trace = padded.view(">i4").ravel() >> 8

        with file.open("rb") as raw:  # the expected values, without Zarr
            raw.seek(seconds.start * RECORD)
            expected = []
            for _ in range(seconds.start, seconds.stop):
                time, station = HEADER.unpack(raw.read(HEADER.size))
                data = raw.read(3 * SAMPLES)
                expected += [
                    int.from_bytes(data[i : i + 3], "big", signed=True)
                    for i in range(0, len(data), 3)
                ]
        last = records[seconds.stop - 1]
    if trace.tolist() != expected or (last["time"], last["station"]) != (time, station):
        raise SystemExit("zarr and struct read different values")
    searched = costs["16 records, by bisection"]["zarr-bytes"]
    if searched.nbytes > 16 * (RECORD + 64) or fetched.nbytes > 45 * RECORD:
        raise SystemExit("zarr-bytes should have read the selected records alone")
    table = [gallery.compared(what, ways) for what, ways in costs.items()]
    cells = "45 s of samples", "has no r24", "", fetched.in_bytes, gallery.in_time(fetched.seconds)
    table.append(dict(zip(table[0], cells, strict=True)))
    size = f"{gallery.in_size(fetched.nbytes)} of {gallery.in_size(RECORD * COUNT)}"
    gallery.finish(draw(trace, f"45 seconds of 14 hours: {size} read"), table, picture)


if __name__ == "__main__":
    main()
