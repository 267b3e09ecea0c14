"""FakeQuantizationToInteger: what is computed between dequantize and quantize, in quantized operators.

Before::

    %0 = qnn.dequantize(%x, 0.1f, 3);
    %1 = qnn.dequantize(%w, 0.02f, 0);
    %2 = nn.conv2d(%0, %1);
    qnn.quantize(%2, 0.5f, 0)

after::

    %0 = qnn.conv2d(%x, %w, 3, 0, 0.1f, 0.02f);
    qnn.requantize(%0, 0.002f, 0, 0.5f, 0, axis=1, rounding="TOEVEN")

A region is what a quantize depends on, back to dequantizes and constants. It is rewritten where every operator in it
has a rule (``FTVMFakeQuantizationToInteger``, or it only moves data), and every rule knows what to do; else it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.affine_type import AffineType, TensorAffineType, TupleAffineType
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem
from tilewright.relay.qnn.op import Dequantize, Quantize
from tilewright.relay.qnn.operators.parameters import dtype_of
from tilewright.relay.transform.common import Recognizer, op_of, typed_function_pass
from tilewright.relay.visitor import direct_children


class TypeMap(dict[RelayExpr, AffineType]):
    """Affine types by expression, and how many dimensions the tensors have."""

    def __init__(self) -> None:
        super().__init__()
        self.ranks: dict[RelayExpr, int] = {}


Rule = Callable[[Call, TypeMap], Sequence[Any] | None]
"""``(call, type_map) -> [expression, its affine type]``; None where the region cannot be in integers."""

KEY = "FTVMFakeQuantizationToInteger"


def _moves(call: Call, type_map: TypeMap) -> Sequence[Any] | None:
    """Only moves data: the integers move alike; vectors of scales would have to move, too."""
    kind = type_map.get(call.args[0])
    if len(call.args) != 1 or not isinstance(kind, TensorAffineType) or not is_scalar(kind):
        return None
    return [call, kind]


def is_scalar(kind: TensorAffineType) -> bool:
    """Whether all integers of a tensor have one scale and one zero point."""
    return all(_is_number(parameter) for parameter in (kind.scale, kind.zero_point))


def _is_number(parameter: RelayExpr) -> bool:
    if isinstance(parameter, Constant):
        return parameter.data.shape in ((), (1,))
    type_: Any = parameter.checked_type_or_none
    return type_ is not None and not type_.shape


def rule_of(op: Op) -> Rule | None:
    """The rule of an operator, if it has one."""
    rule: Rule | None = op.get_attr(KEY)
    return _moves if rule is None and op.get_attr("TMovesData") else rule


def _region(quantize: Call) -> list[RelayExpr] | None:
    """Return the calls that a quantize computes on integers, operands first; None where one has no rule."""
    order: list[RelayExpr] = []
    seen: set[RelayExpr] = set()
    stack: list[tuple[RelayExpr, bool]] = [(quantize.args[0], False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        if isinstance(node, Constant) or op_of(node) is Dequantize.op:
            continue
        op = op_of(node)
        if not isinstance(node, (Tuple, TupleGetItem)) and (op is None or op is Quantize.op or rule_of(op) is None):
            return None
        stack += [(child, False) for child in direct_children(node) if not isinstance(child, Op)]
    return order if any(op_of(node) is Dequantize.op for node in order) else None


class _Rewriter(Recognizer):
    """Rewrites regions from the program's start on."""

    def rewrite_call(self, pre: Call, post: Call) -> RelayExpr:
        region = _region(pre) if pre.op is Quantize.op else None
        found = None if region is None else _Region(self, pre).rewritten(region)
        return post if found is None else found


class _Region:
    """One region: new expressions by old ones, and their affine types."""

    def __init__(self, rewriter: _Rewriter, quantize: Call) -> None:
        self.rewriter, self.quantize = rewriter, quantize
        attrs: Any = quantize.attrs
        self.scale, self.zero = (rewriter.visit(arg) for arg in quantize.args[1:])
        self.result = TensorAffineType(self.scale, self.zero, attrs.out_dtype, attrs.axis)
        self.new: dict[RelayExpr, RelayExpr] = {}
        self.types = TypeMap()

    def rewritten(self, region: Sequence[RelayExpr]) -> RelayExpr | None:
        """The quantize in integers; None where a rule says that it cannot be."""
        for node in region:
            if not self._add(node):
                return None
        operands = [self.new[self.quantize.args[0]], self.scale, self.zero]
        return self._apply(Call(self.quantize.op, operands, self.quantize.attrs, span=self.quantize.span))

    def _add(self, node: RelayExpr) -> bool:
        match node:
            case Tuple():
                made: RelayExpr = Tuple([self.new[field] for field in node.fields])
                types = [self.types.get(field) for field in made.fields]  # type: ignore[attr-defined]
                if not all(isinstance(kind, TensorAffineType) for kind in types):
                    return False
                self.types[made] = TupleAffineType(types)  # type: ignore[arg-type]
            case TupleGetItem():
                made = TupleGetItem(self.new[node.tuple_value], node.index)
                whole = self.types.get(made.tuple_value)
                if not isinstance(whole, TupleAffineType):
                    return False
                self.types[made] = whole.types[node.index]
            case Call():
                found = self._apply(self._dequantize(node) if node.op is Dequantize.op else self._call(node))
                if found is None:
                    return False
                made = found
            case _:
                made = node
        self.new[node] = made
        if isinstance(node.checked_type, TensorType):
            self.types.ranks[made] = len(node.checked_type.shape)
        return True

    def _dequantize(self, node: Call) -> Call:
        """A dequantize with the rewritten program before it; its type is what it says."""
        attrs: Any = node.attrs
        made = Call(node.op, [self.rewriter.visit(arg) for arg in node.args], attrs, span=node.span)
        self.types[made] = TensorAffineType(made.args[1], made.args[2], dtype_of(node.args[0].checked_type), attrs.axis)
        return made

    def _call(self, node: Call) -> Call:
        """Another operator, of integers; the type that the map has for it is the region's."""
        made = Call(node.op, [self.new[arg] for arg in node.args], node.attrs, node.type_args, node.span)
        self.types[made] = self.result
        return made

    def _apply(self, call: Call) -> RelayExpr | None:
        assert isinstance(call.op, Op)
        rule = rule_of(call.op)
        found = None if rule is None else rule(call, self.types)
        if found is None:
            return None
        expr, kind = found
        self.types[expr] = kind
        result: RelayExpr = expr
        return result


def FakeQuantizationToInteger() -> Pass:
    """Write what is computed between dequantize and quantize in quantized operators, where all of it has rules."""

    def run(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _Rewriter(func).visit(func)

    return typed_function_pass(run, "FakeQuantizationToInteger")
