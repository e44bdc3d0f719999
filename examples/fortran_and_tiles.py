"""Two arrays that a codec alone cannot speed up, read through a pipeline: seconds and bytes.

- A simulation in Fortran has dumped a field, `write(10) temperature`; its first axis varies
  fastest. A zarr.json and a link to the file make it a Zarr array, transposed, of one chunk.
- A map in 1,024 tiles of 1 KiB, each a chunk.

zarr reads the whole file for any selection of the field, because a `transpose` stands before the
codec, and spends its time on scheduling for the map. `zarr_bytes.BatchedBytesPipeline` and zarrs, a
pipeline in Rust, read what is selected.

    python examples/fortran_and_tiles.py [--picture PATH]

Needs zarrs, Linux for its count of bytes, and matplotlib for the picture.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
import zarr

import zarr_bytes

HERE = Path(__file__).parent
FIELD = (250, 160, 100)  # x, y, z of float64: 32 MB
TILES, TILE = (512, 512), (16, 16)  # of float32
LEVEL, PLACE = np.s_[:, :, 60], np.s_[120, 80, :]
READS = {  # what is read, and the bytes that are selected
    "a level of the field": ("field", LEVEL, 250 * 160 * 8),
    "a profile of the field": ("field", PLACE, 100 * 8),
    "the whole field": ("field", ..., 250 * 160 * 100 * 8),
    "the map": ("map", ..., 512 * 512 * 4),
}
PIPELINES = {  # and the codec
    "zarr": ("zarr.core.codec_pipeline.BatchedCodecPipeline", "zarr.codecs.bytes.BytesCodec"),
    "zarrs": ("zarrs.ZarrsCodecPipeline", "zarr.codecs.bytes.BytesCodec"),
    "zarr-bytes": ("zarr_bytes.BatchedBytesPipeline", "zarr_bytes.codec.BytesCodec"),
}
COUNTERS = 4096  # bytes at most that counting costs


def opened(path: Path, name: str) -> zarr.Array:
    """Open an array with one of the pipelines."""
    pipeline, codec = PIPELINES[name]
    with zarr.config.set({"codec_pipeline.path": pipeline, "codecs.bytes": codec}):
        return zarr.open_array(path, mode="r")


def write_field(folder: Path) -> np.ndarray:
    """Write a warm plume as Fortran does, and describe the file as a Zarr array."""
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in FIELD), indexing="ij", sparse=True)
    bend = x - 0.25 * np.sin(3 * z)
    temperature = 285 - 6 * z + 12 * np.exp(-(bend**2 + y**2) / (0.05 + 0.04 * (z + 1)))
    file = folder / "temperature.raw"
    temperature.T.tofile(file)  # the first axis fastest
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": FIELD,
        "data_type": "float64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": FIELD}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [
            {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
            {"name": "bytes", "configuration": {"endian": "little"}},
        ],
    }
    chunk = folder / "field/c/0/0/0"
    chunk.parent.mkdir(parents=True)
    chunk.symlink_to(file)
    (folder / "field/zarr.json").write_text(json.dumps(document, indent=2))
    return temperature


def write_map(folder: Path) -> np.ndarray:
    """Write hills in tiles."""
    north, east = np.mgrid[0 : 12 : 1j * TILES[0], 0 : 12 : 1j * TILES[1]]
    heights = np.float32(200 + 90 * np.sin(east + np.cos(north)) * np.cos(0.7 * north))
    with zarr.config.set({"codec_pipeline.path": "zarr_bytes.BatchedBytesPipeline"}):
        zarr.create_array(
            folder / "map",
            data=heights,
            chunks=TILE,
            compressors=None,
            serializer=zarr_bytes.BytesCodec(endian="little"),
        )
    return heights


def bytes_read() -> int:
    """Bytes that this process has read from files so far, as Linux counts them."""
    counters = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in counters)["rchar"])


def measure(array: zarr.Array, selection: object, expected: np.ndarray) -> tuple[int, float]:
    """Bytes and seconds of a read, the median of three; the values must be those of NumPy."""
    if not np.array_equal(array[selection], expected):  # and what a first read imports is read
        raise SystemExit("zarr and NumPy read different values")
    counts, seconds = [bytes_read()], []
    for _ in range(3):
        started = perf_counter()
        array[selection]
        seconds.append(perf_counter() - started)
        counts.append(bytes_read())
    return int(min(np.diff(counts))), median(seconds)


def draw(level: np.ndarray, taken: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the level, and the milliseconds of each read."""
    plt.style.use(HERE / "style.mplstyle")
    figure, (chart, times) = plt.subplots(2, figsize=(5, 6), height_ratios=[4, 5])
    chart.contourf(level.T, levels=12, cmap="RdBu_r")
    chart.set_title("A level of a field that Fortran wrote:\nin the file it is one run of bytes")
    chart.set_xlabel("x")
    chart.set_ylabel("y")
    colours = {"zarr": "C0", "zarrs": "0.35", "zarr-bytes": "C1"}
    for i, seconds in enumerate(taken.values()):
        for j, (name, value) in enumerate(seconds.items()):
            y = i + 0.24 * (j - 1)
            times.plot(1e3 * value, y, "o", ms=6, color=colours[name], label=None if i else name)
            text = f"{1e3 * value:,.0f} ms" if value > 0.01 else f"{1e3 * value:.1f} ms"
            times.annotate(
                text,
                (1e3 * value, y),
                (7, 0),
                textcoords="offset points",
                va="center",
                color=colours[name],
                fontsize="small",
            )
    times.set_yticks(range(len(taken)), list(taken))
    times.invert_yaxis()
    times.set_xscale("log")
    times.set_xlim(right=4 * times.get_xlim()[1])
    times.xaxis.set_major_formatter("{x:,.10g}")
    times.set_xlabel("milliseconds (logarithmic)")
    figure.legend(loc="outside lower right", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(f"picture  {path}")


def main() -> None:
    """Read both arrays through each pipeline, and print what that cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, default=HERE / "output/fortran_and_tiles.png")
    picture = parser.parse_args().picture

    taken = {}
    print(f"{'':24}{'pipeline':>12}{'read':>20}{'time':>12}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        values = {"field": write_field(folder), "map": write_map(folder)}
        whole = values["field"].nbytes
        for what, (array, selection, nbytes) in READS.items():
            taken[what] = {}
            for pipeline in PIPELINES:
                expected = values[array][selection]
                read, seconds = measure(opened(folder / array, pipeline), selection, expected)
                taken[what][pipeline] = seconds
                print(f"{what:24}{pipeline:>12}{read:>14,} bytes{seconds * 1e3:>9.1f} ms")
                if pipeline == "zarr" and array == "field" and read < whole:
                    raise SystemExit("zarr should have read the whole file")
                if pipeline == "zarr-bytes" and not nbytes <= read <= nbytes + COUNTERS:
                    raise SystemExit(f"zarr-bytes should have read {nbytes:,} bytes")
    draw(values["field"][LEVEL], taken, picture)


if __name__ == "__main__":
    main()
