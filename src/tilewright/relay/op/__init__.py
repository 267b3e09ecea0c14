"""Relay's operators: one declaration each (see ``definition``), and the functions that build calls of them.

tensor/ reduce/ transform/   general tensors          nn/ image/       neural networks, images
annotation/                  marks for passes         strategy.py      choice of implementations
relations.py layout_rules.py families.py attributes.py   what declarations share
op.py                        TVM's registration functions
"""

from tilewright.relay.op import annotation, image, nn
from tilewright.relay.op import op as op
from tilewright.relay.op import strategy as strategy
from tilewright.relay.op.definition import OpDef, OpPattern
from tilewright.relay.op.op import get as get
from tilewright.relay.op.op import (
    register_alter_op_layout, register_broadcast_schedule, register_compute, register_convert_op_layout,
    register_external_compiler, register_gradient, register_injective_schedule, register_legalize, register_pattern,
    register_reduce_schedule, register_schedule, register_strategy,
)  # fmt: skip
from tilewright.relay.op.reduce.arg_reduce import argmax, argmin
from tilewright.relay.op.reduce.reduce import (
    all, any, logsumexp, max, mean, mean_std, mean_variance, min, prod, std, sum, variance,
)  # fmt: skip
from tilewright.relay.op.strategy import OpImplementation, OpSpecialization, OpStrategy, SpecializedCondition
from tilewright.relay.op.tensor.binary import (
    add, bitwise_and, bitwise_or, bitwise_xor, divide, equal, floor_divide, floor_mod, greater, greater_equal,
    left_shift, less, less_equal, logical_and, logical_or, logical_xor, maximum, minimum, mod, multiply, not_equal,
    power, right_shift, subtract,
)  # fmt: skip
from tilewright.relay.op.tensor.creation import arange, full, full_like, ones, ones_like, where, zeros, zeros_like
from tilewright.relay.op.tensor.unary import (
    abs, acos, acosh, asin, asinh, atan, atanh, bitwise_not, cast, cast_like, ceil, clip, copy, cos, cosh, erf, exp,
    fast_erf, fast_exp, fast_tanh, fixed_point_multiply, floor, isfinite, isinf, isnan, log, log2, log10, logical_not,
    negative, reinterpret, round, rsqrt, sigmoid, sign, sin, sinh, sqrt, tan, tanh, trunc,
)  # fmt: skip
from tilewright.relay.op.transform.axes import expand_dims, reverse, reverse_sequence, squeeze, transpose
from tilewright.relay.op.transform.indexing import (
    adv_index, gather, gather_nd, invert_permutation, one_hot, sequence_mask, take, unravel_index,
)  # fmt: skip
from tilewright.relay.op.transform.join import concatenate, meshgrid, split, stack
from tilewright.relay.op.transform.layout import layout_transform
from tilewright.relay.op.transform.matrix import device_copy, matrix_set_diag, ndarray_size, shape_of, trilu
from tilewright.relay.op.transform.replicate import (
    broadcast_to, broadcast_to_like, collapse_sum_like, collapse_sum_to, repeat, tile,
)  # fmt: skip
from tilewright.relay.op.transform.reshape import contrib_reverse_reshape, reshape, reshape_like, reverse_reshape
from tilewright.relay.op.transform.scatter import scatter, scatter_add, scatter_nd
from tilewright.relay.op.transform.slicing import slice_like, strided_set, strided_slice
from tilewright.relay.op.transform.sorting import argsort, cumprod, cumsum, sort, topk

__all__ = [
    "OpDef", "OpImplementation", "OpPattern", "OpSpecialization", "OpStrategy", "SpecializedCondition", "abs", "acos",
    "acosh", "add", "adv_index", "all", "annotation", "any", "arange", "argmax", "argmin", "argsort", "asin", "asinh",
    "atan", "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "broadcast_to_like",
    "cast", "cast_like", "ceil", "clip", "collapse_sum_like", "collapse_sum_to", "concatenate",
    "contrib_reverse_reshape", "copy", "cos", "cosh", "cumprod", "cumsum", "device_copy", "divide", "equal", "erf",
    "exp", "expand_dims", "fast_erf", "fast_exp", "fast_tanh", "fixed_point_multiply", "floor", "floor_divide",
    "floor_mod", "full", "full_like", "gather", "gather_nd", "greater", "greater_equal", "image",
    "invert_permutation", "isfinite", "isinf", "isnan", "layout_transform", "left_shift", "less", "less_equal", "log",
    "log10", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "matrix_set_diag", "max",
    "maximum", "mean", "mean_std", "mean_variance", "meshgrid", "min", "minimum", "mod", "multiply", "ndarray_size",
    "negative", "nn", "not_equal", "one_hot", "ones", "ones_like", "power", "prod", "register_alter_op_layout",
    "register_broadcast_schedule", "register_compute", "register_convert_op_layout", "register_external_compiler",
    "register_gradient", "register_injective_schedule", "register_legalize", "register_pattern",
    "register_reduce_schedule", "register_schedule", "register_strategy", "reinterpret", "repeat", "reshape",
    "reshape_like", "reverse", "reverse_reshape", "reverse_sequence", "right_shift", "round", "rsqrt", "scatter",
    "scatter_add", "scatter_nd", "sequence_mask", "shape_of", "sigmoid", "sign", "sin", "sinh", "slice_like", "sort",
    "split", "sqrt", "squeeze", "stack", "std", "strided_set", "strided_slice", "subtract", "sum", "take",
    "tan", "tanh", "tile", "topk", "transpose", "trilu", "trunc", "unravel_index", "variance", "where", "zeros",
    "zeros_like",
]  # fmt: skip
