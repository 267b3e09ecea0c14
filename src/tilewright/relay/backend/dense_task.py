"""Dense layers as tasks: the method, the layout of the weight, and the schedule, chosen together.

The template is TVM's ``dense_pack.x86`` for a weight (n, k). The measured kernel is the one that AlterOpLayout makes of
a layer with a known weight, in the weight's layout. An unknown weight is multiplied directly, whatever a record says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.autotvm.task.dispatcher import Workload
from tilewright.ir.type import TensorType
from tilewright.relay.backend.open_task import given_dtype, register_open
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.op.nn.dense import DenseAttrs, DensePack
from tilewright.relay.op.nn.strassen import ContribDenseStrassen
from tilewright.relay.op.strategy.cpu import pack_dense_of_task
from tilewright.relay.op.strategy.wrappers import output_dtype
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.transform.infer_type import infer_type
from tilewright.target.target import Target

TEMPLATE = "dense_pack.x86"


def is_open(workload: Workload) -> bool:
    """Return whether a workload is of a dense layer whose weight may have any layout."""
    return workload[0] == TEMPLATE and _is_open(workload[1:])


def _is_open(arguments: Sequence[Any]) -> bool:
    """Return whether the layout is open, for tensors or their form in workloads."""
    data, weight, bias, *_ = arguments
    shapes = [t[1] if isinstance(t, tuple) else t.shape for t in (data, weight)]
    return bias is None and all(len(shape) == 2 for shape in shapes)


def workload_of(call: Call) -> Workload | None:
    """Return the workload of a dense layer that AlterOpLayout laid out; None for other operators and for vectors."""
    if call.op not in (DensePack.op, ContribDenseStrassen.op):
        return None
    types: list[Any] = [e.checked_type for e in (*call.args, call)]
    data, weight, out = types
    if data.is_dynamic or int(data.shape[0]) == 1:
        return None
    (rows, inner), units = data.concrete_shape, int(out.shape[1])
    dtype = output_dtype(call.attrs, [data]) if call.op is DensePack.op else data.dtype
    return (TEMPLATE, ("TENSOR", (rows, inner), data.dtype), ("TENSOR", (units, inner), weight.dtype), None, dtype)


def _kernel(arguments: Sequence[Any], target: Target) -> Function:
    """Return the kernel of a dense layer for the configuration in force: a primitive function of data and weight."""
    data, weight, _, out_dtype = arguments
    x, w = (Var(name, TensorType(t.shape, t.dtype)) for name, t in (("data", data), ("weight", weight)))
    attrs = DenseAttrs(None, given_dtype(out_dtype or data.dtype, data.dtype))
    with target:
        packed = pack_dense_of_task(attrs, [x, w], [x.type_annotation, w.type_annotation], target)
    taken: Any = packed.args[1]
    if taken is w:
        layout: Any = packed.attrs
        taken = layout_transform(w, "NC", layout.weight_layout)
    typed: Any = infer_type(Function([w], taken))
    params = [Var("p0", x.type_annotation), Var("p1", typed.body.checked_type)]
    func = infer_type(Function(params, Call(packed.op, params, packed.attrs), attrs={PRIMITIVE.key: 1}))
    assert isinstance(func, Function)
    return func


register_open(TEMPLATE, _is_open, _kernel)
