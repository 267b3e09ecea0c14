"""DeadCodeElimination: drop lets whose variable is not used.

Before::

    let %a = exp(%x);
    let %b = add(%x, %x);
    %b

after::

    let %b = add(%x, %x);
    %b

A value that writes a reference, calls an unknown function or a stateful operator is kept. A reference that is only
written, not read or passed on, goes with its writes. With ``inline_once`` a value used once replaces its variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Function, Let, RefCreate, RefRead, RefWrite, Tuple, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.visitor import ExprMutator, direct_children, post_order


def _reaches(root: RelayExpr, found: Callable[[RelayExpr], bool]) -> bool:
    """Return whether evaluating ``root`` evaluates an expression for which ``found`` holds. Making a function does
    not evaluate its body.
    """
    seen: set[RelayExpr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if expr in seen or isinstance(expr, Function):
            continue
        seen.add(expr)
        if found(expr):
            return True
        if isinstance(expr, Call) and isinstance(expr.op, Function) and not PRIMITIVE.on(expr.op):
            stack.append(expr.op.body)
        stack.extend(direct_children(expr))
    return False


def _has_effect(expr: RelayExpr) -> bool:
    """Return whether others may notice that ``expr`` is evaluated: it writes, draws, or calls what is not known."""
    if isinstance(expr, Call):
        if isinstance(expr.op, Op):
            return bool(expr.op.get_attr("TOpIsStateful"))
        return not isinstance(expr.op, (Function, Constructor))
    return isinstance(expr, RefWrite)


def _keeps_its_place(expr: RelayExpr) -> bool:
    """Return whether ``expr`` means something else, or has another effect, where or when it is evaluated later."""
    return _has_effect(expr) or isinstance(expr, (RefCreate, RefRead))


def _count_uses(root: RelayExpr) -> dict[Var, int]:
    """Return how often each variable is used; a function that only itself calls has no use."""
    uses = _count_occurrences(root)
    for expr in post_order(root):
        if isinstance(expr, Let) and isinstance(expr.value, Function) and expr.var in uses:
            if _count_occurrences(expr.value).get(expr.var) == uses[expr.var]:
                del uses[expr.var]
    return uses


def _count_occurrences(root: RelayExpr) -> dict[Var, int]:
    uses: dict[Var, int] = {}
    seen: set[RelayExpr] = set()
    stack = [root]
    while stack:
        expr = stack.pop()
        if isinstance(expr, Var):
            uses[expr] = uses.get(expr, 0) + 1
            continue
        if expr in seen:
            continue
        seen.add(expr)
        stack.extend((expr.value, expr.body) if isinstance(expr, Let) else direct_children(expr))
    return uses


def _unread_references(root: RelayExpr, uses: Mapping[Var, int]) -> set[Var]:
    """Return the variables of references made in ``root`` whose every use is to write them."""
    made: set[Var] = set()
    writes: Counter[Var] = Counter()
    for expr in post_order(root):
        if isinstance(expr, Let) and isinstance(expr.value, RefCreate):
            made.add(expr.var)
        elif isinstance(expr, RefWrite) and isinstance(expr.ref, Var):
            writes[expr.ref] += 1
    return {var for var in made if writes[var] == uses.get(var, 0)}


class _Eliminator(ExprMutator):
    """Rewriter of chains of lets in a loop: a dropped or inlined let leaves only its value behind."""

    def __init__(self, root: RelayExpr, inline_once: bool) -> None:
        super().__init__()
        self.uses = _count_uses(root)
        self.unread = _unread_references(root, self.uses)
        self.inline_once = inline_once
        self.changed = False

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return (expr.value,) if isinstance(expr, Let) else direct_children(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        kept: list[tuple[Let, RelayExpr]] = []
        body: RelayExpr = expr
        while isinstance(body, Let):
            value = self.visit(body.value)
            if self._stays(body, value):
                kept.append((body, value))
            else:
                self.changed = True
                if self.uses.get(body.var, 0) == 1:
                    self.memo_map[body.var] = value
            body = body.body
        result = self.visit(body)
        for let, value in reversed(kept):
            same = value is let.value and result is let.body
            result = let if same else Let(let.var, value, result, let.span)
        return result

    def _stays(self, let: Let, value: RelayExpr) -> bool:
        """Return whether a let has to stay."""
        count = self.uses.get(let.var, 0)
        if count == 0:
            return _reaches(value, _has_effect)
        if count > 1 or not self.inline_once:
            return True
        return let.body is not let.var and _reaches(value, _keeps_its_place)

    def visit_ref_write(self, expr: RefWrite) -> RelayExpr:
        """Drop writes that nobody reads."""
        if expr.ref not in self.unread or _reaches(expr.value, _has_effect):
            return super().visit_ref_write(expr)
        self.changed = True
        return Tuple([])


def eliminate_dead_code(func: Function, inline_once: bool = False) -> Function:
    """Drop unused lets of ``func``, repeatedly, until none is left."""
    while True:
        eliminator = _Eliminator(func.body, inline_once)
        result = eliminator.visit(func)
        assert isinstance(result, Function)
        if not eliminator.changed:
            return result
        func = result


def DeadCodeElimination(inline_once: bool = False) -> Pass:
    """Drop lets whose variable is not used."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return eliminate_dead_code(func, inline_once)

    return FunctionPass(run, PassInfo(1, "DeadCodeElimination"), Function)
