"""``relay.data_dep_optimization``: rewrites of programs together with their weights, by the weights' values.

Each module has ``convert(func, params, ...)``, which returns new functions and parameters and does not change its
arguments:

simplify_fc_transpose   transpose weights of dense layers once instead of in every run
bsr_dense, bsr_conv2d   store weights that are pruned to blocks of zeros, and multiply by them, without the zeros
"""

from tilewright.relay.data_dep_optimization import bsr_conv2d, bsr_dense, simplify_fc_transpose

__all__ = ["bsr_conv2d", "bsr_dense", "simplify_fc_transpose"]
