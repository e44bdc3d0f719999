"""A memory that is not NumPy's, as that of a device: what is in it is left to zarr."""

import numpy as np
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.buffer import cpu


class DeviceBuffer(Buffer):  # no subclass of zarr's CPU buffer
    create_zero_length = from_buffer = combine = None

    @classmethod
    def from_bytes(cls, data):
        return cls(np.frombuffer(data, "u1"))

    def as_numpy_array(self):
        return self._data


DeviceBuffer.__abstractmethods__ = frozenset()


class DeviceNDBuffer(cpu.NDBuffer):
    pass


PROTOTYPE = BufferPrototype(DeviceBuffer, DeviceNDBuffer)
