"""``te.gradient``: gradients of computations, as computations.

The gradient of an element is the sum over all its reads of the reader's gradient times the derivative. For a read
``A[f(i, k)]`` in ``B[i]`` the sum runs over all i and k with ``f(i, k) == j``; an axis for which an equation can be
solved is eliminated::

    C[i, j] = sum(A[i, k] * B[k, j], axis=k)
    dA[i, k] = sum(dC[i, j] * B[k, j], axis=j)      of dA[a, b]: i == a and k == b give i and k
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.arith.analyzer import Analyzer
from tilewright.arith.linear import detect_linear_equation
from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import UnsupportedError
from tilewright.ir.iter_var import CommReducer, IterVar, Range, Reduce
from tilewright.ir.memory import ProducerLoad
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Add, Call, Cast, Div, IntImm, Let, Max, Min, Mul, PrimExpr, Select, Sub, Var
from tilewright.ir.prim_vars import substitute
from tilewright.te.declare import compute, reduce_axis
from tilewright.te.operation import ComputeOp, sub_expressions
from tilewright.te.tensor import Tensor
from tilewright.tir import op as tir_op

_Terms = list[tuple[PrimExpr, PrimExpr]]  # a leaf, and what its derivative is multiplied by


def _one(x: PrimExpr) -> PrimExpr:
    return ops.const(1, x.dtype)


# Of y = f(x): what the gradient of y is multiplied by.
_SLOPES: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "tir.exp": lambda x, y: y,
    "tir.log": lambda x, y: _one(x) / x,
    "tir.sqrt": lambda x, y: _one(x) / (y * 2),
    "tir.rsqrt": lambda x, y: y / x * -0.5,
    "tir.tanh": lambda x, y: _one(x) - y * y,
    "tir.sigmoid": lambda x, y: y * (_one(x) - y),
    "tir.sin": lambda x, y: tir_op.cos(x),
    "tir.cos": lambda x, y: -tir_op.sin(x),
    "tir.erf": lambda x, y: tir_op.exp(-(x * x)) * (2 / math.sqrt(math.pi)),
    "tir.fabs": lambda x, y: Select(x >= 0, _one(x), -_one(x)),
    "tir.abs": lambda x, y: Select(x >= 0, _one(x), -_one(x)),
}
_STEPS = {"tir.floor", "tir.ceil", "tir.trunc", "tir.round", "tir.nearbyint", "tir.isnan"}  # of derivative 0


def gradient(output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None) -> list[Tensor]:
    """The gradients of ``output`` with respect to ``inputs``, multiplied by ``head``.

    Parameters
    ----------
    output : a computed tensor.
    inputs : tensors that it is computed from, directly or not.
    head : the gradient of ``output``, of the shape ``prefix + output.shape``. Without one the results are Jacobians,
        whose ``prefix`` is the shape of ``output``.

    Returns
    -------
    For each input a tensor of the shape ``prefix + input.shape``; zeros where ``output`` does not depend on it.

    Raises
    ------
    UnsupportedError for scans, extern computations, tuple reductions, and functions whose derivative is not known.
    """
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if head is None:
        head = _identity(output)
    prefix = len(head.shape) - len(output.shape)
    order = _between(output, wanted)
    partial: dict[Tensor, list[Tensor]] = {output: [head]}
    total: dict[Tensor, Tensor] = {}
    for tensor in order:
        if tensor not in partial:
            continue
        total[tensor] = _sum(tensor, partial[tensor])
        for source, term in _terms_of(tensor, total[tensor], prefix, set(order)):
            partial.setdefault(source, []).append(term)
    shapes = [tuple(head.shape[:prefix]) + tuple(t.shape) for t in wanted]
    return [total[t] if t in total else _zeros(t, s) for t, s in zip(wanted, shapes, strict=True)]


def _identity(output: Tensor) -> Tensor:
    rank = len(output.shape)

    def element(*i: PrimExpr) -> PrimExpr:
        same = [ops.equal(a, b) for a, b in zip(i[:rank], i[rank:], strict=True)]
        return ops.cast(output.dtype, tir_op.all(*same)) if same else ops.const(1, output.dtype)

    return compute((*output.shape, *output.shape), element, name="identity")


def _zeros(like: Tensor, shape: Sequence[PrimExpr]) -> Tensor:
    return compute(shape, lambda *i: ops.const(0, like.dtype), name=f"{like.op.name}_grad")


def _sum(of: Tensor, terms: Sequence[Tensor]) -> Tensor:
    if len(terms) == 1:
        return terms[0]

    def total(*i: PrimExpr) -> PrimExpr:
        result = terms[0](*i)
        for term in terms[1:]:
            result = result + term(*i)
        return result

    return compute(terms[0].shape, total, name=f"{of.op.name}_grad")


def _between(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors on the paths from the inputs to the output, each before those that it is computed from."""
    order: list[Tensor] = []
    reaches: dict[Tensor, bool] = {}
    stack = [(output, False)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in reaches and not ready:
            continue
        sources = tensor.op.input_tensors
        if not ready:
            reaches[tensor] = False
            stack.append((tensor, True))
            stack.extend((s, False) for s in sources if s not in reaches)
            continue
        reaches[tensor] = tensor in inputs or any(reaches[s] for s in sources)
        if reaches[tensor]:
            order.append(tensor)
    return order[::-1]


def _terms_of(tensor: Tensor, grad: Tensor, prefix: int, wanted: set[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return the terms that each read of a wanted tensor, in the computation of ``tensor``, adds to its gradient."""
    op = tensor.op
    if not op.input_tensors:
        return []
    if not isinstance(op, ComputeOp):
        raise UnsupportedError(f"te.gradient takes computes; {op.name} is a {type(op).__name__}")
    body = op.body[tensor.value_index]
    axes, condition = list(op.axis), None
    lead = [Var(f"p{i}", "int32") for i in range(prefix)]
    weight: PrimExpr = grad(*lead, *[axis.var for axis in axes])
    if isinstance(body, Reduce):
        if len(body.source) > 1 or body.init:
            raise UnsupportedError(f"te.gradient: {op.name} reduces tuples or from an initial value, which has none")
        axes += body.axis
        condition = body.condition
        if not _is_sum(body.combiner):
            weight = weight * _influence(op, body)(*[axis.var for axis in axes])
        body = body.source[0]
    terms = []
    for load, factor in _derivatives(body, weight, lambda e: isinstance(e, ProducerLoad)):
        assert isinstance(load, ProducerLoad)
        if load.producer in wanted:
            terms.append((load.producer, _collected(op, load, factor, axes, condition, lead, grad.shape[:prefix])))
    return terms


def _is_sum(combiner: CommReducer) -> bool:
    lhs, rhs, result = combiner.lhs[0], combiner.rhs[0], combiner.result[0]
    return isinstance(result, Add) and {result.a, result.b} == {lhs, rhs}


def _influence(op: ComputeOp, body: Reduce) -> Tensor:
    """Return the derivative of each result with respect to each reduced element, for combiners other than a sum.

    Each is a reduction of pairs: a derivative, of 1 for the element in question and of 0 for the others, and a value.
    """
    combiner, (source,) = body.combiner, body.source
    (lhs,), (rhs,) = combiner.lhs, combiner.rhs
    slopes = [Var(f"{v.name}_slope", v.dtype) for v in (lhs, rhs)]
    mixed: PrimExpr = ops.const(0, lhs.dtype)
    for leaf, factor in _derivatives(combiner.result[0], ops.const(1, lhs.dtype), lambda e: e in (lhs, rhs)):
        mixed = mixed + factor * (slopes[0] if leaf is lhs else slopes[1])
    pair = CommReducer(
        [slopes[0], lhs], [slopes[1], rhs], [mixed, combiner.result[0]],
        [ops.const(0, lhs.dtype), combiner.identity_element[0]],
    )  # fmt: skip
    rank = len(op.axis)

    def element(*i: Var) -> tuple[PrimExpr, ...]:
        fresh = [_again(a) for a in body.axis]
        mapping = {a.var: at for a, at in zip(op.axis, i[:rank], strict=True)}
        mapping |= {a.var: b.var for a, b in zip(body.axis, fresh, strict=True)}
        chosen = tir_op.all(*[ops.equal(b.var, at) for b, at in zip(fresh, i[rank:], strict=True)])
        values = [ops.cast(lhs.dtype, chosen), substitute(source, mapping)]
        condition = substitute(body.condition, mapping)
        return tuple(Reduce(pair, values, fresh, condition, index, []) for index in range(2))

    shape = [_dom(a).extent for a in (*op.axis, *body.axis)]
    found = compute(shape, element, name=f"{op.name}_slopes")
    first: Tensor = found[0]
    return first


def _derivatives(expr: PrimExpr, weight: PrimExpr, is_leaf: Callable[[PrimExpr], bool]) -> _Terms:
    """Return the leaves on which ``expr`` depends, each with the derivative times ``weight``.

    Users come before what they use, so that a part that many share is entered once.
    """
    partial: dict[PrimExpr, PrimExpr] = {expr: weight}
    found: _Terms = []
    for node in reversed(sub_expressions([expr])):
        if node not in partial or not dt.is_float(node.dtype):
            continue
        w = partial[node]
        if is_leaf(node):
            found.append((node, w))
        elif (branches := _branches(node)) is not None:
            choose, condition, taken, other = branches
            zero = ops.const(0, w.dtype)
            found += [(leaf, choose(condition, f, zero)) for leaf, f in _derivatives(taken, w, is_leaf)]
            found += [(leaf, choose(condition, zero, f)) for leaf, f in _derivatives(other, w, is_leaf)]
        else:
            for part, factor in _parts(node, w):
                partial[part] = partial[part] + factor if part in partial else factor
    return found


def _branches(node: PrimExpr) -> tuple[Callable[..., PrimExpr], PrimExpr, PrimExpr, PrimExpr] | None:
    """Return how to build the choice ``node``, its condition and its two values; None for other expressions."""
    match node:
        case Select():
            return Select, node.condition, node.true_value, node.false_value
        case Max():
            return Select, node.a >= node.b, node.a, node.b
        case Min():
            return Select, node.a <= node.b, node.a, node.b
        case Call() if isinstance(node.op, Op) and node.op.name == "tir.if_then_else":
            return tir_op.if_then_else, *node.args  # type: ignore[return-value]
    return None


def _parts(node: PrimExpr, w: PrimExpr) -> _Terms:
    """Return the operands of an expression, each with its derivative times ``w``."""
    match node:
        case Add():
            return [(node.a, w), (node.b, w)]
        case Sub():
            return [(node.a, w), (node.b, -w)]
        case Mul():
            return [(node.a, w * node.b), (node.b, w * node.a)]
        case Div():
            return [(node.a, w / node.b), (node.b, -(w * node / node.b))]
        case Cast():
            return [(node.value, ops.cast(node.value.dtype, w))] if dt.is_float(node.value.dtype) else []
        case Let():
            return [(substitute(node.body, {node.var: node.value}), w)]
        case Call() if isinstance(node.op, Op):
            return _parts_of_call(node, node.op.name, w)
    return []


def _parts_of_call(node: Call, name: str, w: PrimExpr) -> _Terms:
    if name in _SLOPES:
        x = node.args[0]
        return [(x, w * _SLOPES[name](x, node))]
    if name == "tir.pow":
        x, y = node.args
        return [(x, w * (y * tir_op.power(x, y - _one(y)))), (y, w * (node * tir_op.log(x)))]
    if name in _STEPS:
        return []
    raise UnsupportedError(f"te.gradient does not know the derivative of {name}")


class _Places:
    """The iterations that read one element: the remaining axes, the values of the others, and the conditions."""

    def __init__(self, axes: Sequence[IterVar], analyzer: Analyzer) -> None:
        self.left = {axis.var: _dom(axis) for axis in axes}
        self.known: dict[Var, PrimExpr] = {}
        self.conditions: list[PrimExpr] = []
        self.analyzer = analyzer

    def require(self, index: PrimExpr, place: PrimExpr) -> None:
        """Require ``index == place``: solve for the longest axis with coefficient 1 or -1, or add a condition."""
        index = self.analyzer.simplify(substitute(index, self.known))
        variables = list(self.left)
        coefficients = detect_linear_equation(index, variables) if variables else []
        steps = [c.value if isinstance(c, IntImm) else 0 for c in coefficients[: len(variables)]]
        candidates = [v for v, step in zip(variables, steps, strict=False) if step in (1, -1)]
        if not candidates:
            self.conditions.append(ops.equal(index, place))
            return
        chosen = max(candidates, key=lambda v: _extent(self.left[v]))
        rest = substitute(index, {chosen: ops.const(0, chosen.dtype)})
        value = place - rest if steps[variables.index(chosen)] == 1 else rest - place
        value = self.analyzer.simplify(value)
        dom = self.left.pop(chosen)
        self.known = {var: substitute(known, {chosen: value}) for var, known in self.known.items()} | {chosen: value}
        self.conditions = [substitute(c, {chosen: value}) for c in self.conditions]
        self.conditions += [value >= dom.min, value < dom.min + dom.extent]


def _dom(axis: IterVar) -> Range:
    assert axis.dom is not None
    return axis.dom


def _again(axis: IterVar) -> IterVar:
    """Return a new reduction axis of the same range."""
    dom = _dom(axis)
    return reduce_axis((dom.min, dom.min + dom.extent), axis.var.name)


def _extent(dom: Range) -> int:
    return dom.extent.value if isinstance(dom.extent, IntImm) else 1 << 30


def _collected(
    op: ComputeOp,
    load: ProducerLoad,
    factor: PrimExpr,
    axes: Sequence[IterVar],
    condition: PrimExpr | None,
    lead: Sequence[Var],
    prefix: Sequence[PrimExpr],
) -> Tensor:
    """Return, for each element of the tensor that ``load`` reads, the sum of ``factor`` over its readers'
    iterations.
    """
    source: Tensor = load.producer

    def element(*i: Var) -> PrimExpr:
        fresh = [_again(a) for a in axes]
        mapping = {a.var: b.var for a, b in zip(axes, fresh, strict=True)}
        mapping |= dict(zip(lead, i[: len(lead)], strict=True))
        analyzer = Analyzer()
        for axis in fresh:
            analyzer.bind(axis.var, _dom(axis))
        for at, extent in zip(i, (*prefix, *source.shape), strict=True):
            analyzer.bind(at, Range.from_min_extent(0, extent))
        places = _Places(fresh, analyzer)
        for index, at in zip(load.indices, i[len(lead) :], strict=True):
            places.require(substitute(index, mapping), at)
        value = substitute(substitute(factor, mapping), places.known)
        if condition is not None:
            places.conditions.append(substitute(substitute(condition, mapping), places.known))
        held = [analyzer.simplify(c) for c in places.conditions]
        held = [c for c in held if not ops.is_const_int(c, 1)]
        if held:
            value = tir_op.if_then_else(tir_op.all(*held), value, ops.const(0, value.dtype))
        left = [axis for axis in fresh if axis.var in places.left]
        return tir_op.sum(value, axis=left) if left else value

    return compute((*prefix, *source.shape), element, name=f"{source.op.name}_of_{op.name}_grad")
