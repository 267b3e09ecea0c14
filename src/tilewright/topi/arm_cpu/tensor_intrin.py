"""TVM's names of the tensor intrinsics for bytes on AArch64."""

from __future__ import annotations

from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.topi.cpu.byte_products import ByteProduct, product_intrinsic


def dot_int8_int8_int32(int32_lanes: int, dtype: str = "uint") -> te.TensorIntrin:
    """Return ``sdot`` (``dtype`` "int") or ``udot`` ("uint"): 4 bytes with 4 bytes of each of 4 lanes."""
    if int32_lanes != 4 or dtype not in ("int", "uint"):
        raise TilewrightError(f"dot products of bytes have 4 lanes of int or uint, found {int32_lanes} of {dtype}")
    return product_intrinsic(ByteProduct("dotprod", f"{dtype}8", f"{dtype}8", 4, 4))


__all__ = ["dot_int8_int8_int32"]
