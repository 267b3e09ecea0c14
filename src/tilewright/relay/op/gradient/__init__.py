"""Gradients of operators: the attribute ``FPrimalGradient``, which ``relay.transform.gradient`` reads.

rule.py           how a rule is written, and what rules share
elementwise.py    operators of one or two inputs, element by element
reduction.py      sums, extremes, scans            shape.py      reshapes, moves and broadcasts
indexing.py       takes, gathers, scatters, sorts  constant.py   operators whose results no input moves continuously
products.py       dense, matmul, batch_matmul      convolution.py pooling.py normalize.py resampling.py

A rule lies apart from its operator's declaration since it is written in other operators. All are loaded when a gradient
is first asked for (``Op.providers``).
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
