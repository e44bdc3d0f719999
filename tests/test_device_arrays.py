"""Buffers that are not NumPy's, as a GPU's: no type there is in the other byte order.

The stand-in below offers what array libraries share and refuses the rest, so a change that needs
more than that fails here, on machines without a GPU.
"""

from itertools import product

import numpy as np
import pytest

from zarr_bytes import BoolValueError, ChunkSizeError
from zarr_bytes.layout.elements import decode_elements, encode_elements


class DeviceArray:
    """An array of another library: indexing, `view`, `reshape`, `copy`, comparison, reductions."""

    def __init__(self, values):
        if not values.dtype.isnative or values.dtype.kind not in "biufc":
            raise TypeError(f"no such type on the device: {values.dtype}")
        self._values = values
        self.dtype, self.shape, self.size = values.dtype, values.shape, values.size

    def __getitem__(self, key):
        return DeviceArray(self._values[key])

    def __setitem__(self, key, value):
        self._values[key] = getattr(value, "_values", value)

    def view(self, dtype):
        return DeviceArray(self._values.view(dtype))

    def reshape(self, *shape):
        return DeviceArray(self._values.reshape(*shape))

    def ravel(self):
        return DeviceArray(self._values.ravel())

    def copy(self):
        return DeviceArray(self._values.copy())

    def max(self):
        return DeviceArray(self._values.max(keepdims=True))

    def argmax(self):
        return int(self._values.argmax())

    def __gt__(self, other):
        return DeviceArray(self._values > other)

    def __ne__(self, other):
        return DeviceArray(self._values != other)

    def __int__(self):
        return int(self._values.item())

    __array__ = None  # never an implicit copy to the host
    __hash__ = None


VIEWS = [np.s_[:], np.s_[::-1, ::2], np.s_[1, 2], np.s_[:0]]


@pytest.mark.parametrize("dtype", "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16".split())
def test_values_are_encoded_and_decoded_in_either_byte_order(dtype):
    values = np.arange(24).reshape(4, 6).astype(dtype)
    for view, endian in product(VIEWS, ["little", "big"]):
        host = np.asarray(values[view])
        encoded = encode_elements(DeviceArray(host), endian)
        stored = np.dtype(dtype).newbyteorder(endian)
        assert encoded._values.tobytes() == host.astype(stored).tobytes()
        decoded = decode_elements(encoded, stored, host.shape, endian)
        assert decoded.dtype == np.dtype(dtype)
        assert np.array_equal(decoded._values, host)


def test_the_machines_byte_order_is_not_copied():
    host = np.arange(6, dtype="=f4").reshape(2, 3)
    encoded = encode_elements(DeviceArray(host), None)
    assert np.shares_memory(encoded._values, host)
    assert np.shares_memory(decode_elements(encoded, host.dtype, (2, 3), None)._values, host)


def test_wrong_bools_and_sizes_are_refused_there_too():
    stored = DeviceArray(np.array([1, 0, 5, 1], "u1"))
    with pytest.raises(BoolValueError, match=r"found 5 at index \(1, 0\)"):
        decode_elements(stored, np.dtype("?"), (2, 2), None)
    with pytest.raises(ChunkSizeError, match="has 16 bytes, found 4"):
        decode_elements(stored, np.dtype("f4"), (4,), "big")
