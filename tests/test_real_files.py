"""Files that others wrote, through kerchunk's references, which are arrays of Zarr format 2.

The files are those of the tests of astropy, h5py, pydicom, SciPy and VirtualiZarr, which their
wheels have. (kerchunk has none.)
"""

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from stored_arrays import PLAIN_ZARR
from zarr.storage import FsspecStore

from zarr_bytes import counting

# kerchunk and the readers of files warn of what is theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NO_GAPS = {"zarr_bytes.gap.local": 0}  # most of the files are shorter than a gap


def files_in(package, pattern):
    """Files of an installed package."""
    (folder,) = pytest.importorskip(package).__path__
    return sorted(Path(folder).rglob(pattern))


def opened(references, name):
    """One array of a group of references."""
    fsspec = pytest.importorskip("fsspec")
    options = {"remote_protocol": "file", "asynchronous": True, "skip_instance_cache": True}
    system = fsspec.filesystem("reference", fo=references, **options)
    group = zarr.open_group(FsspecStore(system, read_only=True), mode="r", zarr_format=2)
    return group[name]


def check(references, name, expected):
    """The array has the values that zarr reads and `expected`, and a point fetches itself alone."""
    with zarr.config.set(PLAIN_ZARR):
        of_zarr = opened(references, name)[...]
    with zarr.config.set(NO_GAPS):
        array = opened(references, name)
        with counting() as counted:
            found = array[...]
        assert counted.chunks == 1
        assert (found.dtype, found.shape) == (of_zarr.dtype, of_zarr.shape)
        assert found.tobytes() == of_zarr.tobytes()
        assert found.shape == expected.shape
        assert found.tobytes() == expected.astype(found.dtype, copy=False).tobytes()
        middle = tuple(slice(size // 2, size // 2 + 1) for size in array.shape)
        with counting() as counted:
            point = array[middle]
        assert point.tobytes() == found[middle].tobytes()
        assert counted.bytes_fetched == array.dtype.itemsize


def fields_are_scalars(table):
    """Whether zarr has a data type for the rows of a FITS table."""
    dtype = table.columns.dtype
    has_lists = any(column.format.startswith(("P", "Q")) for column in table.columns)
    return not has_lists and all(dtype[name].subdtype is None for name in dtype.names)


def test_images_and_tables_of_fits_files_are_those_of_astropy():
    """Of images that a header scales, the stored numbers, without kerchunk's filter."""
    pytest.importorskip("kerchunk")
    files = files_in("astropy", "*.fits")
    from astropy.io import fits
    from kerchunk.fits import process_file

    checked = []
    for file in files:
        if not file.read_bytes().startswith(b"SIMPLE"):
            continue  # of the files, one is text
        with fits.open(file, do_not_scale_image_data=True) as units:
            for number, unit in enumerate(units):
                is_image = type(unit) in (fits.PrimaryHDU, fits.ImageHDU)
                is_table = type(unit) is fits.BinTableHDU and fields_are_scalars(unit)
                if not (is_image or is_table) or unit.data is None or not unit.data.size:
                    continue
                references = process_file(str(file), extension=[number])
                (document,) = [key for key in references if key.endswith("/.zarray")]
                unfiltered = json.loads(references[document]) | {"filters": None}
                references[document] = json.dumps(unfiltered)
                name = document.removesuffix("/.zarray")
                check({"version": 1, "refs": references}, name, np.asarray(unit.data))
                checked.append(type(unit))
    assert len(checked) > 30
    assert {*checked} == {fits.PrimaryHDU, fits.ImageHDU, fits.BinTableHDU}


def test_contiguous_datasets_of_hdf5_files_are_those_of_h5py():
    h5py = pytest.importorskip("h5py")
    hdf = pytest.importorskip("kerchunk.hdf")
    checked = 0
    for file in files_in("h5py", "*.h5"):
        references = hdf.SingleHdf5ToZarr(str(file), inline_threshold=0).translate()
        with h5py.File(file) as datasets:
            for name, dataset in datasets.items():
                if dataset.dtype.kind != "O":
                    check(references, name, dataset[...])
                    checked += 1
    assert checked > 5


def test_variables_of_netcdf_3_files_are_those_of_scipy():
    netcdf3 = pytest.importorskip("kerchunk.netCDF3")
    files = files_in("scipy", "*.nc")
    from scipy.io import netcdf_file

    checked = 0
    for file in files:
        references = netcdf3.NetCDF3ToZarr(str(file), inline_threshold=0).translate()
        with netcdf_file(file, mmap=False) as variables:
            for name, variable in variables.variables.items():
                metadata = json.loads(references["refs"][f"{name}/.zarray"])
                if metadata["compressor"] is None:
                    check(references, name, variable[...])
                    checked += 1
    assert checked > 1


def check_raw(file, offset, dtype, expected):
    """An array at an offset of a file, for which the references are written by hand."""
    document = {
        "zarr_format": 2,
        "shape": expected.shape,
        "chunks": expected.shape,
        "dtype": np.dtype(dtype).str,
        "order": "C",
        "fill_value": 0,
        "compressor": None,
        "filters": None,
    }
    key = ".".join(["0"] * expected.ndim)
    references = {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "raw/.zarray": json.dumps(document),
        f"raw/{key}": [str(file), offset, expected.size * np.dtype(dtype).itemsize],
    }
    check({"version": 1, "refs": references}, "raw", expected)


def test_pixels_of_uncompressed_dicom_files_are_those_of_pydicom():
    pydicom = pytest.importorskip("pydicom")
    checked = set()
    for file in files_in("pydicom", "*.dcm"):
        dataset = pydicom.dcmread(file, force=True)
        syntax = getattr(dataset.file_meta, "TransferSyntaxUID", None)
        is_plain = syntax is not None and not (syntax.is_compressed or syntax.is_deflated)
        if not is_plain or "PixelData" not in dataset:
            continue
        try:
            expected = dataset.pixel_array
        except (AttributeError, ValueError):
            continue  # it is truncated, or has no numbers where they belong
        if expected.ndim != 2 or dataset.BitsAllocated % 8:
            continue
        order = "<" if syntax.is_little_endian else ">"
        kind = "i" if dataset.PixelRepresentation else "u"
        dtype = np.dtype(f"{order}{kind}{dataset.BitsAllocated // 8}")
        offset = pydicom.dcmread(file, force=True).get_item("PixelData").value_tell
        check_raw(file, offset, dtype, expected)
        checked.add(dtype)
    assert {np.dtype("<u2"), np.dtype(">i2"), np.dtype("u1")} <= checked


def test_raw_images_with_envi_headers_are_those_of_numpy():
    checked = []
    for header in files_in("virtualizarr", "*rgbsmall*.hdr"):
        pairs = (line.split("=") for line in header.read_text().splitlines() if " = " in line)
        found = {name.strip(): value.strip() for name, value, *_ in pairs}
        sizes = {name[0]: int(found[name]) for name in ("samples", "lines", "bands")}
        axes = {"bsq": "bls", "bil": "lbs", "bip": "lsb"}[found["interleave"]]
        file = header.with_suffix(".img")
        expected = np.fromfile(file, "u1").reshape([sizes[axis] for axis in axes])
        check_raw(file, int(found["header offset"]), "u1", expected)
        checked.append(axes)
    assert sorted(checked) == ["bls", "lbs", "lsb"]
