"""Products with block-quantized weights: ``kernel`` holds the operands, ``float_rows`` and ``byte_rows`` multiply.

``product`` decides which rows are multiplied with codes that are unpacked in registers, and which with a buffer of
unpacked numbers.
"""

from tilewright.topi.cpu.nbits.kernel import nbits_form, nbits_lanes
from tilewright.topi.cpu.nbits.product import dense_nbits

__all__ = ["dense_nbits", "nbits_form", "nbits_lanes"]
