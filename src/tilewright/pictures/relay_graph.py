"""Relay modules as graphs: operators, and in colours the functions of external compilers and fused kernels."""

from __future__ import annotations

from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.span import source_names
from tilewright.pictures.drawing import Box, Drawing
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import COMPILER, COMPOSITE, GLOBAL_SYMBOL
from tilewright.relay.transform.common import open_children
from tilewright.relay.visitor import post_order


def draw_module(mod: IRModule | Function) -> Drawing:
    """Return the graph of ``main``; constants and what only passes values on have no boxes.

    A function that ``main`` calls is drawn from inside, in a colour of its own if an external compiler takes it.
    """
    mod = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    graph = _Graph(mod)
    main = mod["main"]
    assert isinstance(main, Function)
    graph.function(main, [graph.box(Box((f"%{p.name_hint}", _type(p)), "")) for p in main.params], "")
    return Drawing(tuple(graph.boxes), tuple(dict.fromkeys(graph.arrows)))


class _Graph:
    """Boxes and arrows as they are found; a value is the numbers of the boxes that it comes from."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.boxes: list[Box] = []
        self.arrows: list[tuple[int, int]] = []

    def box(self, box: Box) -> list[int]:
        """Add a box."""
        self.boxes.append(box)
        return [len(self.boxes) - 1]

    def function(self, func: Function, arguments: list[list[int]], group: str) -> list[int]:
        """Add the boxes of a function's body; return where its result comes from."""
        values: dict[RelayExpr, list[int]] = dict(zip(func.params, arguments, strict=True))
        for expr in post_order(func.body, open_children):
            if expr not in values:
                values[expr] = self._value(expr, values, group)
        return values[func.body]

    def _value(self, expr: RelayExpr, values: dict[RelayExpr, list[int]], group: str) -> list[int]:
        if isinstance(expr, Var):
            return self.box(Box((f"%{expr.name_hint}", _type(expr)), group))
        if isinstance(expr, Tuple):
            return [number for item in expr.fields for number in values.get(item, ())]
        if isinstance(expr, TupleGetItem):
            return values.get(expr.tuple_value, [])
        if not isinstance(expr, Call):
            return [] if isinstance(expr, (Constant, Op, Function, GlobalVar)) else self._other(expr, values, group)
        callee = self.mod[expr.op] if isinstance(expr.op, GlobalVar) and expr.op in self.mod.functions else expr.op
        if isinstance(callee, Function):
            inside = self._name(callee, expr.op) or group
            return self.function(callee, [values.get(arg, []) for arg in expr.args], inside)
        name = callee.name if isinstance(callee, Op) else getattr(callee, "name_hint", "call")
        named = expr.span is not None and not expr.span.line  # a line is one of a program's text, not of a model
        source = source_names(expr.span)[0] if named else ""
        return self._joined(Box((name, _type(expr)), group, source), [values.get(arg, []) for arg in expr.args])

    def _other(self, expr: RelayExpr, values: dict[RelayExpr, list[int]], group: str) -> list[int]:
        """A let, a branch or a match: a box that all its parts lead to."""
        return self._joined(
            Box((type(expr).__name__.lower(), _type(expr)), group), [values.get(c, []) for c in open_children(expr)]
        )

    def _joined(self, box: Box, sources: list[list[int]]) -> list[int]:
        made = self.box(box)
        self.arrows += [(number, made[0]) for source in sources for number in source]
        return made

    def _name(self, func: Function, op: RelayExpr) -> str:
        if COMPILER.has(func):
            return f"{COMPILER.of(func)}: {GLOBAL_SYMBOL.get(func) or getattr(op, 'name_hint', '')}".rstrip(": ")
        return str(COMPOSITE.get(func) or "")


def _type(expr: RelayExpr) -> str:
    known = expr.checked_type_or_none
    if known is None:
        known = expr.type_annotation if isinstance(expr, Var) else None
    text = "" if known is None else str(known).removeprefix("Tensor")
    return text if len(text) <= 60 else f"{text[:57]}..."
