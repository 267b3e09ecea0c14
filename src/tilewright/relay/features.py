"""Constructs of the language that a program uses: ``relay.analysis.detect_feature``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Constant, Function, Let, Var
from tilewright.relay.visitor import direct_children, post_order


class Feature(IntEnum):
    """Constructs by TVM's names; ``fGraph``: a part that is no atom is shared; ``fLetRec``: local recursion."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


_ATOMS = (Var, GlobalVar, Op, Constant, Constructor)


def _features(root: RelayExpr) -> Iterator[Feature]:
    used: set[RelayExpr] = set()
    for node in post_order(root):
        yield Feature[f"f{type(node).__name__}"]
        if isinstance(node, Let) and isinstance(node.value, Function) and node.var in post_order(node.value):
            yield Feature.fLetRec
        for child in direct_children(node):
            if child in used and not isinstance(child, _ATOMS):
                yield Feature.fGraph
            used.add(child)


def detect_feature(a: RelayExpr | IRModule, b: IRModule | None = None) -> set[Feature]:
    """Return the constructs that an expression, all Relay functions of a module, or both use."""
    roots: list[RelayExpr] = []
    for item in (a, b):
        if isinstance(item, IRModule):
            roots += [func for func in item.functions.values() if isinstance(func, Function)]
        elif item is not None:
            roots.append(item)
    return {feature for root in roots for feature in _features(root)}
