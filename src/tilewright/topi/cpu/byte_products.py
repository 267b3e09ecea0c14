"""Sums of products of bytes in vector registers: which instructions a processor has for them, as tensor intrinsics.

All forms compute the same exact int32 sums, of one word of data (``group`` numbers) times a vector of weights::

    out[j] += sum(int32(data[k]) * int32(weight[j, k]) for k in range(group))       j in range(lanes)

They differ in the type of the data that they take, and in how many numbers a word of data has:

============= ===== ======= ====================================================================================
form          group data    instructions
============= ===== ======= ====================================================================================
avx512vnni    4     uint8   ``vpdpbusd`` of 16 lanes
avxvnni       4     uint8   ``vpdpbusd`` of 8 lanes
maddubs       4     uint8   ``pmaddubsw``, ``pmaddwd``: only of small weights, since the first saturates at 16 bits
madd          2     int16   ``pmaddwd``, weights widened as they are loaded
halves        4     uint8   ``pmaddwd`` of the even and of the odd bytes: for schedules that have no data in int16
dotprod       4     int8    ``sdot``
dotprod       4     uint8   ``udot``, of weights in uint8
i8mm          4     uint8   ``usdot``
avx512bf16    2     bfloat16  ``vdpbf16ps`` of 16 lanes, whose sums are float32
plain         1     as is   what LLVM, or a C compiler, makes of loops
============= ===== ======= ====================================================================================

Data that is int8 where uint8 is taken, or the other way round, becomes it by ``x ^ 0x80``, with 128 more or less of
a zero point. Data for ``int16`` may be less its zero point already.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright import te, tir
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.features import CpuFeatures, features
from tilewright.target.target import Target
from tilewright.tir import ir_builder

_BYTES = 4  # of a 32-bit word
_LARGEST_PAIR = (2**15 - 1) // 255  # of two weights, whose products with uint8 add up to at most 16 bits


@dataclass(frozen=True)
class ByteProduct:
    """A form of the product: the types that it takes, and its extents.

    Packed weights are (..., lanes, group) in memory, so that a vector register holds ``lanes`` columns' ``group``
    neighbours along the sum; a column of zeros pads them, and so do zeros at the sum's end.
    """

    name: str
    data_dtype: str
    weight_dtype: str
    lanes: int
    group: int = 1

    @property
    def sums(self) -> str:
        """Return the data type of the sums."""
        return "float32" if dt.is_half(self.weight_dtype) else "int32"

    @property
    def registers(self) -> int:
        """Return how many registers a product needs besides sums, weights and data."""
        return {"madd": 1, "maddubs": 2}.get(self.name, 0)

    @property
    def is_fast(self) -> bool:
        """Return whether there are instructions for it, so that it takes less time than float32."""
        return self.name != "plain"


def byte_product(
    data_dtype: str = "uint8",
    weight_dtype: str = "int8",
    small_weights: bool = False,
    target: Target | str | None = None,
) -> ByteProduct:
    """Return the fastest exact form for ``target``.

    Parameters
    ----------
    data_dtype : what the data is, which decides only where instructions for several are as fast
    weight_dtype : what the weights are: int8, or uint8, for which AArch64 has ``udot`` and others have nothing fast
    small_weights : whether ``are_small`` holds for the weights as they are packed
    """
    if isinstance(target, str):
        target = Target(target)
    chosen = target or Target.current()
    if chosen is not None and not chosen.kind.capabilities.machine_code:
        return ByteProduct("plain", data_dtype, weight_dtype, 4)
    cpu = features(chosen)
    found = None
    if weight_dtype == "bfloat16":
        if not (cpu.arch == "x86" and cpu.has("avx512bf16")):
            return ByteProduct("plain", weight_dtype, weight_dtype, cpu.lanes(32))
        return ByteProduct("avx512bf16", weight_dtype, weight_dtype, 16, 2)
    if cpu.arch == "x86" and weight_dtype == "int8":
        found = _x86(cpu, small_weights)
    elif cpu.arch == "aarch64":
        found = _aarch64(cpu, data_dtype, weight_dtype)
    return found or ByteProduct("plain", data_dtype, weight_dtype, cpu.lanes(32))


def packed_form(data_dtype: str, weight_dtype: str, group: int, small_weights: bool = False) -> ByteProduct:
    """Return the form that bytes packed in groups were packed for, under the current target."""
    form = byte_product(data_dtype, weight_dtype, small_weights and group == _BYTES)
    if form.name == "madd" and (data_dtype, group) == ("uint8", _BYTES):
        return ByteProduct("halves", "uint8", "int8", form.lanes, _BYTES)
    if (form.data_dtype, form.group) != (data_dtype, group):
        raise TilewrightError(
            f"weights packed in groups of {group} for {data_dtype} are of another target: this one has groups of "
            f"{form.group} for {form.data_dtype}"
        )
    return form


def _x86(cpu: CpuFeatures, small_weights: bool) -> ByteProduct:
    lanes = 16 if cpu.has("avx512bw") else 8 if cpu.has("avx2") else 4
    if cpu.has("avx512vnni") and lanes == 16:
        return ByteProduct("avx512vnni", "uint8", "int8", lanes, 4)
    if cpu.has("avxvnni") and cpu.has("avx2"):
        return ByteProduct("avxvnni", "uint8", "int8", 8, 4)
    if small_weights and cpu.has("ssse3"):
        return ByteProduct("maddubs", "uint8", "int8", lanes, 4)
    return ByteProduct("madd", "int16", "int8", lanes, 2)


def _aarch64(cpu: CpuFeatures, data_dtype: str, weight_dtype: str) -> ByteProduct | None:
    if weight_dtype == "uint8":
        return ByteProduct("dotprod", "uint8", "uint8", 4, 4) if cpu.has("dotprod") else None
    if data_dtype == "uint8" and cpu.has("i8mm"):
        return ByteProduct("i8mm", "uint8", "int8", 4, 4)
    return ByteProduct("dotprod", "int8", "int8", 4, 4) if cpu.has("dotprod") else None


def are_small(weight: np.ndarray[Any, Any]) -> bool:
    """Return whether no product of uint8 with two weights that are neighbours along the last axis saturates int16.

    The axis is the sum's; pairs start at even places, as ``group`` packs them. Weights of two signs add up to less than
    either alone.
    """
    if weight.shape[-1] % 2:
        weight = np.concatenate([weight, np.zeros_like(weight[..., :1])], axis=-1)
    sums = weight[..., 0::2].astype(np.int16) + weight[..., 1::2]
    return bool(np.abs(sums).max(initial=0) <= _LARGEST_PAIR)


def product_intrinsic(form: ByteProduct) -> te.TensorIntrin:
    """Return ``form`` as a tensor intrinsic: data (group,), weight (lanes, group), out (lanes,) of ``form.sums``."""
    emit = _EMITTERS.get(form.name)
    if emit is None:
        raise TilewrightError(
            f"byte products of the form {form.name} have no instructions; leave their loops as they are"
        )
    data = te.placeholder((form.group,), form.data_dtype, "data")
    weight = te.placeholder((form.lanes, form.group), form.weight_dtype, "weight")
    k = te.reduce_axis((0, form.group), name="k")
    total = te.compute(
        (form.lanes,),
        lambda j: te.sum(ops.cast(form.sums, data(k)) * ops.cast(form.sums, weight(j, k)), axis=k),
        name="total",
    )
    sums = f"{form.sums}x{form.lanes}"
    zero = ops.const(0, sums)

    def statements(ins: Any, outs: Any) -> tuple[Any, Any, Any]:
        word = tir.call_intrin("int32", "tir.reinterpret", ins[0].vload([0], f"{form.data_dtype}x{form.group}"))
        values = word.astype(f"int32x{form.lanes}")
        vector = ins[1].vload([0, 0], f"{form.weight_dtype}x{form.lanes * form.group}")
        out = outs[0]
        update = emit(form, out.vload([0], sums), values, vector)
        return out.vstore([0], emit(form, zero, values, vector)), out.vstore([0], zero), out.vstore([0], update)

    binds = {
        t: tir.decl_buffer(t.shape, t.dtype, t.op.name, offset_factor=1, strides=[form.group, 1][-t.ndim :])
        for t in (data, weight, total)
    }
    return te.decl_tensor_intrin(total.op, statements, f"byte_product_{form.name}", binds)


def dot_product(form: ByteProduct, sums: PrimExpr, words: PrimExpr, values: PrimExpr) -> PrimExpr:
    """Return ``sums`` and the products of the bytes of ``words`` with those of ``values``, four in each lane of int32.

    ``words`` are of the form's data type, which numbers below 128 always have; ``values`` are int8.
    """
    return _EMITTERS[form.name](form, sums, words, _as(f"{form.weight_dtype}x{_BYTES * form.lanes}", values))


def interleave_intrinsic(group: int, lanes: int, dtype: str) -> te.TensorIntrin:
    """Return the packing of rows, out (lanes, group) of rows (group, lanes), as words put together in registers.

    ``dtype``: of bytes, or of two bytes.
    """
    rows, bits = te.placeholder((group, lanes), dtype, "rows"), dt.bits(dtype)
    packed = te.compute((lanes, group), lambda j, g: rows(g, j), name="packed")
    word = f"uint{bits * group}x{lanes}"

    def statement(ins: Any, outs: Any) -> Any:
        parts = [
            ops.cast(word, _as(f"uint{bits}x{lanes}", ins[0].vload([g, 0], f"{dtype}x{lanes}"))) for g in range(group)
        ]
        words = functools.reduce(
            lambda low, g: low | (parts[g] << ops.const(bits * g, word)), range(1, group), parts[0]
        )
        return outs[0].vstore([0, 0], _as(f"{dtype}x{lanes * group}", words))

    binds = {
        rows: tir.decl_buffer(rows.shape, dtype, "rows", offset_factor=1, strides=[te.var("row"), 1]),
        packed: tir.decl_buffer(packed.shape, dtype, "packed", offset_factor=1, strides=[group, 1]),
    }
    return te.decl_tensor_intrin(packed.op, statement, "interleave_bytes", binds)


def transpose_intrinsic(lanes: int, steps: int) -> te.TensorIntrin:
    """Return the packing of rows (lanes, steps * 2) of bfloat16 as (steps, lanes, 2), a pair at a time as one word."""
    dtype, pair = "bfloat16", 2
    rows = te.placeholder((lanes, steps * pair), dtype, "rows")
    packed = te.compute((steps, lanes, pair), lambda k, j, e: rows(j, k * pair + e), name="packed")
    binds = {
        rows: tir.decl_buffer(rows.shape, dtype, "rows", offset_factor=1, strides=[te.var("row"), 1]),
        packed: tir.decl_buffer(packed.shape, dtype, "packed", offset_factor=1, strides=[te.var("step"), pair, 1]),
    }

    def statement(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, target = (ir_builder.BufferVar(ib, b.data, None, "uint32") for b in (*ins, *outs))
        first, to = (tir.indexdiv(b.elem_offset, pair) for b in (*ins, *outs))
        row, step = (tir.indexdiv(b.strides[0], pair) for b in (*ins, *outs))
        with ib.for_range(0, steps, name="step") as k:
            target[tir.Ramp(to + k * step, ops.const(1), lanes)] = source[tir.Ramp(first + k, row, lanes)]
        return ib.get()

    return te.decl_tensor_intrin(packed.op, statement, "transpose_pairs", binds)


def _call(dtype: str, name: str, *args: PrimExpr) -> PrimExpr:
    return tir.call_llvm_pure_intrin(dtype, name, *args)


def _as(dtype: str, value: PrimExpr) -> PrimExpr:
    return tir.call_intrin(dtype, "tir.reinterpret", value)


def _dot(name: str) -> Callable[[ByteProduct, PrimExpr, PrimExpr, PrimExpr], PrimExpr]:
    """Return the emitter of an instruction that does all: sums, four bytes of data in every lane, weights."""

    def emit(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
        whole = 4 * form.lanes
        return _call(sums.dtype, name, sums, _as(f"{form.data_dtype}x{whole}", data), weight)

    return emit


def _emit_sdot(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
    name = "sdot" if form.data_dtype == "int8" else "udot"
    return _dot(f"llvm.aarch64.neon.{name}.v4i32.v16i8")(form, sums, data, weight)


_PMADDUBSW = {4: "llvm.x86.ssse3.pmadd.ub.sw.128", 8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512"}
_PMADDWD = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


_PSIGNB = {4: "llvm.x86.ssse3.psign.b.128", 8: "llvm.x86.avx2.psign.b"}


def pair_sums(lanes: int, unsigned: PrimExpr, signed: PrimExpr) -> PrimExpr:
    """Return the sums in int16, saturated, of products of two neighbours: bytes of ``lanes`` words of 32 bits."""
    operands = _as(f"uint8x{_BYTES * lanes}", unsigned), _as(f"int8x{_BYTES * lanes}", signed)
    return _call(f"int16x{2 * lanes}", _PMADDUBSW[lanes], *operands)


def add_pairs(lanes: int, halves: PrimExpr) -> PrimExpr:
    """Return the sums of two neighbours of int16, in int32."""
    return _call(f"int32x{lanes}", _PMADDWD[lanes], halves, ops.const(1, halves.dtype))


def signed_as(lanes: int, values: PrimExpr, signs: PrimExpr) -> PrimExpr:
    """Return bytes of int8, negative where ``signs`` are, and 0 where these are 0: -128 stays, as 128 of uint8."""
    operands = [_as(f"int8x{_BYTES * lanes}", part) for part in (values, signs)]
    return _call(f"int8x{_BYTES * lanes}", _PSIGNB[lanes], *operands)


def _emit_maddubs(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
    return sums + add_pairs(form.lanes, pair_sums(form.lanes, data, weight))


def _emit_madd(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
    halves = f"int16x{2 * form.lanes}"
    return sums + _call(sums.dtype, _PMADDWD[form.lanes], _as(halves, data), ops.cast(halves, weight))


def _emit_halves(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
    halves, eight = f"int16x{2 * form.lanes}", ops.const(8, f"int16x{2 * form.lanes}")
    words, columns = _as(halves.replace("int", "uint"), data), _as(halves, weight)
    even = _as(halves, words & ops.const(255, words.dtype)), (columns << eight) >> eight
    odd = _as(halves, words >> ops.const(8, words.dtype)), columns >> eight
    for part in (even, odd):
        sums = sums + _call(sums.dtype, _PMADDWD[form.lanes], *part)
    return sums


def _emit_bfloats(form: ByteProduct, sums: PrimExpr, data: PrimExpr, weight: PrimExpr) -> PrimExpr:
    return _call(sums.dtype, "llvm.x86.avx512bf16.dpbf16ps.512", sums, data, _as(data.dtype, weight))


_EMITTERS: dict[str, Callable[[ByteProduct, PrimExpr, PrimExpr, PrimExpr], PrimExpr]] = {
    "avx512vnni": _dot("llvm.x86.avx512.vpdpbusd.512"),
    "avxvnni": _dot("llvm.x86.avx512.vpdpbusd.256"),
    "maddubs": _emit_maddubs,
    "madd": _emit_madd,
    "halves": _emit_halves,
    "dotprod": _emit_sdot,
    "avx512bf16": _emit_bfloats,
    "i8mm": _dot("llvm.aarch64.neon.usdot.v4i32.v16i8"),
}
