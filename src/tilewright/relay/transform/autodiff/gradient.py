"""gradient: a function of a function's result and the gradients of its parameters.

Before::

    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) {
      nn.relu(nn.dense(%x, %w))
    }

after::

    fn (%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) {
      %0 = nn.dense(%x, %w);
      %1 = nn.relu(%0);
      %2 = less_equal(%0, 0f);
      %3 = ones(shape=[2, 4], dtype="float32");
      %4 = where(%2, 0f, %3);
      %5 = transpose(%w);
      ...
      (%1, (%6, %9))
    }

Data flow between tensors and tuples is differentiated backwards from the result, operator by operator, and stays a
graph that every executor compiles. Programs with branches, closures, recursion, data types or references are
differentiated by ``gradient_closures``. The gradient of an operator is defined by its rule, see ``relay.op.gradient``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.ir.type import TupleType, Type
from tilewright.relay.adt import Match
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.op.tensor.binary import add
from tilewright.relay.transform.autodiff.gradient_calls import (
    CHECKPOINT,
    check_rules,
    field_of,
    filled_type,
    gradient_type,
    gradients_of,
    has_rule,
    prepared,
)
from tilewright.relay.transform.autodiff.gradient_closures import differentiate_closures
from tilewright.relay.transform.functional.inline_calls import called_function, inline_calls
from tilewright.relay.transform.functional.to_graph_normal_form import to_graph_normal_form
from tilewright.relay.visitor import direct_children, post_order

MODES = ("higher_order", "first_order")

# The gradient of an expression as far as it is known: None (zero), an expression, or for a tuple a list of its fields'.
_Partial = Any

_WORDS = {If: "branches", Match: "data types", RefCreate: "references", RefRead: "references", RefWrite: "references"}


def gradient(expr: RelayExpr, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """Return a function of a pair: the result of ``expr``, and a tuple with the gradient of each parameter.

    A gradient has the type of its parameter: it is the derivative of the sum of the result's elements. Integer
    parameters, and those that the result does not depend on, have zeros as gradients.

    Parameters
    ----------
    expr : a function of tensors (or tuples of them) that returns tensors, or the name of one of ``mod``.
    mod : the module whose global functions and data types ``expr`` uses; the gradients of the global functions that
        it calls are added to it.
    mode : "higher_order" supports every construct of the language. Of a tuple as the result it differentiates the first
        field; "first_order", for data flow alone, the sum of all.

    Raises
    ------
    UnsupportedError when an operator has no gradient, and in mode "first_order" for control flow.
    """
    if mode not in MODES:
        raise UnsupportedError(f"the mode of gradient is one of {', '.join(MODES)}; found {mode!r}")
    work = IRModule() if mod is None else mod.copy()
    if isinstance(expr, GlobalVar):
        expr = work[expr]
    if not isinstance(expr, Function):
        raise UnsupportedError(f"gradient takes a function, found a {type(expr).__name__}; wrap it in relay.Function")
    if expr.type_params:
        raise UnsupportedError("gradient takes a function without type parameters; give it its types first")
    if _control_flow(expr) is None:
        return _differentiate_flow(_as_graph(expr, work), first_field=mode == "higher_order")
    if mode == "first_order":
        raise UnsupportedError(
            f"gradient in mode 'first_order' follows data flow, and this function has {_control_flow(expr)}; "
            "use mode='higher_order'"
        )
    return differentiate_closures(expr, mod)


def _control_flow(func: Function) -> str | None:
    """Return in words what makes the function more than data flow; None for data flow."""
    called = {node.op for node in post_order(func) if isinstance(node, Call)} | {func}
    for node in post_order(func):
        match node:
            case Function() if node not in called:
                return "functions as values"
            case Call() if node.op is CHECKPOINT:
                return "checkpoints"
            case Var() | Constant() | Tuple() | TupleGetItem() | Let() | Op() | Function():
                continue
            case Call() if isinstance(node.op, (Op, Function)):
                continue
            case _:
                return _WORDS.get(type(node), "global functions")
    return None


def _as_graph(func: Function, mod: IRModule) -> Function:
    """Return the function, typed, as a graph of operators with rules."""
    name = "differentiated"
    while name in mod:
        name += "_"
    body = inline_calls(to_graph_normal_form(func.body), called_function)
    mod[name] = Function(func.params, body, func.ret_type)
    typed = prepared(mod)[name]
    assert isinstance(typed, Function)
    return typed


def _differentiate_flow(func: Function, first_field: bool) -> Function:
    nodes = post_order(func.body)
    varying: set[RelayExpr] = set(func.params)
    varying.update(node for node in nodes if any(child in varying for child in direct_children(node)))
    flow = _Flow(varying)
    flow.start(func.body, first_field)
    check_rules(flow.backwards(nodes))
    gradients = [flow.complete(param) for param in func.params]
    return Function(func.params, Tuple([func.body, Tuple(gradients)]), gradient_type(func))


class _Flow:
    """Backward accumulation of gradients, from the result to its inputs.

    ``partials`` maps an expression to the sum of the gradients from its uses so far. Only expressions of ``varying``,
    which depend on parameters, have gradients.
    """

    def __init__(self, varying: set[RelayExpr]) -> None:
        self.varying = varying
        self.partials: dict[RelayExpr, _Partial] = {}

    def start(self, result: RelayExpr, first_field: bool) -> None:
        """Set the result's own gradient: ones, or ones for the first field of a tuple alone."""
        ones = _normal(filled_type(1, result.checked_type, result), result.checked_type)
        self.give(result, _first_field(ones) if first_field else ones)

    def give(self, expr: RelayExpr, partial: _Partial) -> None:
        """Add to the gradient of ``expr``."""
        if expr in self.varying:
            self.partials[expr] = _sum(self.partials.get(expr), _normal(partial, expr.checked_type))

    def complete(self, expr: RelayExpr) -> RelayExpr:
        """Return the gradient of ``expr`` as an expression of its type."""
        return _complete(self.partials.get(expr), expr)

    def backwards(self, nodes: Sequence[RelayExpr]) -> list[Call]:
        """Process ``nodes``, users before operands; return calls without a rule."""
        without_rule = []
        for node in reversed(nodes):
            if self.partials.get(node) is None:
                continue
            match node:
                case Tuple():
                    for field, partial in zip(node.fields, self.partials[node], strict=True):
                        self.give(field, partial)
                case TupleGetItem():
                    self.give(node.tuple_value, _only_field(node, self.partials[node]))
                case Call() if has_rule(node):
                    for arg, gradient_ in zip(node.args, gradients_of(node, self.complete(node)), strict=True):
                        self.give(arg, gradient_)
                case Call():
                    without_rule.append(node)
        return without_rule


def _normal(partial: _Partial, type_: Type) -> _Partial:
    """Return the gradient of a tuple as a list."""
    if partial is None or not isinstance(type_, TupleType):
        return partial
    fields = partial if isinstance(partial, list) else [field_of(partial, i) for i in range(len(type_.fields))]
    return [_normal(field, t) for field, t in zip(fields, type_.fields, strict=True)]


def _first_field(partial: _Partial) -> _Partial:
    if not isinstance(partial, list) or not partial:
        return partial
    return [_first_field(partial[0]), *[None] * (len(partial) - 1)]


def _only_field(item: TupleGetItem, partial: _Partial) -> _Partial:
    """Return the gradient of a tuple of which one field is used."""
    type_ = item.tuple_value.checked_type
    assert isinstance(type_, TupleType)
    return [partial if i == item.index else None for i in range(len(type_.fields))]


def _sum(a: _Partial, b: _Partial) -> _Partial:
    if a is None or b is None:
        return b if a is None else a
    return [_sum(x, y) for x, y in zip(a, b, strict=True)] if isinstance(a, list) else add(a, b)


def _complete(partial: _Partial, of: RelayExpr) -> RelayExpr:
    if partial is None:
        return filled_type(0, of.checked_type, of)
    if isinstance(partial, list):
        return Tuple([_complete(p, _typed_field(of, i)) for i, p in enumerate(partial)])
    assert isinstance(partial, RelayExpr)
    return partial


def _typed_field(of: RelayExpr, index: int) -> RelayExpr:
    type_ = of.checked_type
    assert isinstance(type_, TupleType)
    return field_of(of, index).with_checked_type(type_.fields[index])


def FirstOrderGradient() -> Pass:
    """Return a pass that replaces each function of a module by its gradient, in mode "first_order"."""

    def differentiate(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return gradient(func, mod, "first_order")

    return FunctionPass(differentiate, PassInfo(0, "FirstOrderGradient"), Function)
