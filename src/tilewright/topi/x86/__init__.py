"""TVM's names for the x86-64 schedules of ``topi.cpu``, which choose by the target's features."""

from tilewright.topi.vendors import names_of
from tilewright.topi.x86 import tensor_intrin as tensor_intrin
from tilewright.topi.x86 import utils as utils

__getattr__, __dir__ = names_of(__name__)
