"""Tensor expressions: what to compute, apart from how (the schedule).

declare.py     te.placeholder, compute, extern, scan, axes     tensor.py      Tensor
operation.py   the operations behind tensors                   broadcast.py   A + B of whole tensors
tag.py         te.tag_scope                                    specialized_condition.py  conditions on shapes
schedule/      Schedule, Stage, bound inference, loops         tensorize.py   tensor intrinsics
lower.py       ``tvm.lower``: a schedule to TIR              autodiff.py   te.gradient
hybrid/        operations written as loops in Python          reads.py       reads outside of a tensor

>>> A = te.placeholder((n,), name="A")
>>> B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
>>> s = te.create_schedule(B.op)
>>> xo, xi = s[B].split(B.op.axis[0], factor=8)
>>> print(tvm.lower(s, [A, B], simple_mode=True))
"""

import tilewright.te.broadcast  # noqa: F401  (gives Tensor its operators)
from tilewright.ir.load_on_use import load_on_use
from tilewright.ir.prim_ops import add
from tilewright.ir.prim_ops import mul as multiply
from tilewright.ir.prim_ops import sub as subtract
from tilewright.te import operation, tensor
from tilewright.te.autodiff import gradient
from tilewright.te.declare import (
    compute,
    const,
    extern,
    extern_primfunc,
    placeholder,
    reduce_axis,
    scan,
    size_var,
    thread_axis,
    var,
)
from tilewright.te.operation import (
    BaseComputeOp,
    ComputeOp,
    ComputeParts,
    ExternOp,
    HybridOp,
    Operation,
    PlaceholderOp,
    ScanOp,
    TensorComputeOp,
)
from tilewright.te.schedule import Schedule, Stage, create_schedule
from tilewright.te.specialized_condition import SpecializedCondition
from tilewright.te.tag import tag_scope
from tilewright.te.tensor import Tensor, TensorSlice
from tilewright.te.tensorize import TensorIntrin, decl_tensor_intrin
from tilewright.tir.op import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    ceildiv,
    clz,
    comm_reducer,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    nextafter,
    popcount,
    power,
    prod,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    sum,
    tan,
    tanh,
    trace,
    trunc,
    truncdiv,
    truncmod,
)

__getattr__, __dir__ = load_on_use(__name__, [".hybrid"])


# TVM has these names in te.operation and te.tensor, too.
for _name in ("compute", "extern", "placeholder", "reduce_axis", "scan", "thread_axis"):
    setattr(operation, _name, globals()[_name])
for _name in (
    "BaseComputeOp",
    "ComputeOp",
    "ExternOp",
    "HybridOp",
    "Operation",
    "PlaceholderOp",
    "ScanOp",
    "TensorComputeOp",
):
    setattr(tensor, _name, globals()[_name])

__all__ = [
    "BaseComputeOp", "ComputeOp", "ComputeParts", "ExternOp", "HybridOp", "Operation", "PlaceholderOp", "ScanOp",
    "Schedule", "SpecializedCondition", "Stage", "Tensor", "TensorComputeOp", "TensorIntrin", "TensorSlice",
    "abs", "acos", "acosh", "add", "all", "any", "asin", "asinh",
    "atan", "atan2", "atanh", "ceil", "ceildiv", "clz", "comm_reducer", "compute", "const", "copysign", "cos", "cosh",
    "create_schedule", "decl_tensor_intrin", "div", "erf", "exp", "exp2", "exp10", "extern", "extern_primfunc", "floor",
    "floordiv", "floormod", "fma", "fmod", "gradient", "hypot", "if_then_else", "indexdiv", "indexmod",
    "infinity", "isfinite",
    "isinf", "isnan", "ldexp", "likely", "log", "log1p", "log2", "log10", "max", "max_value", "min", "min_value",
    "multiply", "nearbyint", "nextafter", "placeholder", "popcount", "power", "prod", "reduce_axis", "round", "rsqrt",
    "scan", "sigmoid", "sin", "sinh", "size_var", "sqrt", "subtract", "sum", "tag_scope", "tan", "tanh", "thread_axis",
    "trace", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip
