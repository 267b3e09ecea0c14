"""TVM's names for the ARM schedules of ``topi.cpu``, which choose by the target's features.

Convolutions whose kernels are packed while they run have TVM's names ``*_spatial_pack``.
"""

from tilewright.topi.arm_cpu import tensor_intrin as tensor_intrin
from tilewright.topi.vendors import names_of

__getattr__, __dir__ = names_of(__name__)
