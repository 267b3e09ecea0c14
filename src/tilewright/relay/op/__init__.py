"""Relay's operators: one declaration each (see ``definition``), and the functions that build calls of them.

tensor/ reduce/ transform/   general tensors          nn/ image/ random/   neural networks, images, random numbers
annotation/ contrib/         marks for passes, patterns of external compilers
memory.py vm.py              memory and kernels' calls, as the virtual machine has them
strategy/                    what runs on which target
relations.py layout_rules.py families.py attributes.py bilinear.py   what declarations share
op.py                        TVM's registration functions
"""

import sys

from tilewright.relay.op import annotation, image, nn, random, vision
from tilewright.relay.op import contrib as contrib
from tilewright.relay.op import dyn as dyn
from tilewright.relay.op import dyn_resize as dyn_resize
from tilewright.relay.op import memory as memory
from tilewright.relay.op import op as op
from tilewright.relay.op import strategy as strategy
from tilewright.relay.op import vm as vm
from tilewright.relay.op.annotation.debug import debug
from tilewright.relay.op.annotation.devices import device_copy
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.op import get as get
from tilewright.relay.op.op import (
    register_alter_op_layout,
    register_broadcast_schedule,
    register_compute,
    register_convert_op_layout,
    register_external_compiler,
    register_gradient,
    register_injective_schedule,
    register_legalize,
    register_pattern,
    register_reduce_schedule,
    register_schedule,
    register_strategy,
)  # fmt: skip
from tilewright.relay.op.reduce.arg_reduce import argmax, argmin
from tilewright.relay.op.reduce.reduce import (
    all,
    any,
    logsumexp,
    max,
    mean,
    mean_std,
    mean_variance,
    min,
    prod,
    std,
    sum,
    variance,
)  # fmt: skip
from tilewright.relay.op.strategy import OpImplementation, OpSpecialization, OpStrategy, SpecializedCondition
from tilewright.relay.op.tensor.binary import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
)  # fmt: skip
from tilewright.relay.op.tensor.creation import arange, full, full_like, ones, ones_like, where, zeros, zeros_like
from tilewright.relay.op.tensor.unary import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    cast,
    cast_like,
    ceil,
    clip,
    copy,
    cos,
    cosh,
    erf,
    exp,
    expm1,
    fast_erf,
    fast_exp,
    fast_tanh,
    fixed_point_multiply,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    nearbyint,
    negative,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)  # fmt: skip
from tilewright.relay.op.transform import checks as checks
from tilewright.relay.op.transform import shape_checks as shape_checks
from tilewright.relay.op.transform.axes import expand_dims, reverse, reverse_sequence, squeeze, transpose
from tilewright.relay.op.transform.einsum import einsum
from tilewright.relay.op.transform.indexing import (
    adv_index,
    gather,
    gather_nd,
    invert_permutation,
    one_hot,
    sequence_mask,
    take,
    unravel_index,
)  # fmt: skip
from tilewright.relay.op.transform.join import concatenate, meshgrid, split, stack
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.op.transform.matrix import matrix_set_diag, ndarray_size, shape_of, trilu
from tilewright.relay.op.transform.replicate import (
    broadcast_to,
    broadcast_to_like,
    collapse_sum_like,
    collapse_sum_to,
    repeat,
    tile,
)  # fmt: skip
from tilewright.relay.op.transform.reshape import contrib_reverse_reshape, reshape, reshape_like, reverse_reshape
from tilewright.relay.op.transform.scatter import scatter, scatter_add, scatter_nd, segment_sum
from tilewright.relay.op.transform.slicing import slice_like, strided_set, strided_slice
from tilewright.relay.op.transform.sorting import argsort, cumprod, cumsum, sort, topk
from tilewright.relay.op.transform.sparse import searchsorted, sparse_reshape, sparse_to_dense
from tilewright.relay.op.transform.unique import unique

# It alters layouts of operators, so it comes after them.
from tilewright.relay.op.strategy import cpu as _cpu  # noqa: F401  # isort: skip
from tilewright.relay.op.strategy import gpu as _gpu  # noqa: F401  # isort: skip
from tilewright.relay.op.strategy import gpu_contraction as _gpu_contraction  # noqa: F401  # isort: skip
from tilewright.relay.op import support_levels as _support_levels  # noqa: F401  # isort: skip

__all__ = [
    "OpDef",
    "OpImplementation",
    "OpPattern",
    "OpSpecialization",
    "OpStrategy",
    "SpecializedCondition",
    "abs",
    "acos",
    "acosh",
    "add",
    "adv_index",
    "all",
    "annotation",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "broadcast_to_like",
    "cast",
    "cast_like",
    "ceil",
    "clip",
    "collapse_sum_like",
    "collapse_sum_to",
    "concatenate",
    "contrib_reverse_reshape",
    "copy",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "debug",
    "device_copy",
    "divide",
    "einsum",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "expm1",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "fixed_point_multiply",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "gather",
    "gather_nd",
    "greater",
    "greater_equal",
    "image",
    "invert_permutation",
    "isfinite",
    "isinf",
    "isnan",
    "layout_transform",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsumexp",
    "matrix_set_diag",
    "max",
    "maximum",
    "mean",
    "mean_std",
    "mean_variance",
    "meshgrid",
    "min",
    "minimum",
    "mod",
    "multiply",
    "ndarray_size",
    "nearbyint",
    "negative",
    "nn",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "power",
    "prod",
    "random",
    "register_alter_op_layout",
    "register_broadcast_schedule",
    "register_compute",
    "register_convert_op_layout",
    "register_external_compiler",
    "register_gradient",
    "register_injective_schedule",
    "register_legalize",
    "register_pattern",
    "register_reduce_schedule",
    "register_schedule",
    "register_strategy",
    "reinterpret",
    "repeat",
    "reshape",
    "reshape_like",
    "reverse",
    "reverse_reshape",
    "reverse_sequence",
    "right_shift",
    "round",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "searchsorted",
    "segment_sum",
    "sequence_mask",
    "shape_of",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "slice_like",
    "sort",
    "sparse_reshape",
    "sparse_to_dense",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "std",
    "strided_set",
    "strided_slice",
    "subtract",
    "sum",
    "take",
    "tan",
    "tanh",
    "tile",
    "topk",
    "transpose",
    "trilu",
    "trunc",
    "unique",
    "unravel_index",
    "variance",
    "vision",
    "where",
    "zeros",
    "zeros_like",
]  # fmt: skip

_make = sys.modules[__name__]  # TVM's name for the constructors of operators


def _show_in_packages() -> None:
    """Make functions attributes of the packages that are modules in TVM: ``relay.op.transform.reshape``.

    Modules of these names, such as ``transform/reshape.py``, are still found by ``from`` and ``import``.
    """
    for package in ("reduce", "tensor", "transform"):
        inside = f"{__name__}.{package}"
        for module in [m for name, m in sys.modules.items() if name.startswith(f"{inside}.")]:
            for name in __all__:
                if vars(module).get(name, module) is globals()[name]:
                    setattr(sys.modules[inside], name, globals()[name])


_show_in_packages()
