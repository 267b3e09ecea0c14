"""FuseOps: group operators into primitive functions, each of which becomes one kernel.

Before::

    %0 = nn.conv2d(%d1, %w1);
    %1 = nn.bias_add(%0, %b1);
    nn.relu(%1)

after::

    %2 = fn (%p0, %p1, %p2, Primitive=1) {
      %0 = nn.conv2d(%p0, %p1);
      %1 = nn.bias_add(%0, %p2);
      nn.relu(%1)
    };
    %2(%d1, %w1, %b1)

An operator may be fused into its immediate post-dominator when every operator on every path between the two
keeps the pattern fusable (``OpPattern``). Three phases: element-wise tails into convolutions, reductions and
one another; then injective operators; then injective operators into tuples that were fused in phase two, one tuple
for a kernel.
Source: T. Chen et al., "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", OSDI 2018, section 3;
the dominator tree as in K. Cooper et al., "A Simple, Fast Dominance Algorithm", 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.ir import dtype as dt
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.span import Span, joined
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import PRIMITIVE
from tilewright.relay.op.annotation.marks import StopFusion
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.transform.common import open_children, typed_function_pass
from tilewright.relay.visitor import ExprMutator, is_closed, post_order

_SCALAR_DTYPES = frozenset({"float32", "float64", "int32", "int64", "uint8", "bool"})


@dataclass(eq=False, slots=True)
class _Node:
    """An expression in the forward data-flow graph."""

    expr: RelayExpr
    index: int
    pattern: OpPattern = OpPattern.OPAQUE
    extern_ref: bool = False  # used from outside the data flow: must stay materialised
    outputs: list[tuple[_Node, OpPattern]] = field(default_factory=list)
    # dominator tree
    dom_parent: _Node | None = None
    dom_depth: int = 1
    dom_pattern: OpPattern = OpPattern.OPAQUE
    # union-find group
    group_parent: _Node | None = None
    group_pattern: OpPattern = OpPattern.OPAQUE
    group_size: int = 1
    has_tuple: bool = False  # fused, in this group

    def root(self) -> _Node:
        """Return the representative of the group, with path compression."""
        root = self
        while root.group_parent is not None:
            root = root.group_parent
        node = self
        while (parent := node.group_parent) is not None:
            node.group_parent = root
            node = parent
        return root


def _combine(a: OpPattern, b: OpPattern) -> OpPattern:
    return max(a, b)


def _is_inlined_scalar(expr: Constant) -> bool:
    return len(expr.data.shape) == 0 and str(expr.data.dtype) in _SCALAR_DTYPES


class _GraphBuilder:
    """Builder of the data-flow graph in post-order, with an edge for each use."""

    def __init__(self) -> None:
        self.nodes: dict[RelayExpr, _Node] = {}
        self.order: list[_Node] = []

    def build(self, body: RelayExpr) -> list[_Node]:
        """Return the nodes of everything under ``body``, operands first."""
        for expr in post_order(body, open_children):
            node = self.nodes.setdefault(expr, _Node(expr, -1))
            node.index = len(self.order)
            self.order.append(node)
            self._add_edges(expr, node)
        self.nodes[body].extern_ref = True
        return self.order

    def _use(self, expr: RelayExpr, user: _Node | None, pattern: OpPattern) -> None:
        node = self.nodes[expr]
        if user is None:
            node.extern_ref = True
        else:
            node.outputs.append((user, pattern))

    def _add_edges(self, expr: RelayExpr, node: _Node) -> None:
        match expr:
            case Call():
                self._add_call(expr, node)
            case Constant():
                node.pattern = OpPattern.ELEMWISE if _is_inlined_scalar(expr) else OpPattern.OPAQUE
            case Tuple():
                node.pattern = OpPattern.TUPLE
                for item in expr.fields:
                    tensor = isinstance(item.checked_type, TensorType)
                    self._use(item, node if tensor else None, OpPattern.INJECTIVE if tensor else OpPattern.OPAQUE)
            case TupleGetItem():
                fields = expr.tuple_value.checked_type
                if isinstance(fields, TupleType) and all(isinstance(f, TensorType) for f in fields.fields):
                    node.pattern = OpPattern.INJECTIVE
                    self._use(expr.tuple_value, node, OpPattern.INJECTIVE)
                else:
                    self._use(expr.tuple_value, None, OpPattern.OPAQUE)
            case _:
                for child in open_children(expr):
                    self._use(child, None, OpPattern.OPAQUE)

    def _add_call(self, call: Call, node: _Node) -> None:
        pattern = OpPattern.OPAQUE
        if isinstance(call.op, Op):
            pattern = call.op.get_attr("TOpPattern", OpPattern.OPAQUE)
        self._use(call.op, None, OpPattern.OPAQUE)
        node.pattern = pattern
        result = call.checked_type
        for arg in call.args:
            edge = pattern
            if edge == OpPattern.BROADCAST and isinstance(result, TensorType):
                arg_type = arg.checked_type
                if isinstance(arg_type, TensorType) and _same_shape(arg_type, result):
                    edge = OpPattern.ELEMWISE
            self._use(arg, node, edge)


def _keep_narrow(nodes: dict[RelayExpr, _Node]) -> None:
    """Materialise the narrowest tensor on the way from a second kernel to an operator that a first one ends with.

    A kernel sums one product only: what another one has is read from memory. Its bytes take a quarter of the time that
    the numbers take which they stand for::

        add(multiply(cast(%conv1, "float32"), 0.5f), multiply(cast(%conv2, "float32"), 0.25f))   // %conv2: bytes
    """
    for node in nodes.values():
        call = node.expr
        if not isinstance(call, Call) or node.pattern > OpPattern.BROADCAST:
            continue
        computed = [arg for arg in dict.fromkeys(call.args) if isinstance(arg, Call)]
        ends = [end for end in (_narrowest(nodes, arg) for arg in computed[1:] and computed) if end is not None]
        for end, whole in ends[1:]:
            end.extern_ref = end is not whole


def _narrowest(nodes: dict[RelayExpr, _Node], end: RelayExpr) -> tuple[_Node, _Node] | None:
    """Return the tensor with the smallest elements between ``end`` and the product or convolution that it is made from.

    With it the node of ``end``; None where something else is in between, or is made from it besides.
    """
    whole = node = best = nodes[end]
    while len(node.outputs) == 1 and not node.extern_ref and isinstance(node.expr, Call):
        if _element_bytes(node.expr) < _element_bytes(best.expr):
            best = node
        if node.pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
            return best, whole
        if node.pattern > OpPattern.BROADCAST or not node.expr.args:
            return None
        node = nodes[node.expr.args[0]]
    return None


def _element_bytes(expr: RelayExpr) -> int:
    type_ = expr.checked_type
    return dt.nbytes(type_.dtype) if isinstance(type_, TensorType) else 0


def _same_shape(a: TensorType, b: TensorType) -> bool:
    return len(a.shape) == len(b.shape) and all(x is y for x, y in zip(a.shape, b.shape, strict=True))


def _build_dominators(order: list[_Node]) -> None:
    """Set each node's immediate post-dominator and the worst pattern on the way to it."""
    for node in reversed(order):
        if node.extern_ref or not node.outputs:
            continue
        pattern = OpPattern.ELEMWISE
        parent: _Node | None = None
        for i, (user, edge) in enumerate(node.outputs):
            pattern = _combine(pattern, edge)
            if i == 0:
                parent = user
            else:
                parent, pattern = _common_dominator(parent, user, pattern)
        node.dom_parent = parent
        node.dom_depth = parent.dom_depth + 1 if parent else 1
        node.dom_pattern = pattern


def _common_dominator(a: _Node | None, b: _Node | None, pattern: OpPattern) -> tuple[_Node | None, OpPattern]:
    while a is not b:
        if a is None or b is None:
            return None, pattern
        if a.dom_depth >= b.dom_depth:
            lower, a_next, b_next = a, a.dom_parent, b if a.dom_depth > b.dom_depth else b.dom_parent
            if a.dom_depth == b.dom_depth:
                pattern = _combine(pattern, b.dom_pattern)
        else:
            lower, a_next, b_next = b, a, b.dom_parent
        pattern = _combine(pattern, lower.dom_pattern)
        a, b = a_next, b_next
    return a, pattern


_Condition = Callable[[OpPattern, bool], bool]


class _Partitioner:
    """Merger of nodes into groups, phase by phase."""

    def __init__(self, order: list[_Node], max_depth: int) -> None:
        self.order = order
        self.max_depth = max_depth

    def run(self) -> None:
        """Run all phases."""
        for node in self.order:
            node.group_pattern = node.pattern
        _build_dominators(self.order)
        for phase in range(3):
            for node in self.order:
                self._try_fuse(node, phase)

    def _try_fuse(self, node: _Node, phase: int) -> None:
        sink = node.dom_parent
        if node.group_pattern == OpPattern.OPAQUE or sink is None:
            return
        if phase == 2:
            self._fuse_into_fused_tuple(node, sink)
            return
        if node.root() is sink.root() or sink.group_pattern == OpPattern.TUPLE:
            return
        condition = self._condition(node, phase)
        if condition and self._fits(node, sink) and self._check_path(node, sink, condition):
            self._commit(node, sink)

    def _condition(self, node: _Node, phase: int) -> _Condition | None:
        """Return the condition on the operators between a node and its post-dominator, or None not to fuse now."""
        pattern = node.group_pattern
        if pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
            if phase == 0 and node.dom_pattern == OpPattern.ELEMWISE:
                return lambda kind, is_sink: kind <= OpPattern.BROADCAST
        elif pattern <= OpPattern.BROADCAST:
            if node.dom_pattern <= OpPattern.INJECTIVE or node.dom_pattern == OpPattern.COMM_REDUCE:
                return lambda kind, is_sink: (
                    kind <= OpPattern.OUT_ELEMWISE_FUSABLE if is_sink else kind <= OpPattern.INJECTIVE
                )
        elif pattern in (OpPattern.INJECTIVE, OpPattern.TUPLE) and phase == 1:
            last = OpPattern.COMM_REDUCE if self._taken_as_read(node) else OpPattern.INJECTIVE
            return lambda kind, is_sink: kind <= (last if is_sink else OpPattern.INJECTIVE)
        return None

    @staticmethod
    def _taken_as_read(node: _Node) -> bool:
        """Return whether the post-dominator reads through ``node``: it allows that, and each element has one
        origin.
        """
        sink, expr = node.dom_parent, node.expr
        return (
            sink is not None
            and isinstance(sink.expr, Call)
            and isinstance(sink.expr.op, Op)
            and bool(sink.expr.op.get_attr("TTakesInjective", False))
            and isinstance(expr, Call)
            and all(isinstance(a.checked_type, TensorType) for a in expr.args)
        )

    def _fuse_into_fused_tuple(self, node: _Node, sink: _Node) -> None:
        root = sink.root()
        # each concatenation after another would read twice as many expressions
        if node.root().has_tuple or node.group_pattern > OpPattern.INJECTIVE or root.group_pattern == OpPattern.TUPLE:
            return
        if sink.group_pattern == OpPattern.TUPLE and root.group_pattern <= OpPattern.INJECTIVE:
            injective: _Condition = lambda kind, is_sink: kind <= OpPattern.INJECTIVE  # noqa: E731
            if self._fits(node, sink) and self._check_path(node, sink, injective):
                self._commit(node, sink)

    def _fits(self, node: _Node, sink: _Node) -> bool:
        groups: dict[_Node, None] = {}
        for between in self._between(node, sink):
            groups[between.root()] = None
        groups[sink.root()] = None
        return sum(g.group_size for g in groups) <= self.max_depth

    @staticmethod
    def _between(node: _Node, sink: _Node) -> list[_Node]:
        """Return ``node`` and everything on the paths to ``sink``, which is left out."""
        found: dict[_Node, None] = {}
        stack = [node]
        while stack:
            item = stack.pop()
            if item is sink or item in found:
                continue
            found[item] = None
            stack.extend(user for user, _ in item.outputs)
        return list(found)

    def _check_path(self, node: _Node, sink: _Node, condition: _Condition) -> bool:
        between = self._between(node, sink)
        return all(condition(n.root().group_pattern, False) for n in between if n is not node) and condition(
            sink.root().group_pattern, True
        )

    def _commit(self, node: _Node, sink: _Node) -> None:
        target = sink.root()
        for item in self._between(node, sink):
            child = item.root()
            if child is not target:
                child.group_parent = target
                target.group_size += child.group_size
                target.has_tuple |= child.has_tuple or child.pattern == OpPattern.TUPLE
                if child.group_pattern != OpPattern.TUPLE:  # what takes a tuple reads through it
                    target.group_pattern = _combine(child.group_pattern, target.group_pattern)


@dataclass(slots=True)
class _FunctionParts:
    """A fused function under construction: its parameters, its arguments, and the spans of its operators."""

    params: dict[RelayExpr, Var] = field(default_factory=dict)
    spans: list[Span | None] = field(default_factory=list)

    def param(self, argument: RelayExpr, type_: Type) -> Var:
        if argument not in self.params:
            self.params[argument] = Var(f"p{len(self.params)}", type_).with_checked_type(type_)
        return self.params[argument]


class _FuseMutator(ExprMutator):
    """Rewriter of the program with each group as a function."""

    def __init__(self, nodes: dict[RelayExpr, _Node], roots: dict[_Node, RelayExpr]) -> None:
        super().__init__()
        self.nodes = nodes
        self.roots = roots
        self.parts: dict[_Node, _FunctionParts] = {}

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return open_children(expr)

    def _arguments(self, args: Sequence[RelayExpr], group: _Node) -> list[RelayExpr]:
        result: list[RelayExpr] = []
        parts = self.parts.setdefault(group, _FunctionParts())
        for arg in args:
            new = self.visit(arg)
            inside = self.nodes[arg].root() is group and not self._reads_outside(arg)
            result.append(new if inside else parts.param(new, arg.checked_type))
        return result

    def _reads_outside(self, expr: RelayExpr) -> bool:
        """Return whether ``expr`` is a field of another group's tuple: then only the field is passed in."""
        if not isinstance(expr, TupleGetItem):
            return False
        return self.nodes[expr.tuple_value].root() is not self.nodes[expr].root()

    def _close(self, group: _Node, body: RelayExpr, type_: Type) -> RelayExpr:
        parts = self.parts.pop(group)
        func = Function(list(parts.params.values()), body.with_checked_type(type_), type_, attrs={PRIMITIVE.key: 1})
        return Call(func, list(parts.params), span=joined(parts.spans))

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        if not isinstance(expr.op, Op):
            return super().visit_call(expr)
        if expr.op is StopFusion.op:
            return self.visit(expr.args[0])
        group = self.nodes[expr].root()
        new = Call(expr.op, self._arguments(expr.args, group), expr.attrs, expr.type_args, expr.span)
        self.parts[group].spans.append(expr.span)
        if expr.op.get_attr("TNonComputational"):
            return super().visit_call(expr)
        if self.roots[group] is expr:
            return self._close(group, new, expr.checked_type)
        return new.with_checked_type(expr.checked_type)

    def visit_tuple(self, expr: Tuple) -> RelayExpr:
        group = self.nodes[expr].root()
        if self.roots[group] is expr:
            return super().visit_tuple(expr)
        return Tuple(self._arguments(expr.fields, group), expr.span).with_checked_type(expr.checked_type)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        group = self.nodes[expr].root()
        if self._reads_outside(expr):
            return super().visit_tuple_getitem(expr)
        new = TupleGetItem(self._arguments([expr.tuple_value], group)[0], expr.index, expr.span)
        if self.roots[group] is expr:
            return self._close(group, new, expr.checked_type)
        return new.with_checked_type(expr.checked_type)


def fuse_ops(func: Function, fuse_opt_level: int, max_depth: int) -> Function:
    """Return ``func``, which must be typed, with its operators grouped; at level 0 every operator is its own group."""
    builder = _GraphBuilder()
    order = builder.build(func.body)
    if fuse_opt_level > 0:
        _keep_narrow(builder.nodes)
        _Partitioner(order, max_depth).run()
    else:
        for node in order:
            node.group_pattern = node.pattern
    roots = {node.root(): node.root().expr for node in order}
    body = _FuseMutator(builder.nodes, roots).visit(func.body)
    return func if body is func.body else func.replace(body=body)


def FuseOps(fuse_opt_level: int = -1) -> Pass:
    """Fuse operators; ``fuse_opt_level`` -1 takes the PassContext's opt level, and 0 fuses nothing."""

    def fuse(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        level = ctx.opt_level if fuse_opt_level < 0 else fuse_opt_level
        return fuse_ops(func, level, ctx.option("relay.FuseOps.max_depth"))

    return typed_function_pass(fuse, "FuseOps", 0)
