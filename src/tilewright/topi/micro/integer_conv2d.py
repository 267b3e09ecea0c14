"""Convolutions of integers of 8 bits for microcontrollers: C functions, called with a description of the shapes.

They are shared by all layers of a network, so that a layer more takes a few dozen bytes of code. Sums stay in
registers and are scaled, rounded and limited there (``scaling.py``). Nothing is padded: windows that reach out of the
image, and those whose bytes lie apart, are copied, one or two at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tilewright import te, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir.expr import StringImm

_HERE = Path(__file__).parent


@cache
def c_text(name: str, dtype: str) -> str:
    """Return a C text of this folder for data of ``dtype``."""
    return (_HERE / name).read_text("utf-8").replace("@T@", dtype)


def _imports(dtype: str, depthwise: bool) -> list[str]:
    """The C texts that a kernel for data of ``dtype`` needs, in their order."""
    names = ["scaling.c", "windows.c"] + (["depthwise_of.c"] if depthwise else ["conv2d.c", "conv2d_of.c"])
    return [c_text(name, dtype) for name in names]


def _layer(function: str, shape: Mapping[str, int]) -> tuple[str, str]:
    """A C function that calls ``function`` with a description of a layer, and its name."""
    name = "_".join([function, *(str(v).replace("-", "m") for v in shape.values())])
    fields = ", ".join(f".{key} = {value}" for key, value in shape.items())
    pointers = "void* x, void* w, void* channels, void* out, void* patch"
    call = f"{function}(&layer, x, w, channels, out, patch)"
    text = f"static int32_t {name}({pointers}) {{\n  static const struct tw_conv2d layer = {{{fields}}};\n"
    return f"{text}  {call};\n  return 0;\n}}", name


def _patch_bytes(shape: Mapping[str, int]) -> int:
    """Return how many bytes the copies of windows take; 1 where all windows are read in the image."""
    s = shape
    short = s["groups"] == 1 and s["kh"] > 1 and s["kw"] * s["c"] < 16  # Helium copies these
    inside = not short and s["top"] == s["left"] == 0 and (s["groups"] == 0 or (s["groups"] == 1 and s["dx"] == 1))
    for extent, out, stride, kernel, dilation in (("h", "oh", "sy", "kh", "dy"), ("w", "ow", "sx", "kw", "dx")):
        inside = inside and (s[out] - 1) * s[stride] + (s[kernel] - 1) * s[dilation] < s[extent]
    if inside:
        return 1
    return s["kh"] * s["kw"] * (s["c"] if s["groups"] == 0 else 2 * (s["c"] // s["groups"]))


def integer_conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    channels: te.Tensor,
    shape: Mapping[str, int],
    out_shape: Sequence[PrimExpr],
    out_dtype: str,
) -> te.Tensor:
    """Convolve, scale, round and limit.

    Parameters
    ----------
    data : (n, h, w, c), int8 or uint8
    weight : int8, (oc, kh, kw, c / groups), or (kh, kw, c, 1) of a depthwise convolution
    channels : int32, (oc, 3): bias, multiplier, and the bits of the factor
    shape : the fields of ``struct tw_conv2d`` by name; 0 groups are a depthwise convolution

    Returns
    -------
    (n, oh, ow, oc), of ``out_dtype``
    """
    depthwise = shape["groups"] == 0
    wrapper, name = _layer(f"tw_{'depthwise' if depthwise else 'conv2d'}_{data.dtype}", shape)

    def call(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        for text in (*_imports(data.dtype, depthwise), wrapper):
            ib.scope_attr(StringImm("imports"), "pragma_import_c", StringImm(text))
        patch = ib.allocate("uint8", _patch_bytes(shape), name="patch")
        pointers: list[PrimExpr] = [b.access_ptr("r") for b in ins]
        ib.emit(tir.call_extern("int32", name, *pointers, outs[0].access_ptr("w"), patch.asobject()))
        return ib.get()

    return te.extern([tuple(out_shape)], [data, weight, channels], call, dtype=[out_dtype], name="integer_conv2d")
