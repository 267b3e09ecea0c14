"""``relay.data_dep_optimization``: programs and their weights changed together, by what the weights are.

Each module has ``convert(func, params, ...)``, which gives the function and parameters in their new form, and leaves
those that it was given as they are:

simplify_fc_transpose   weights of dense layers that are transposed in every run are transposed once
bsr_dense, bsr_conv2d   weights that are pruned to blocks of zeros are kept, and multiplied with, without these
"""

from tilewright.relay.data_dep_optimization import bsr_conv2d, bsr_dense, simplify_fc_transpose

__all__ = ["bsr_conv2d", "bsr_dense", "simplify_fc_transpose"]
