"""Data flow between branches, loops and calls, rewritten by the passes for programs that are data flow alone.

Before::

    let %x = nn.conv2d(%data, %weight);
    let %y = if (%big) { nn.conv2d(%x, %weight1) } else { %x };
    nn.relu(%y)

after, each part optimized as a program of its own, here by packing channels::

    let %x = layout_transform(nn.contrib_conv2d_NCHWc(layout_transform(%data, ...), meta[relay.Constant][0], ...), ...);
    let %y = if (%big) { layout_transform(nn.contrib_conv2d_NCHWc(...)) } else { %x };
    nn.relu(%y)

A part is what lets bind one after another, between two values that are no data flow. Parts without an operator whose
data is worth another layout (convolutions, products) stay as they are, and so do programs without such parts.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.lets import Binding, let_chain, with_lets
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.common import LetChainMutator, open_children, pattern_of
from tilewright.relay.transform.functional.to_a_normal_form import to_a_normal_form
from tilewright.relay.transform.functional.to_graph_normal_form import ToGraphNormalForm
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import is_closed, post_order, substitute


def optimize_parts(mod: IRModule, optimize: Callable[[IRModule], IRModule]) -> IRModule:
    """Return the program with each part that has convolutions or products optimized by ``optimize``."""
    mod = infer_module(mod)
    functions = {v: f for v, f in mod.functions.items() if isinstance(f, Function) and not is_closed(f)}
    if not any(_gains(e) for f in functions.values() for e in post_order(f.body, open_children)):
        return mod
    whole = mod.copy()
    for var, func in functions.items():
        whole[var] = to_a_normal_form(func)
    whole = infer_module(whole)
    result = whole.copy()
    for var in functions:
        result[var] = _Parts(optimize).visit(whole[var])
    return infer_module(result)


def _gains(expr: RelayExpr) -> bool:
    """Return whether ``expr`` calls an operator that other layouts of its data or weights make faster."""
    return pattern_of(expr) is OpPattern.OUT_ELEMWISE_FUSABLE


def _flows(value: RelayExpr) -> bool:
    """Return whether a let binds data flow: tensors, or tuples of them, that an operator computes."""
    if isinstance(value, Call):
        return isinstance(value.op, Op) and _of_tensors(value)
    return isinstance(value, (Tuple, TupleGetItem, Constant)) and _of_tensors(value)


def _of_tensors(expr: RelayExpr) -> bool:
    fields = [e.checked_type for e in (expr, *open_children(expr)) if not isinstance(e, Op)]
    flat = [t for each in fields for t in (each.fields if isinstance(each, TupleType) else [each])]
    return all(isinstance(t, TensorType) for t in flat)


def _variables(expr: RelayExpr) -> list[Var]:
    return [e for e in post_order(expr, open_children) if isinstance(e, Var)]


class _Parts(LetChainMutator):
    """Rewriter of whole chains of lets."""

    def __init__(self, optimize: Callable[[IRModule], IRModule]) -> None:
        super().__init__()
        self.optimize = optimize

    def visit_let(self, expr: Let) -> RelayExpr:
        bindings, tail = let_chain(expr)
        result: list[Binding] = []
        part: list[Binding] = []
        for step, (var, value) in enumerate([*bindings, (None, tail)]):
            if var is not None and _flows(value):
                part.append((var, value))
                continue
            used = {v for _, other in bindings[step:] for v in _variables(other)} | set(_variables(tail))
            result += self._part(part, used)
            part = []
            if var is not None:
                result.append((var, self.visit(value)))
        made = self.visit(tail)
        if result and made is result[-1][0]:
            made = result.pop()[1]
        return with_lets(result, made)

    def _part(self, part: list[Binding], used: set[Var]) -> list[Binding]:
        """Return the bindings of a part, of which those in ``used`` are needed, with the values optimized."""
        wanted = [var for var, _ in part if var in used]
        if not wanted:
            return []
        own = {var for var, _ in part}
        free = [v for v in dict.fromkeys(v for _, value in part for v in _variables(value)) if v not in own]
        params = {v: Var(v.name_hint, v.checked_type) for v in free}
        body = with_lets(part, wanted[0] if len(wanted) == 1 else Tuple(wanted))
        program = IRModule.from_expr(Function(list(params.values()), substitute(body, dict(params))))
        program = ToGraphNormalForm()(infer_module(program))
        if any(_gains(value) for _, value in part):
            program = self.optimize(infer_module(program))
        done = program["main"]
        assert isinstance(done, Function)
        value = substitute(done.body, dict(zip(done.params, free, strict=True)))
        fields = value.fields if len(wanted) > 1 and isinstance(value, Tuple) else [value]
        return list(zip(wanted, fields, strict=True))
