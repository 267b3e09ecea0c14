"""Quantized networks: operators that say what integers mean, and the exact arithmetic that they are computed by.

op.py           qnn.quantize, qnn.dequantize
groups.py       which operators between the two are computed on the integers, and how: one description for all targets
transform.py    CanonicalizeOps: the groups, and what is left, in operators that every target has
"""

from tilewright.relay.qnn import op as op
