# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.
from collections.abc import Sequence
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import const as const, Call, TupleWrapper
from tilewright.relay.op import annotation as annotation, contrib as contrib, dyn as dyn, dyn_resize as dyn_resize, image as image, memory as memory, nn as nn, op as op, random as random, reduce as reduce, strategy as strategy, tensor as tensor, transform as transform, vision as vision, vm as vm
from tilewright.relay.op.annotation.debug import debug as debug
from tilewright.relay.op.annotation.devices import device_copy as device_copy
from tilewright.relay.op.attributes import Axes, Ints, Operand, Shape
from tilewright.relay.op.definition import OpDef as OpDef, OpPattern as OpPattern
from tilewright.relay.op.op import get as get, register_alter_op_layout as register_alter_op_layout, register_broadcast_schedule as register_broadcast_schedule, register_compute as register_compute, register_convert_op_layout as register_convert_op_layout, register_external_compiler as register_external_compiler, register_fake_quantization_to_integer as register_fake_quantization_to_integer, register_gradient as register_gradient, register_injective_schedule as register_injective_schedule, register_legalize as register_legalize, register_mixed_precision_conversion as register_mixed_precision_conversion, register_pattern as register_pattern, register_reduce_schedule as register_reduce_schedule, register_schedule as register_schedule, register_strategy as register_strategy
from tilewright.relay.op.reduce.reduce import logsumexp as logsumexp, mean_std as mean_std, mean_variance as mean_variance, std as std, variance as variance
from tilewright.relay.op.strategy import OpImplementation as OpImplementation, OpSpecialization as OpSpecialization, OpStrategy as OpStrategy, SpecializedCondition as SpecializedCondition
from tilewright.relay.op.tensor.creation import arange as arange
from tilewright.relay.op.transform import checks as checks, shape_checks as shape_checks
from tilewright.relay.op.transform.data_dependent import sparse_fill_empty_rows as sparse_fill_empty_rows
from tilewright.relay.op.transform.join import meshgrid as meshgrid, split as split
from tilewright.relay.op.transform.matrix import matrix_set_diag as matrix_set_diag
from tilewright.relay.op.transform.replicate import collapse_sum_to as collapse_sum_to
from tilewright.relay.op.transform.scatter import segment_sum as segment_sum
from tilewright.relay.op.transform.slicing import strided_set as strided_set, strided_slice as strided_slice
from tilewright.relay.op.transform.sorting import topk as topk
from tilewright.relay.op.transform.sparse import sparse_to_dense as sparse_to_dense
from tilewright.relay.op.transform.unique import unique as unique

__all__ = ['OpDef', 'OpImplementation', 'OpPattern', 'OpSpecialization', 'OpStrategy', 'SpecializedCondition', 'abs', 'acos', 'acosh', 'add', 'adv_index', 'all', 'annotation', 'any', 'arange', 'argmax', 'argmin', 'argsort', 'argwhere', 'asin', 'asinh', 'atan', 'atanh', 'bitwise_and', 'bitwise_not', 'bitwise_or', 'bitwise_xor', 'broadcast_to', 'broadcast_to_like', 'cast', 'cast_like', 'ceil', 'clip', 'collapse_sum_like', 'collapse_sum_to', 'concatenate', 'contrib_reverse_reshape', 'copy', 'cos', 'cosh', 'cumprod', 'cumsum', 'debug', 'device_copy', 'divide', 'einsum', 'equal', 'erf', 'exp', 'expand_dims', 'expm1', 'fast_erf', 'fast_exp', 'fast_tanh', 'fixed_point_multiply', 'floor', 'floor_divide', 'floor_mod', 'full', 'full_like', 'gather', 'gather_nd', 'greater', 'greater_equal', 'image', 'invert_permutation', 'isfinite', 'isinf', 'isnan', 'layout_transform', 'left_shift', 'less', 'less_equal', 'log', 'log10', 'log1p', 'log2', 'logical_and', 'logical_not', 'logical_or', 'logical_xor', 'logsumexp', 'lookup', 'matrix_set_diag', 'max', 'maximum', 'mean', 'mean_std', 'mean_variance', 'meshgrid', 'min', 'minimum', 'mod', 'multiply', 'ndarray_size', 'nearbyint', 'negative', 'nn', 'not_equal', 'one_hot', 'ones', 'ones_like', 'power', 'prod', 'random', 'register_alter_op_layout', 'register_broadcast_schedule', 'register_compute', 'register_convert_op_layout', 'register_external_compiler', 'register_fake_quantization_to_integer', 'register_gradient', 'register_injective_schedule', 'register_legalize', 'register_mixed_precision_conversion', 'register_pattern', 'register_reduce_schedule', 'register_schedule', 'register_strategy', 'reinterpret', 'repeat', 'reshape', 'reshape_like', 'reverse', 'reverse_reshape', 'reverse_sequence', 'right_shift', 'round', 'rsqrt', 'scatter', 'scatter_add', 'scatter_nd', 'searchsorted', 'segment_sum', 'sequence_mask', 'shape_of', 'sigmoid', 'sign', 'sin', 'sinh', 'slice_like', 'sort', 'sparse_fill_empty_rows', 'sparse_reshape', 'sparse_to_dense', 'split', 'sqrt', 'squeeze', 'stack', 'std', 'strided_set', 'strided_slice', 'subtract', 'sum', 'take', 'tan', 'tanh', 'tile', 'topk', 'transpose', 'tree_leaves', 'trilu', 'trunc', 'unique', 'unravel_index', 'variance', 'vision', 'where', 'write_rows', 'zeros', 'zeros_like']

def abs(data: Operand) -> Call: 'Absolute value.'
def acos(data: Operand) -> Call: 'Arc cosine.'
def acosh(data: Operand) -> Call: 'Inverse hyperbolic cosine.'
def add(lhs: Operand, rhs: Operand) -> Call: 'lhs + rhs, broadcast.'
def adv_index(inputs: Operand | Sequence[Operand]) -> Call: 'data[i0, i1, ...] with integer tensors that broadcast; the inputs are one tuple.'
def all(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Whether all elements over ``axis`` are true.'
def any(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Whether some element over ``axis`` is true.'
def argmax(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False) -> Call: 'Position (int32) of the maximum over ``axis``; over several axes, in their flattened order.'
def argmin(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False, select_last_index: bool = False) -> Call: 'Position (int32) of the minimum over ``axis``.'
def argsort(data: Operand, axis: int = -1, is_ascend: bool = True, dtype: str = 'int32') -> Call: 'The indices that sort ``data`` along ``axis``.'
def argwhere(condition: Operand) -> Call: 'Indices of the elements that are not 0, in order: (n, rank) int32, n unknown.'
def asin(data: Operand) -> Call: 'Arc sine.'
def asinh(data: Operand) -> Call: 'Inverse hyperbolic sine.'
def atan(data: Operand) -> Call: 'Arc tangent.'
def atanh(data: Operand) -> Call: 'Inverse hyperbolic tangent.'
def bitwise_and(lhs: Operand, rhs: Operand) -> Call: 'lhs & rhs, broadcast.'
def bitwise_not(data: Operand) -> Call: 'All bits inverted.'
def bitwise_or(lhs: Operand, rhs: Operand) -> Call: 'lhs | rhs, broadcast.'
def bitwise_xor(lhs: Operand, rhs: Operand) -> Call: 'lhs ^ rhs, broadcast.'
def broadcast_to(data: Operand, shape: RelayExpr | Shape) -> Call: '``data`` broadcast to ``shape``.'
def broadcast_to_like(data: Operand, broadcast_type: Operand) -> Call: '``data`` broadcast to the shape of ``broadcast_type``.'
def cast(data: Operand, dtype: str) -> Call: 'Convert elements to another dtype; floats to integers towards zero.'
def cast_like(data: Operand, dtype_like: Operand) -> Call: '``data`` converted to the dtype of ``dtype_like``.'
def ceil(data: Operand) -> Call: 'Round up; integers stay.'
def clip(a: Operand, a_min: float, a_max: float) -> Call: 'Limit every element to [a_min, a_max].'
def collapse_sum_like(data: Operand, collapse_type: Operand) -> Call: "Sum over the dimensions along which the other tensor would broadcast to the data's shape."
def concatenate(data: Operand | Sequence[Operand], axis: int) -> Call: 'The tensors of ``data`` (a list or tuple) joined along ``axis``.'
def contrib_reverse_reshape(data: Operand, newshape: Shape) -> Call: 'Reshape whose special values count from the last dimension.'
def copy(data: Operand) -> Call: 'A copy of ``data``.'
def cos(data: Operand) -> Call: 'Cosine.'
def cosh(data: Operand) -> Call: 'Hyperbolic cosine.'
def cumprod(data: Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Call: 'Running product along ``axis``, as ``cumsum``.'
def cumsum(data: Operand, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None) -> Call: 'Running sum along ``axis`` (None: of the flattened data); ``exclusive`` leaves the element itself out.'
def divide(lhs: Operand, rhs: Operand) -> Call: 'lhs / rhs, broadcast; integers round towards zero.'
def einsum(data: Operand | Sequence[Operand], equation: str) -> Call: 'The product of the tensors ``data``, summed over the subscripts that are not in the result, as'
def equal(lhs: Operand, rhs: Operand) -> Call: 'lhs == rhs, broadcast; bool.'
def erf(data: Operand) -> Call: 'Error function.'
def exp(data: Operand) -> Call: 'e ** data'
def expand_dims(data: Operand, axis: RelayExpr | int, num_newaxis: int = 1) -> Call: '``num_newaxis`` dimensions of extent 1 inserted before ``axis``.'
def expm1(data: Operand) -> Call: 'e ** data - 1, also where that is small. Not in TVM 0.8.'
def fast_erf(data: Operand) -> Call: 'Approximation of erf.'
def fast_exp(data: Operand) -> Call: 'Approximation of exp.'
def fast_tanh(data: Operand) -> Call: 'Approximation of tanh.'
def fixed_point_multiply(data: Operand, multiplier: int, shift: int) -> Call: 'Multiply integers by a fixed-point factor: ``round(data * multiplier * 2 ** (shift - 31))``, halves up.'
def floor(data: Operand) -> Call: 'Round down; integers stay.'
def floor_divide(lhs: Operand, rhs: Operand) -> Call: 'lhs / rhs rounded down, broadcast.'
def floor_mod(lhs: Operand, rhs: Operand) -> Call: 'Remainder of ``floor_divide``, with the sign of ``rhs``.'
def full(fill_value: Operand, shape: RelayExpr | Shape = (), dtype: str = '') -> Call: 'A tensor of one value, given as a scalar tensor.'
def full_like(data: Operand, fill_value: Operand) -> Call: 'A tensor of one value with the shape and dtype of another.'
def gather(data: Operand, axis: int, indices: Operand) -> Call: '``data`` with the index along ``axis`` taken from ``indices``.'
def gather_nd(data: Operand, indices: Operand, batch_dims: int = 0, index_rank: int | None = None) -> Call: 'Slices of data at index tuples, which are in the first dimension of the indices.'
def greater(lhs: Operand, rhs: Operand) -> Call: 'lhs > rhs, broadcast; bool.'
def greater_equal(lhs: Operand, rhs: Operand) -> Call: 'lhs >= rhs, broadcast; bool.'
def invert_permutation(data: Operand) -> Call: 'The inverse of the permutation ``data``.'
def isfinite(data: Operand) -> Call: 'Whether each element is finite; bool.'
def isinf(data: Operand) -> Call: 'Whether each element is infinite; bool.'
def isnan(data: Operand) -> Call: 'Whether each element is not a number; bool.'
def layout_transform(data: Operand, src_layout: str, dst_layout: str) -> Call: 'Rearrange a tensor from one layout to another, such as NCHW to NCHW16c.'
def left_shift(lhs: Operand, rhs: Operand) -> Call: 'lhs << rhs, broadcast.'
def less(lhs: Operand, rhs: Operand) -> Call: 'lhs < rhs, broadcast; bool.'
def less_equal(lhs: Operand, rhs: Operand) -> Call: 'lhs <= rhs, broadcast; bool.'
def log(data: Operand) -> Call: 'Natural logarithm of ``data``.'
def log10(data: Operand) -> Call: 'Logarithm to base 10.'
def log1p(data: Operand) -> Call: 'Natural logarithm of 1 + ``data``, also where that is small. Not in TVM 0.8.'
def log2(data: Operand) -> Call: 'Logarithm to base 2.'
def logical_and(lhs: Operand, rhs: Operand) -> Call: 'Whether both are true, broadcast.'
def logical_not(data: Operand) -> Call: 'Whether ``data`` is false.'
def logical_or(lhs: Operand, rhs: Operand) -> Call: 'Whether at least one is true, broadcast.'
def logical_xor(lhs: Operand, rhs: Operand) -> Call: 'Whether exactly one is true, broadcast.'
def lookup(data: Operand, table: Operand) -> Call: "``table[data]``: the table has an entry for each number of the data's type, int8 or uint8, the least first."
def max(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Maximum over ``axis``.'
def maximum(lhs: Operand, rhs: Operand) -> Call: 'The larger of ``lhs`` and ``rhs``, broadcast.'
def mean(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Mean over ``axis``.'
def min(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Minimum over ``axis``.'
def minimum(lhs: Operand, rhs: Operand) -> Call: 'The smaller of ``lhs`` and ``rhs``, broadcast.'
def mod(lhs: Operand, rhs: Operand) -> Call: 'Remainder of ``divide``, with the sign of ``lhs``.'
def multiply(lhs: Operand, rhs: Operand) -> Call: 'lhs * rhs, broadcast.'
def ndarray_size(data: Operand, dtype: str = 'int32') -> Call: 'The number of elements of ``data`` as a scalar tensor.'
def nearbyint(data: Operand) -> Call: 'Round to the nearest integer, halves to even.'
def negative(data: Operand) -> Call: '-data'
def not_equal(lhs: Operand, rhs: Operand) -> Call: 'lhs != rhs, broadcast; bool.'
def one_hot(indices: Operand, on_value: Operand, off_value: Operand, depth: RelayExpr | int, axis: int, dtype: str) -> Call: '``on_value`` at the classes in ``indices``, ``off_value`` elsewhere; both are scalars.'
def ones(shape: RelayExpr | Shape, dtype: str) -> Call: 'A tensor of 1s.'
def ones_like(data: Operand) -> Call: 'A tensor of 1s in the form of ``data``.'
def power(lhs: Operand, rhs: Operand) -> Call: 'lhs ** rhs, broadcast.'
def prod(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Product over ``axis``.'
def reinterpret(data: Operand, dtype: str) -> Call: 'The same bits as another dtype of the same width.'
def repeat(data: Operand, repeats: int, axis: int | None) -> Call: 'Each element ``repeats`` times along ``axis`` (None: of the flattened data).'
def reshape(data: Operand, newshape: RelayExpr | Shape, allowzero: bool = False) -> Call: '``data`` in the shape ``newshape``, whose values 0, -1, -2, -3, -4 are special (see ``resolve_shape``).'
def reshape_like(data: Operand, shape_like: Operand, lhs_begin: int = 0, lhs_end: int | None = None, rhs_begin: int = 0, rhs_end: int | None = None) -> Call: "Reshape to the shape of another tensor, or a range of its dimensions to a range of the other's."
def reverse(data: Operand, axis: int) -> Call: 'Reverse the order along a dimension.'
def reverse_reshape(data: Operand, newshape: Shape) -> Call: 'Reshape whose special values count from the last dimension.'
def reverse_sequence(data: Operand, seq_lengths: Operand, seq_axis: int = 1, batch_axis: int = 0) -> Call: 'The first ``seq_lengths[b]`` elements of batch item b reversed along ``seq_axis``.'
def right_shift(lhs: Operand, rhs: Operand) -> Call: 'lhs >> rhs, broadcast.'
def round(data: Operand) -> Call: 'Round to the nearest integer, halves away from zero.'
def rsqrt(data: Operand) -> Call: '1 / sqrt(data)'
def scatter(data: Operand, indices: Operand, updates: Operand, axis: int) -> Call: '``data`` with elements at ``indices`` along ``axis`` replaced by ``updates``.'
def scatter_add(data: Operand, indices: Operand, updates: Operand, axis: int) -> Call: '``data`` with ``updates`` added at ``indices`` along ``axis``.'
def scatter_nd(data: Operand, indices: Operand, updates: Operand, mode: str = 'update') -> Call: 'data with slices replaced (or combined) at index tuples, which are in the first dimension of the indices.'
def searchsorted(sorted_sequence: Operand, values: Operand, right: bool = False, dtype: str = 'int32') -> Call: 'Indices at which ``values`` (..., m) keep rows (..., n), or one row (n,), sorted; after equals if ``right``.'
def sequence_mask(data: Operand, valid_length: Operand, mask_value: float = 0.0, axis: int = 0) -> Call: "Replace the elements beyond each sequence's length by a value."
def shape_of(data: Operand, dtype: str = 'int32') -> Call: 'The shape of ``data`` as a tensor.'
def sigmoid(data: Operand) -> Call: '1 / (1 + exp(-data))'
def sign(data: Operand) -> Call: '-1, 0 or 1.'
def sin(data: Operand) -> Call: 'Sine.'
def sinh(data: Operand) -> Call: 'Hyperbolic sine.'
def slice_like(data: Operand, shape_like: Operand, axes: Ints | None = None) -> Call: '``data`` cut to the extents of ``shape_like`` in ``axes`` (all by default).'
def sort(data: Operand, axis: int = -1, is_ascend: bool = True) -> Call: 'The elements in order along a dimension.'
def sparse_reshape(sparse_indices: Operand, prev_shape: Operand, new_shape: Operand) -> TupleWrapper: 'Indices of the elements of a sparse tensor of ``prev_shape`` after a reshape, and the new shape without -1.'
def sqrt(data: Operand) -> Call: 'Square root.'
def squeeze(data: Operand, axis: RelayExpr | Ints | None = None) -> Call: 'Drop dimensions of extent 1.'
def stack(data: Operand | Sequence[Operand], axis: int) -> Call: 'The tensors of ``data`` joined along a new dimension ``axis``.'
def subtract(lhs: Operand, rhs: Operand) -> Call: 'lhs - rhs, broadcast.'
def sum(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> Call: 'Sum over ``axis`` (None: all; ``exclude``: all but these).'
def take(data: Operand, indices: Operand, axis: int | None = None, batch_dims: int = 0, mode: str = 'clip') -> Call: 'Elements of ``data`` at ``indices`` along ``axis`` (None: of the flattened data).'
def tan(data: Operand) -> Call: 'Tangent.'
def tanh(data: Operand) -> Call: 'Hyperbolic tangent.'
def tile(data: Operand, reps: RelayExpr | Ints) -> Call: 'The whole of ``data`` repeated, ``reps`` times along each dimension.'
def transpose(data: Operand, axes: Ints | None = None) -> Call: '``data`` with dimensions in the order ``axes``, reversed by default.'
def tree_leaves(data: Operand, nodes: Operand, thresholds: Operand, roots: Operand) -> Call: 'The node at which each row of ``data`` ends in each tree, int32 (rows, trees).'
def trilu(data: Operand, k: Operand, upper: bool = True) -> Call: 'Keep a triangle of each matrix, from the ``k``-th diagonal, which is a scalar tensor.'
def trunc(data: Operand) -> Call: 'Round towards zero.'
def unravel_index(indices: Operand, shape: Operand) -> Call: 'Flat ``indices`` into a tensor of ``shape`` (a rank-1 tensor) as index tuples.'
def where(condition: Operand, x: Operand, y: Operand) -> Call: 'x where the condition is not 0, else y; all three broadcast.'
def write_rows(data: Operand, rows: Operand, starts: Operand, axis: int) -> Call: '``data`` with ``rows`` in it along ``axis``, from ``starts[i]`` on in item i of the batch, the first dimension.'
def zeros(shape: RelayExpr | Shape, dtype: str) -> Call: 'A tensor of 0s.'
def zeros_like(data: Operand) -> Call: 'A tensor of 0s in the form of ``data``.'
