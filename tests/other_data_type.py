"""A data type as another package would bring it: bfloat16 under a name of its own."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from zarr.dtype import ZDType


@dataclass(frozen=True, kw_only=True)
class Half(ZDType):
    dtype_cls = type(np.dtype(ml_dtypes.bfloat16))
    _zarr_v3_name = "example.half"

    @classmethod
    def from_native_dtype(cls, dtype):
        return cls()

    def to_native_dtype(self):
        return np.dtype(ml_dtypes.bfloat16)

    @classmethod
    def _from_json_v2(cls, data):
        raise NotImplementedError

    @classmethod
    def _from_json_v3(cls, data):
        return cls()

    def to_json(self, zarr_format):
        return self._zarr_v3_name

    def _check_scalar(self, data):
        return True

    def cast_scalar(self, data):
        return ml_dtypes.bfloat16(data)

    def default_scalar(self):
        return ml_dtypes.bfloat16(0)

    def from_json_scalar(self, data, *, zarr_format):
        return ml_dtypes.bfloat16(data)

    def to_json_scalar(self, data, *, zarr_format):
        return float(data)
