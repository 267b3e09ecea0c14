"""RecognizeActivations: replace activation functions in basic operators by single operators.

The Gaussian error linear unit (D. Hendrycks, K. Gimpel, arXiv:1606.08415).

Before::

    %0 = divide(%x, 1.41421f);                        // or multiply(%x, 0.707107f)
    %1 = erf(%0);
    %2 = add(%1, 1f);
    %3 = multiply(%x, %2);
    multiply(%3, 0.5f)

after::

    nn.gelu(%x)

The factors may come in any order. The form with tanh, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), becomes
``nn.gelu(%x, approximate="tanh")``.

Swish (P. Ramachandran, B. Zoph, Q. V. Le, arXiv:1710.05941), also called SiLU. Before::

    %0 = multiply(%x, 1.702f);                        // or nothing
    %1 = sigmoid(%0);
    multiply(%x, %1)

after::

    nn.swish(%x, beta=1.702f)
"""

from __future__ import annotations

import math

from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay import op
from tilewright.relay.dataflow_pattern import ScalarPattern, is_op, is_product, is_scalar, wildcard
from tilewright.relay.dataflow_pattern.products import products
from tilewright.relay.transform.common import concrete_shape
from tilewright.relay.transform.rules import Match, Rule, RuleTable


def _about(value: float) -> ScalarPattern:
    """Return the pattern of a constant that exporters round."""
    return is_scalar(value, tolerance=1e-4)


def _of_float32(m: Match) -> bool:
    type_ = m[x].checked_type
    return isinstance(type_, TensorType) and type_.dtype == "float32" and concrete_shape(m[x]) == concrete_shape(m.root)


def _swish(m: Match) -> RelayExpr:
    return op.nn.swish(m[x], next(beta for beta, factors in products(m[SCALED], 1) if factors[0] is m[x]))


x = wildcard()
ONE, HALF = is_scalar(1), _about(0.5)
NORMAL = ONE + is_op("erf")(is_product(x, number=_about(math.sqrt(0.5))))
CUBIC = x + is_product(x, x, x, number=_about(0.044715))
NEARLY_NORMAL = ONE + is_op("tanh")(is_product(CUBIC, number=_about(math.sqrt(2 / math.pi))))
SCALED = is_product(x, number=is_scalar())
GELU, GELU_TANH = (is_product(x, function, number=HALF) for function in (NORMAL, NEARLY_NORMAL))
SWISH = is_product(x, is_op("sigmoid")(SCALED))

RULES = RuleTable("RecognizeActivations", [
    Rule("x / 2 * (1 + erf(x / sqrt 2)) -> gelu(x)", GELU, lambda m: op.nn.gelu(m[x]), _of_float32, (NORMAL,)),
    Rule("x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) -> gelu(x) with tanh", GELU_TANH,
         lambda m: op.nn.gelu(m[x], "tanh"), _of_float32, (NEARLY_NORMAL,)),
    Rule("x * sigmoid(beta * x) -> swish(x, beta)", SWISH, _swish, _of_float32, (SCALED,)),
])  # fmt: skip


def RecognizeActivations() -> Pass:
    """Replace GELU in basic operators by ``nn.gelu``, and x * sigmoid(beta * x) by ``nn.swish``."""
    return RULES.as_pass("RecognizeActivations", 3)
