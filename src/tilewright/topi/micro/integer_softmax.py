"""Softmax of integers of 8 bits for microcontrollers: a C function that has the bits of float32's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright import te, tir
from tilewright.ir.prim_expr import PrimExpr
from tilewright.tir.expr import StringImm
from tilewright.topi.micro.integer_conv2d import c_text


def integer_softmax(data: te.Tensor, exponentials: te.Tensor, shape: Mapping[str, int], out_dtype: str) -> te.Tensor:
    """Return each element's share, scaled, rounded and limited.

    Parameters
    ----------
    data : int8 or uint8
    exponentials : int32, by how far an element is below the largest
    shape : the fields of ``struct tw_softmax`` by name

    Returns
    -------
    A tensor of the data's shape, of ``out_dtype``
    """
    function = f"tw_softmax_{data.dtype}"
    name = "_".join([function, *(str(v).replace("-", "m") for v in shape.values())])
    fields = ", ".join(f".{key} = {value}{'u' if key == 'factor' else ''}" for key, value in shape.items())
    wrapper = (
        f"static int32_t {name}(void* x, void* powers, void* out) {{\n"
        f"  static const struct tw_softmax layer = {{{fields}}};\n"
        f"  {function}(&layer, x, powers, out);\n  return 0;\n}}"
    )

    def call(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> tir.Stmt:
        ib = tir.ir_builder.create()
        for text in (c_text("scaling.c", data.dtype), c_text("softmax.c", data.dtype), wrapper):
            ib.scope_attr(StringImm("imports"), "pragma_import_c", StringImm(text))
        pointers: list[PrimExpr] = [b.access_ptr("r") for b in ins]
        ib.emit(tir.call_extern("int32", name, *pointers, outs[0].access_ptr("w")))
        return ib.get()

    return te.extern([tuple(data.shape)], [data, exponentials], call, dtype=[out_dtype], name="integer_softmax")
