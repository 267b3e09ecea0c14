"""A quantized module in parts: inputs to integers, the network on integers, outputs to numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType
from tilewright.relay.analysis import all_dtypes, free_vars
from tilewright.relay.expr import Call, Function, Tuple, TupleGetItem, Var
from tilewright.relay.scope_builder import ScopeBuilder
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, post_order

ALLOWED_CONVERSION_OPS = ("add", "multiply", "right_shift", "clip", "round", "cast")
"""Operators that conversions consist of."""


class NotIntegralError(TilewrightError, AssertionError):
    """A module that was to be computed in integers computes something else."""


def partition_conversions(mod: IRModule, quantized_dtypes: Collection[str], ensure_fully_integral: bool) -> IRModule:
    """Return a module whose ``main`` calls ``quantize_inputs``, ``quantized_main`` and ``dequantize_outputs``.

    Args:
        mod: a quantized module of one function.
        quantized_dtypes: the types of integers.
        ensure_fully_integral: whether everything between the conversions has to be in these types.

    Raises:
        NotIntegralError: it is not.
    """
    func = infer_module(mod)["main"]
    before, middle = _cut_inputs(func)
    middle, after = _cut_outputs(middle, quantized_dtypes)
    if ensure_fully_integral:
        _check("the conversion of inputs", before)
        _check("the conversion of outputs", after)
        others = all_dtypes(middle) - set(quantized_dtypes)
        if others:
            raise NotIntegralError(f"the network is not in integers alone: it computes in {', '.join(sorted(others))}")
    return _joined(before, middle, after)


def _is_conversion(expr: RelayExpr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in ALLOWED_CONVERSION_OPS


def _check(what: str, func: Function) -> None:
    wrong = [n for n in post_order(func) if isinstance(n, Call) and not _is_conversion(n)]
    if wrong:
        raise NotIntegralError(f"{what} calls {wrong[0].op}, which is no conversion")


def _typed(func: Function) -> Function:
    typed = infer_module(IRModule.from_expr(func))["main"]
    assert isinstance(typed, Function)
    return typed


class _InputCutter(ExprMutator):
    """Replaces conversions of one parameter, where another operator reads them, by new parameters."""

    def __init__(self, params: Sequence[Var]) -> None:
        super().__init__()
        self._converted: dict[RelayExpr, frozenset[Var]] = {p: frozenset([p]) for p in params}
        self.found: dict[RelayExpr, tuple[Var, RelayExpr]] = {}  # from a conversion to its new parameter

    def visit_call(self, expr: Call) -> RelayExpr:
        """Cut the arguments of what is no conversion."""
        nothing: frozenset[Var] = frozenset()
        if _is_conversion(expr):
            self._converted[expr] = nothing.union(*(self._converted.get(a, nothing) for a in expr.args))
            return super().visit_call(expr)
        args = [self._cut(a) if len(self._converted.get(a, nothing)) == 1 else self.visit(a) for a in expr.args]
        return Call(expr.op, args, expr.attrs, expr.type_args, expr.span)

    def _cut(self, arg: RelayExpr) -> Var:
        if arg not in self.found:
            (param,) = self._converted[arg]
            self.found[arg] = Var(param.name_hint, arg.checked_type), arg
        return self.found[arg][0]


def _cut_inputs(func: Function) -> tuple[Function, Function]:
    """Return the conversion of inputs, which gives a tuple, and the rest, which takes its fields."""
    cutter = _InputCutter(func.params)
    body = cutter.visit(func.body)
    middle = Function(free_vars(body), body)
    conversions = dict(cutter.found.values())
    made = Tuple([conversions.get(p, p) for p in middle.params])
    return _typed(Function(free_vars(made), made)), _typed(middle)


class _OutputCutter(ExprMutator):
    """Replaces the integers that outputs are converted of by parameters; does not look below them."""

    def __init__(self, dtypes: Collection[str]) -> None:
        super().__init__()
        self._dtypes = dtypes
        self.found: dict[RelayExpr, Var] = {}

    def _is_whole(self, expr: RelayExpr) -> bool:
        kind = expr.checked_type_or_none
        return isinstance(kind, TensorType) and kind.dtype in self._dtypes

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Nothing of integers."""
        return () if self._is_whole(expr) else super().children(expr)

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        """Give the parameter of integers."""
        if not self._is_whole(expr):
            return super().dispatch(expr)
        name = f"input{len(self.found) or ''}"
        return self.found.setdefault(expr, Var(name, expr.checked_type))


def _cut_outputs(func: Function, dtypes: Collection[str]) -> tuple[Function, Function]:
    """Return the function without the conversion of its outputs, and that conversion."""
    cutter = _OutputCutter(dtypes)
    body = cutter.visit(func.body)
    if not cutter.found:  # nothing is in integers
        value = Var("input", func.body.checked_type)
        return func, _typed(Function([value], value))
    cut = list(cutter.found)
    middle = cut[0] if len(cut) == 1 else Tuple(cut)
    return _typed(Function(func.params, middle)), _typed(Function(list(cutter.found.values()), body))


def _joined(before: Function, middle: Function, after: Function) -> IRModule:
    names = ("quantize_inputs", "quantized_main", "dequantize_outputs")
    first, second, third = (GlobalVar(name) for name in names)
    module = IRModule({first: before, second: middle, third: after})
    params = [Var(p.name_hint, p.type_annotation) for p in before.params]
    builder = ScopeBuilder()
    inputs = builder.let("quantized_inputs", Call(first, params))
    fields = [TupleGetItem(inputs, i) for i in range(len(middle.params))]
    outputs = builder.let("quantized_outputs", Call(second, fields))
    given = [outputs] if len(after.params) == 1 else [TupleGetItem(outputs, i) for i in range(len(after.params))]
    builder.ret(builder.let("dequantized_outputs", Call(third, given)))
    module["main"] = Function(params, builder.get())
    return infer_module(module)
