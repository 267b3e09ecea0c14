"""RecognizeActivations: activation functions, spelled out in basic operators, become operators.

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
from collections import Counter

from tilewright.ir.expr import RelayExpr
from tilewright.ir.transform import Pass
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call
from tilewright.relay.transform.common import (
    Recognizer,
    call_of,
    concrete_shape,
    recognition_pass,
    scalar_constant,
)

_TOLERANCE = 1e-4  # of the constants, which exporters round
_MOST_FACTORS = 8


def _close(value: float, wanted: float) -> bool:
    return math.isclose(value, wanted, rel_tol=_TOLERANCE)


def _factors(expr: RelayExpr, uses: Counter[RelayExpr] | None = None) -> tuple[float, list[RelayExpr]]:
    """(c, factors) of the product ``expr``; products that ``uses`` says are needed elsewhere count as one factor."""
    constant, pending = 1.0, [expr]
    found: list[RelayExpr] = []
    while pending and len(found) < _MOST_FACTORS:
        node = pending.pop()
        value = scalar_constant(node)
        inside = node is expr or uses is None or uses[node] == 1
        if value is not None:
            constant *= value
        elif inside and (product := call_of(node, "multiply")) is not None:
            pending += product.args
        elif inside and (quotient := call_of(node, "divide")) is not None and scalar_constant(quotient.args[1]):
            constant /= scalar_constant(quotient.args[1]) or 1.0
            pending.append(quotient.args[0])
        elif inside and (power := call_of(node, "power")) is not None and scalar_constant(power.args[1]) in (2, 3):
            found += [power.args[0]] * int(scalar_constant(power.args[1]) or 0)
        else:
            found.append(node)
    return constant, found + pending


def _one_plus(expr: RelayExpr, name: str) -> RelayExpr | None:
    """v, where ``expr`` is 1 + name(v)."""
    total = call_of(expr, "add")
    for k in (0, 1) if total is not None else ():
        assert total is not None
        function = call_of(total.args[k], name)
        if function is not None and scalar_constant(total.args[1 - k]) == 1:
            return function.args[0]
    return None


def _is_cubic(expr: RelayExpr, x: RelayExpr) -> bool:
    """Whether ``expr`` is sqrt(2 / pi) * (x + 0.044715 * x**3)."""
    constant, factors = _factors(expr)
    if len(factors) != 1 or not _close(constant, math.sqrt(2 / math.pi)):
        return False
    total = call_of(factors[0], "add")
    if total is None or not any(a is x for a in total.args):
        return False
    cube, powers = _factors(total.args[1] if total.args[0] is x else total.args[0])
    return _close(cube, 0.044715) and len(powers) == 3 and all(p is x for p in powers)


def _multiple(expr: RelayExpr, x: RelayExpr) -> float | None:
    """c, where ``expr`` is c * x."""
    constant, factors = _factors(expr)
    return constant if len(factors) == 1 and factors[0] is x else None


def _approximation(function: RelayExpr, x: RelayExpr) -> str | None:
    """Which form of gelu(x) / (x / 2) ``function`` is: "none", "tanh", or None."""
    inner = _one_plus(function, "erf")
    if inner is not None:
        return "none" if _close(_multiple(inner, x) or 0.0, math.sqrt(0.5)) else None
    inner = _one_plus(function, "tanh")
    return "tanh" if inner is not None and _is_cubic(inner, x) else None


class _Recognizer(Recognizer):
    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        if call_of(pre, "multiply") is None and call_of(pre, "divide") is None:
            return post
        constant, factors = _factors(pre, self.uses)
        if len(factors) != 2:
            return post
        for x, function in (factors, factors[::-1]):
            type_ = x.checked_type
            if isinstance(type_, TensorType) and type_.dtype == "float32" and concrete_shape(x) == concrete_shape(pre):
                found = self._activation(x, constant, function)
                if found is not None:
                    return found
        return post

    def _activation(self, x: RelayExpr, constant: float, function: RelayExpr) -> RelayExpr | None:
        """``constant * x * function`` as an activation of ``x``."""
        kind = _approximation(function, x) if _close(constant, 0.5) else None
        if kind is not None:
            return relay_op.nn.gelu(self.visit(x), kind)
        sigmoid = call_of(function, "sigmoid")
        if sigmoid is None or constant != 1.0 or self.uses[function] > 1:
            return None
        beta = _multiple(sigmoid.args[0], x)
        return None if beta is None else relay_op.nn.swish(self.visit(x), beta)


def RecognizeActivations() -> Pass:
    """Turn spelled-out GELUs into ``nn.gelu`` and x * sigmoid(beta * x) into ``nn.swish``."""
    return recognition_pass(_Recognizer, "RecognizeActivations")
