"""DenseToSparse, Conv2dToSparse, SimplifyFCTranspose: sparse and transposed forms of weights that are parameters.

Before and after, for the weight ``w`` of 4 blocks of 8x1 that are not zero::

    nn.dense(%x, %w)                        // %w: Tensor[(64, 64), float32]
    nn.sparse_dense(%x, %w.data, %w.indices, %w.indptr)    // Tensor[(4, 8, 1)], Tensor[(4), int32], Tensor[(9), int32]

and for a transposed weight::

    nn.dense(%x, transpose(%w, axes=[1, 0]))
    nn.dense(%x, %w.T)

``relay.data_dep_optimization`` converts the weights' values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Function, Var
from tilewright.relay.op.nn.conv2d import Conv2D
from tilewright.relay.op.nn.dense import Dense
from tilewright.relay.op.transform.axes import Transpose
from tilewright.relay.transform.common import call_of
from tilewright.relay.visitor import ExprMutator, post_order

# Finds the weight of a call that may change; makes variables in its place, or none; builds the call with these.
Finder = Callable[[RelayExpr], Var | None]
Maker = Callable[[Var], Sequence[Var]]
Builder = Callable[[Call, Sequence[Var]], RelayExpr]


class _Replacer(ExprMutator):
    """Replace weights; ``variables`` are the new parameters of each weight, none for those that stay."""

    def __init__(self, find: Finder, make: Maker, build: Builder) -> None:
        super().__init__()
        self.find, self.make, self.build = find, make, build
        self.variables: dict[Var, Sequence[Var]] = {}

    def visit_call(self, expr: Call) -> RelayExpr:
        weight = self.find(expr)
        changed = super().visit_call(expr)
        if weight is None:
            return changed
        if weight not in self.variables:
            self.variables[weight] = self.make(weight)
        assert isinstance(changed, Call)
        return self.build(changed, self.variables[weight]) if self.variables[weight] else changed


def _pass(name: str, find: Finder, make: Maker, build: Builder) -> Pass:
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Function:
        replacer = _Replacer(find, make, build)
        body = replacer.visit(func.body)
        if body is func.body:
            return func
        used = {e for e in post_order(body) if isinstance(e, Var)}
        kept = [p for p in func.params if p in used or not replacer.variables.get(p)]
        added = [v for group in replacer.variables.values() for v in group]
        return Function([*kept, *added], body, None, func.type_params, func.attrs)

    return FunctionPass(run, PassInfo(4, name, ("DeadCodeElimination",)), Function)


def dense_weight(expr: RelayExpr) -> Var | None:
    """Return the variable that is the weight of a dense layer."""
    call = call_of(expr, Dense.op)
    return call.args[1] if call is not None and isinstance(call.args[1], Var) else None


def transposed_weight(expr: RelayExpr) -> Var | None:
    """Return the variable whose transpose is the weight of a dense layer."""
    call = call_of(expr, Dense.op)
    turned = None if call is None else call_of(call.args[1], Transpose.op)
    return turned.args[0] if turned is not None and isinstance(turned.args[0], Var) else None


def conv2d_weight(layout: str, kernel_size: int) -> Finder:
    """Return a function that finds the weight of a convolution which ``nn.sparse_conv2d`` supports, a variable."""

    def find(expr: RelayExpr) -> Var | None:
        call = call_of(expr, Conv2D.op)
        if call is None or not isinstance(call.args[1], Var):
            return None
        attrs: Any = call.attrs
        around = kernel_size // 2
        wanted = {"strides": (1, 1), "dilation": (1, 1), "padding": (around,) * 4}
        plain = all(tuple(int(v) for v in attrs[name]) == value for name, value in wanted.items())
        fits = attrs["data_layout"] == layout and attrs["kernel_layout"] == {"NCHW": "OIHW", "NHWC": "HWIO"}[layout]
        return call.args[1] if plain and fits and int(attrs["groups"]) == 1 and kernel_size % 2 else None

    return find


def _parts(names: Sequence[str], shapes: Sequence[Sequence[int]], dims: int) -> dict[str, list[Var]]:
    """Return the three variables of each weight; a shape is that of data, of indices and of indptr, one after the
    other.
    """
    made = {}
    for name, shape in zip(names, shapes, strict=True):
        extents = [int(extent) for extent in shape]
        if len(extents) != dims + 2:
            raise TilewrightError(
                f"the shape of the sparse weight {name} is {dims} numbers for data, one for indices and one for "
                f"indptr; found {extents}"
            )
        types = (
            TensorType(extents[:dims]), TensorType(extents[dims:-1], "int32"), TensorType(extents[-1:], "int32"),
        )  # fmt: skip
        made[str(name)] = [Var(f"{name}.{p}", t) for p, t in zip(("data", "indices", "indptr"), types, strict=True)]
    return made


def _looked_up(variables: Mapping[str, Sequence[Var]]) -> Maker:
    return lambda weight: variables.get(weight.name_hint, ())


def DenseToSparse(weight_name: Sequence[str], weight_shape: Sequence[Sequence[int]]) -> Pass:
    """Turn dense layers with the named weights into ``nn.sparse_dense``; shapes are (blocks, rows, columns, ...)."""
    variables = _parts(weight_name, weight_shape, 3)
    return _pass(
        "DenseToSparse", dense_weight, _looked_up(variables), lambda call, w: relay_op.nn.sparse_dense(call.args[0], w)
    )


def Conv2dToSparse(
    weight_name: Sequence[str], weight_shape: Sequence[Sequence[int]], layout: str, kernel_size: int
) -> Pass:
    """Turn convolutions with the named weights into ``nn.sparse_conv2d``; shapes as in :func:`DenseToSparse`."""
    variables = _parts(weight_name, weight_shape, 3)
    build: Builder = lambda call, w: relay_op.nn.sparse_conv2d(call.args[0], w, layout, kernel_size)  # noqa: E731
    return _pass("Conv2dToSparse", conv2d_weight(layout, kernel_size), _looked_up(variables), build)


def SimplifyFCTranspose(target_weight_name: Sequence[str]) -> Pass:
    """Let dense layers whose weight is a transpose of a named one read ``NAME.T``, which is transposed already."""
    names = {str(name) for name in target_weight_name}

    def make(weight: Var) -> Sequence[Var]:
        if weight.name_hint not in names:
            return ()
        before = weight.type_annotation
        if not isinstance(before, TensorType):
            raise TilewrightError(f"the weight {weight.name_hint} should say its shape: relay.var(name, shape=...)")
        return [Var(f"{weight.name_hint}.T", TensorType(before.shape[::-1], before.dtype))]

    def build(call: Call, w: Sequence[Var]) -> RelayExpr:
        return call.replace(args=(call.args[0], w[0]))

    return _pass("SimplifyFCTranspose", transposed_weight, make, build)
