"""check_shape: check numbers that determine the size of a result before it is allocated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir.attrs import Attrs
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.type import Type
from tilewright.relay.expr import Call
from tilewright.relay.op import relations
from tilewright.relay.op.attributes import call
from tilewright.relay.op.definition import OpDef, OpPattern, TypeSolver
from tilewright.relay.op.families import Array
from tilewright.relay.op.gradients import no_gradient
from tilewright.relay.op.strategy import generic as strategies
from tilewright.topi.shape_checks import RULES


class CheckShapeAttrs(Attrs):
    """The rule (``topi.shape_checks``), and the text of the error around the numbers and the dimensions."""

    rule: str
    what: str
    why: str


class CheckShape(OpDef[CheckShapeAttrs]):
    """The numbers, int64 (n,); an error states them where the rule for the dimensions, int64 (rank,), does not
    hold.
    """

    name = "check_shape"
    inputs = None  # the numbers, and the dimensions where the rule takes some
    pattern = OpPattern.OPAQUE
    gradient = staticmethod(no_gradient)

    strategy = strategies.check_shape_strategy

    @staticmethod
    def infer_type(types: Sequence[Type], attrs: CheckShapeAttrs, solver: TypeSolver) -> Type | None:
        relations.require(attrs.rule in RULES, f"there is no rule {attrs.rule!r}; there are {', '.join(RULES)}")
        names = ("the numbers", "the dimensions")
        found = relations.tensors(types, names)
        for tensor, what in zip(found, names, strict=False):
            relations.require_rank(tensor, 1, what)
            relations.require(tensor.dtype == "int64", f"{what} should be int64, found {tensor.dtype}")
        return found[0]

    @staticmethod
    def evaluate(attrs: CheckShapeAttrs, inputs: Sequence[Array]) -> list[Array]:
        """Apply the rule; raise TilewrightError where it does not hold."""
        numbers, *dims = ([float(v) for v in array] for array in inputs)
        with np.errstate(all="ignore"):
            holds = RULES[attrs.rule](numbers, dims[0] if dims else [])
        if not holds:
            shown = ["(" + ", ".join(map(str, a.tolist())) + (",)" if len(a) == 1 else ")") for a in inputs]
            raise TilewrightError(" ".join([attrs.what, shown[0], attrs.why, *shown[1:]]))
        return [inputs[0]]


def check_shape(numbers: RelayExpr, attrs: CheckShapeAttrs, dims: RelayExpr | None = None) -> Call:
    """Return ``numbers``, or raise an error where they do not fit the dimensions ``dims``."""
    return call("check_shape", [numbers] if dims is None else [numbers, dims], attrs)
