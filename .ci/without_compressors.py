"""A plugin of pytest: new arrays have no compressor, where a test does not name one."""

import zarr.core.array

zarr.core.array.default_compressors_v3 = lambda dtype: ()  # noqa: ARG005
