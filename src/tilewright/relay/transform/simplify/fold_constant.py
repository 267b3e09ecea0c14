"""FoldConstant: evaluate expressions of constants at compile time.

Before::

    %0 = add(meta[relay.Constant][0], 1f);
    multiply(%x, %0)

after::

    multiply(%x, meta[relay.Constant][0])

The value is that of the operator's numpy meaning (``OpDef.evaluate``); an operator without one is compiled for this
machine and run. Operators with side effects, or that draw random numbers, are left alone. So are operators that prepare
weights and enlarge them (``OpDef.grows``): the graph executor runs them once, and the library stays small. With the
option ``relay.graph.run_once`` off, and by ``FoldConstant(prepare_weights=True)``, they are evaluated too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.budget import check_budget
from tilewright.ir.dtype import is_custom
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.type import TensorType, TupleType, known_tensors
from tilewright.relay.analysis import free_vars
from tilewright.relay.expr import Call, Constant, Function, If, Let, TempExpr, Tuple, TupleGetItem, const
from tilewright.relay.facts import parts
from tilewright.relay.op.annotation.devices import OnDevice
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.evaluation import evaluate_call
from tilewright.relay.op.views import tensor_bytes
from tilewright.relay.transform.common import BoundLet, call_of, children_with_marks, typed_function_pass
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import ExprMutator, bind
from tilewright.runtime import ndarray as nd
from tilewright.runtime.mapped_files import weight_array
from tilewright.runtime.ndarray import numpy_view
from tilewright.runtime.parallel import in_parallel

# A transposed weight of that size is a view of the weight: it is copied when it is packed, or becomes a parameter, and
# three copies of all weights never exist.
_SHARED_BYTES = 1 << 20


def constant_value(expr: RelayExpr) -> Any:
    """Return the numpy value of a constant (its own memory), or nested tuples of them; None for anything else."""
    if isinstance(expr, Constant):
        return numpy_view(expr.data)
    if isinstance(expr, Tuple):
        fields = [constant_value(f) for f in expr.fields]
        return None if any(f is None for f in fields) else tuple(fields)
    return None


def as_constant(value: Any, type_: Any) -> RelayExpr:
    """Return a typed constant (or tuple of constants) of a numpy value."""
    if isinstance(type_, TupleType):
        fields = [as_constant(v, t) for v, t in zip(value, type_.fields, strict=True)]
        return Tuple(fields).with_checked_type(type_)
    values = np.reshape(value, type_.concrete_shape)
    if values.nbytes >= _SHARED_BYTES and values.dtype == nd.numpy_dtype(type_.dtype) and _is_permuted(values):
        return const(nd.share_memory(values)).with_checked_type(type_)
    data = weight_array(type_.concrete_shape, type_.dtype)
    np.copyto(numpy_view(data, writable=True), values, casting="unsafe")
    return const(data).with_checked_type(type_)


def evaluated(call: Call, arguments: Sequence[Any], type_: Any) -> RelayExpr:
    """Return the typed constant (or tuple of constants) of a call of values of numpy.

    A large result of numbers one by one is made in its own memory, part by part: it is never there twice.
    """
    if _goes_by_parts(call, arguments, type_):
        data = weight_array(type_.concrete_shape, type_.dtype)

        def make(pieces: tuple[np.ndarray[Any, Any], ...]) -> None:
            out, *inputs = pieces
            np.copyto(out, evaluate_call(call, inputs, None)[0], casting="unsafe")

        out = numpy_view(data, writable=True)
        whole = [parts(a) if a.size > 1 else itertools.repeat(a) for a in arguments]
        in_parallel(make, zip(parts(out), *whole, strict=False))
        return const(data).with_checked_type(type_)
    results = evaluate_call(call, arguments, type_)
    return as_constant(results if isinstance(type_, TupleType) else results[0], type_)


def _goes_by_parts(call: Call, arguments: Sequence[Any], type_: Any) -> bool:
    """Return whether each number of a large result is of those of the arguments at its place, or of single ones."""
    pattern = call.op.get_attr("TOpPattern")  # type: ignore[attr-defined]
    pointwise = pattern in (OpPattern.ELEMWISE, OpPattern.BROADCAST) and call.op.has_attr("FEvaluate")  # type: ignore[attr-defined]
    if not pointwise or not isinstance(type_, TensorType) or tensor_bytes(type_) < _SHARED_BYTES:
        return False
    if not all(isinstance(a, np.ndarray) for a in arguments):
        return False
    return {a.shape for a in arguments if a.size > 1} == {type_.concrete_shape}


def _is_permuted(values: np.ndarray[Any, Any]) -> bool:
    """Return whether an array is another whole array with its axes permuted."""
    order = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    return not values.flags.c_contiguous and values.transpose(order).flags.c_contiguous


def grows_at_load(op: Op) -> bool:
    """Return whether an operator on weights runs when the library is loaded; TVM 0.8's executor would run it every
    time.
    """
    option = PassContext.current().option
    return bool(op.get_attr("TGrows") and option("relay.graph.run_once") and option("relay.graph.storage_offset"))


def _unmarked(expr: RelayExpr) -> RelayExpr:
    """Return the argument of a fixed ``on_device``; any other expression as it is."""
    mark = call_of(expr, OnDevice.op)
    return expr if mark is None or not mark.attrs.is_fixed else mark.args[0]  # type: ignore[union-attr]


class _ConstantFolder(ExprMutator):
    def __init__(self, prepare_weights: bool = False) -> None:
        super().__init__()
        self.prepare_weights = prepare_weights

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        return children_with_marks(expr)

    def visit_temp(self, expr: TempExpr) -> RelayExpr:
        """Bind a variable to its constant value, with the mark of its device."""
        assert isinstance(expr, BoundLet)
        value = self.visit(expr.let.value)
        if isinstance(_unmarked(value), Constant):
            self.memo_map[expr.let.var] = value
        return expr

    def visit_let(self, expr: Let) -> RelayExpr:
        if isinstance(_unmarked(self.visit(expr.value)), Constant):
            return self.visit(expr.body)
        return super().visit_let(expr)

    def visit_if(self, expr: If) -> RelayExpr:
        condition = constant_value(self.visit(expr.cond))
        if condition is None:
            return super().visit_if(expr)
        return self.visit(expr.true_branch if bool(condition) else expr.false_branch)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> RelayExpr:
        value = self.visit(expr.tuple_value)
        if isinstance(value, Tuple):
            return value.fields[expr.index]
        return super().visit_tuple_getitem(expr)

    def visit_call(self, expr: Call) -> RelayExpr:
        post = super().visit_call(expr)
        if not isinstance(post, Call) or not isinstance(post.op, Op):
            return post
        if post.op.get_attr("TOpIsStateful") or post.op.get_attr("TNonComputational"):
            return post
        if post.op.get_attr("TReadsShape") and isinstance(folded := _fold_shape(post, expr), RelayExpr):
            return folded
        if post.op.get_attr("TOpPattern") == OpPattern.OPAQUE and not post.op.has_attr("FEvaluate"):
            return post
        if grows_at_load(post.op) and not self.prepare_weights:
            return post
        arguments = [constant_value(_unmarked(a)) for a in post.args]
        tensors = known_tensors(expr.checked_type_or_none)
        if tensors is None or any(a is None for a in arguments) or _computes_users_types(expr):
            return post
        if (size := sum(map(tensor_bytes, tensors))) > _SHARED_BYTES:
            check_budget(f"the constant result {expr.checked_type} of {_name_of(expr)}", size)
        return evaluated(post, arguments, expr.checked_type)


def _computes_users_types(call: Call) -> bool:
    """Return whether a call reads or gives numbers of a user's type: numpy would compute with their bits."""
    types = [e.checked_type_or_none for e in (call, *call.args)]
    return any(is_custom(tensor.dtype) for t in types for tensor in known_tensors(t) or ())


def _name_of(call: Call) -> str:
    """Return the operator's name and source location."""
    name = call.op.name  # type: ignore[attr-defined]
    return f"{name} ({call.span.source_name.name})" if call.span else name


def _fold_shape(call: Call, typed: Call) -> RelayExpr | None:
    """Evaluate an operator that reads only the shape of its argument."""
    data_type = typed.args[0].checked_type_or_none
    if not isinstance(data_type, TensorType) or data_type.is_dynamic:
        return None
    unread = np.broadcast_to(np.uint8(0), data_type.concrete_shape)
    return as_constant(evaluate_call(call, [unread], typed.checked_type)[0], typed.checked_type)


def fold_constant(expr: RelayExpr) -> RelayExpr:
    """Return ``expr``, which must be typed, with constant parts evaluated."""
    return _ConstantFolder().visit(expr)


def FoldConstant(prepare_weights: bool = False) -> Pass:
    """Evaluate constant expressions; with ``prepare_weights`` also those that the graph executor evaluates when it
    is loaded.
    """

    def fold(func: Function, mod: IRModule, ctx: PassContext) -> RelayExpr:
        return _ConstantFolder(prepare_weights).visit(func)

    return typed_function_pass(fold, "FoldConstant", 2, required=())


def FoldConstantExpr(expr: RelayExpr, mod: IRModule) -> RelayExpr:
    """Fold the constants of ``expr``, which may use the functions and data types of ``mod``."""
    whole = mod.copy()
    function = expr if isinstance(expr, Function) else Function(free_vars(expr), expr)
    whole["main"] = function
    folded = FoldConstant()(InferType()(whole))["main"]
    assert isinstance(folded, Function)
    return (
        folded
        if isinstance(expr, Function)
        else bind(folded.body, dict(zip(folded.params, function.params, strict=True)))
    )
