"""Data flow between calls: the walk of storage planning and of the graph code generator.

Every input, constant and call is a step, in execution order; its result is one tensor or several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType, Type, flat_types
from tilewright.relay.expr import Call, Let, Tuple, TupleGetItem, Var
from tilewright.relay.visitor import ExprFunctor

REMEDY = (
    'Compile for the virtual machine, relay.vm.compile(mod, target, params=params), or build with executor="auto"; on '
    "the command line --executor auto"
)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Output ``index`` of step ``node``."""

    node: int
    index: int = 0


class DataFlow(ExprFunctor[list[Entry]]):
    """Visitor that maps each expression to its tensors; subclasses handle inputs, constants and calls."""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Visit only the arguments of kernels, not their bodies."""
        if isinstance(expr, Call):
            return expr.args
        if isinstance(expr, Let):
            return ()
        return super().children(expr)

    def visit_var(self, expr: Var) -> list[Entry]:
        raise UnsupportedError(f"main uses the variable %{expr.name_hint}, which is not one of its parameters")

    def visit_tuple(self, expr: Tuple) -> list[Entry]:
        return [entry for item in expr.fields for entry in self.visit(item)]

    def visit_tuple_getitem(self, expr: TupleGetItem) -> list[Entry]:
        entries = self.visit(expr.tuple_value)
        type_ = expr.tuple_value.checked_type
        assert isinstance(type_, TupleType)
        start = sum(len(tensor_types(t)) for t in type_.fields[: expr.index])
        return entries[start : start + len(tensor_types(type_.fields[expr.index]))]

    def visit_let(self, expr: Let) -> list[Entry]:
        body: RelayExpr = expr
        while isinstance(body, Let):
            self.memo_map[body.var] = self.visit(body.value)
            body = body.body
        return self.visit(body)

    def default(self, expr: RelayExpr) -> list[Entry]:
        """Refuse control flow, closures and data types, which need another executor."""
        raise UnsupportedError(
            f"the graph executor cannot run a {type(expr).__name__} expression: it runs data flow only. {REMEDY}"
        )


def tensor_types(type_: Type) -> list[TensorType]:
    """Return the tensors of a type, tuples flattened."""
    types = flat_types(type_)
    for other in types:
        if not isinstance(other, TensorType):
            raise UnsupportedError(f"the graph executor handles tensors and tuples of tensors, not {other}")
    return types


def refuse_callee(func: RelayExpr) -> UnsupportedError:
    """Return the error for a call of anything but a kernel."""
    if isinstance(func, GlobalVar):
        found = f"a call of the global function @{func.name_hint}"
    elif isinstance(func, Op):
        found = f"the operator {func.name} outside a fused function (run relay.transform.FuseOps)"
    else:
        found = f"a call of a {type(func).__name__}"
    return UnsupportedError(f"the graph executor runs fused operators only; found {found}")
