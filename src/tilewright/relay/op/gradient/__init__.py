"""Gradients of operators: the attribute ``FPrimalGradient``, which ``relay.transform.gradient`` reads.

rule.py           how a rule is written, and helpers of rules
elementwise.py    operators of one or two inputs, element by element
reduction.py      sums, extremes, scans            shape.py      reshapes, moves and broadcasts
indexing.py       takes, gathers, scatters, sorts  constant.py   operators with piecewise constant results
products.py       dense, matmul, batch_matmul      convolution.py pooling.py normalize.py resampling.py

Rules are apart from the operators' declarations because they are written in other operators. They are loaded when the
first gradient is asked for (``Op.providers``).
"""

from tilewright.relay.op.gradient import constant as constant
from tilewright.relay.op.gradient import convolution as convolution
from tilewright.relay.op.gradient import elementwise as elementwise
from tilewright.relay.op.gradient import indexing as indexing
from tilewright.relay.op.gradient import normalize as normalize
from tilewright.relay.op.gradient import pooling as pooling
from tilewright.relay.op.gradient import products as products
from tilewright.relay.op.gradient import reduction as reduction
from tilewright.relay.op.gradient import resampling as resampling
from tilewright.relay.op.gradient import shape as shape
