"""TVM's names of the tensor intrinsics for bytes on x86-64; all of them give exact sums."""

from __future__ import annotations

from tilewright import te
from tilewright.ir.errors import TilewrightError
from tilewright.target.features import CpuFeatures, features
from tilewright.topi.cpu.byte_products import ByteProduct, byte_product, product_intrinsic


def dot_16x1x16_uint8_int8_int32() -> te.TensorIntrin:
    """Return the product of 4 bytes with 4 bytes of each lane that is the fastest on the current target."""
    form = byte_product()
    if form.group == 4 and _machine().arch == "x86":
        return product_intrinsic(form)
    return dot_16x1x16_uint8_int8_int32_skylake()


def dot_16x1x16_uint8_int8_int32_skylake() -> te.TensorIntrin:
    """Return the product in lanes of the current target's vectors, without VNNI; it does not saturate."""
    lanes = 16 if _machine().has("avx512bw") else 8 if _machine().has("avx2") else 4
    return product_intrinsic(ByteProduct("halves", "uint8", "int8", lanes, 4))


def dot_16x1x16_uint8_int8_int32_cascadelake() -> te.TensorIntrin:
    """Return the product of AVX512-VNNI: 16 lanes."""
    return product_intrinsic(ByteProduct("avx512vnni", "uint8", "int8", 16, 4))


def _machine() -> CpuFeatures:
    cpu = features()
    if cpu.arch != "x86":
        raise TilewrightError(f"x86-64's intrinsics of bytes need an x86-64 target, found {cpu.triple}")
    return cpu


__all__ = [
    "dot_16x1x16_uint8_int8_int32", "dot_16x1x16_uint8_int8_int32_cascadelake", "dot_16x1x16_uint8_int8_int32_skylake",
]  # fmt: skip
