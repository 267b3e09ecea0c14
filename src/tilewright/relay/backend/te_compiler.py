"""Lowering of primitive functions: from a fused Relay function to a TIR kernel.

A primitive function becomes one TE computation: each operator's chosen implementation computes its tensors, and
the schedule of the *anchor*, the operator with the heaviest pattern, schedules them all. Functions that are
structurally equal share one kernel.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.autotvm.task.dispatcher import DispatchContext
from tilewright.autotvm.task.space import ConfigSpace
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.module import IRModule
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import PrimExpr, SizeVar
from tilewright.ir.prim_ops import as_expr
from tilewright.ir.prim_ops import const as prim_const
from tilewright.ir.transform import PassContext
from tilewright.ir.type import FuncType, TensorType, TupleType, Type, tensors_of
from tilewright.relay.backend.symbolic import inputs_with_variables, is_dynamic_function, shape_function, symbolic
from tilewright.relay.backend.wide import Widener, is_bounded, is_wide, limit_of, narrow_tensors, takes_any_size
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.function_attributes import (
    DEVICE_TYPE,
    GLOBAL_SYMBOL,
    HASH,
    IMPLEMENTATION,
    LAYOUTS,
    MOVES_NOTHING,
    NETWORK_WEIGHTS,
    PRIMITIVE,
    REINTERPRET,
    SCHEDULE,
    SCHEDULE_REASON,
    SHAPE_CHECKS,
    SHAPE_FUNCTION,
    SHAPE_INPUTS,
    SHAPE_VALUES,
    SLACK,
    TARGET,
)
from tilewright.relay.op.definition import OpPattern
from tilewright.relay.op.strategy import OpImplementation, OpStrategy, generic
from tilewright.relay.op.transform.reshape import Reshape
from tilewright.relay.op.views import is_reshape
from tilewright.relay.transform.fusion.label_ops import hash_of
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import ExprFunctor, post_order
from tilewright.runtime import ndarray as nd
from tilewright.runtime.packed_func import PackedFunc
from tilewright.target.build import ModuleBuilder, host_of
from tilewright.target.generic_func import GenericFunc
from tilewright.target.target import Target
from tilewright.te.lower import argument_buffer
from tilewright.te.lower import lowered as lower_schedule
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import AssertStmt
from tilewright.topi.utils import get_const_tuple

_MAX_NAME_LENGTH = 80

logger = logging.getLogger("te_compiler")  # TVM's name for it


class CCacheKey(Node):
    """Key of a kernel: the function and the target."""

    source_func: Function
    target: Target


class CachedFunc(Node):
    """A lowered function: ``funcs`` holds the kernel under ``prim_fn_var``, with its tensors and their schedule."""

    target: Target
    prim_fn_var: GlobalVar
    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    schedule: te.Schedule
    funcs: IRModule


class LoweredOutput(Node):
    """The result tensors of an operator, and the implementation that computes and schedules them."""

    outputs: tuple[te.Tensor, ...]
    implement: OpImplementation


def get_valid_implementations(
    op: Op, attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target
) -> list[OpImplementation]:
    """Return the implementations of ``op`` whose specialization condition holds for these shapes."""
    strategy = _strategy(op, attrs, inputs, out_type, target)
    valid: list[OpImplementation] = []
    for spec in strategy.specializations:
        if spec.condition is None or spec.condition.holds():
            valid.extend(spec.implementations)
    return valid


def _strategy(
    op: Op, attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target, plain: bool = False
) -> OpStrategy:
    make = op.get_attr("FTVMStrategy")
    if plain and isinstance(make, GenericFunc) and make.fdefault is not None:
        make = make.fdefault
    if make is not None:
        with target:
            strategy: OpStrategy = make(attrs, inputs, out_type, target)
        return strategy
    compute = op.get_attr("FTVMCompute")
    if compute is None:
        raise UnsupportedError(
            f"operator {op.name} has no implementation for target {target.kind.name}; "
            "give it a compute or a strategy, or partition it to an external compiler"
        )
    strategy = OpStrategy()
    schedule = op.get_attr("FTVMSchedule") or _default_schedule(op)
    strategy.add_implementation(compute, schedule, name=f"{op.name}.{target.kind.name}")
    return strategy


def _default_schedule(op: Op) -> Any:
    pattern = op.get_attr("TOpPattern", OpPattern.OPAQUE)
    if pattern <= OpPattern.INJECTIVE:
        return generic.schedule_injective
    if pattern == OpPattern.COMM_REDUCE:
        return generic.schedule_reduce
    return generic.schedule_extern


def select_implementation(
    op: Op, attrs: Any, inputs: Sequence[te.Tensor], out_type: Type, target: Target, use_autotvm: bool = True
) -> tuple[OpImplementation, list[te.Tensor]]:
    """Return the implementation and its outputs: the best tuned one if a record covers it, else the highest plevel."""
    candidates = get_valid_implementations(op, attrs, inputs, out_type, target)
    if not candidates:
        shapes = ", ".join(f"{tuple(repr(d) for d in t.shape)} {t.dtype}" for t in inputs)
        raise UnsupportedError(f"no implementation of {op.name} for {target} fits the inputs {shapes}")
    best_plevel = max(candidates, key=lambda impl: impl.plevel)
    if use_autotvm and not DispatchContext.current.is_fallback():
        tuned: list[tuple[float, OpImplementation, list[te.Tensor]]] = []
        for impl in candidates:
            outs = list(impl.compute(attrs, inputs, out_type))
            config = DispatchContext.current.query_of(outs, target)
            if config is not None and not config.is_fallback:
                tuned.append((config.cost if config.cost is not None else 0.0, impl, outs))
        if tuned:
            cost, impl, outs = min(tuned, key=lambda item: item[0])
            logger.info("Using %s for %s based on lowest cost (%.2e)", impl.name, op.name, cost)
            return impl, outs
    logger.info("Using %s for %s based on highest priority (%s)", best_plevel.name, op.name, best_plevel.plevel)
    return best_plevel, list(best_plevel.compute(attrs, inputs, out_type))


def lower_call(call: Call, inputs: Sequence[te.Tensor], target: Target) -> LoweredOutput:
    """Compute a typed call of an operator on tensors."""
    if not isinstance(call.op, Op):
        raise TilewrightError(f"a primitive function calls operators only, found a call of {call.op}")
    implementation, outputs = select_implementation(call.op, call.attrs, inputs, call.checked_type, target)
    return LoweredOutput(tuple(outputs), implementation)


def _lower_plainly(call: Call, inputs: Sequence[te.Tensor], target: Target) -> LoweredOutput:
    """Compute a typed call of an operator in plain loops, as for a target with nothing of its own."""
    assert isinstance(call.op, Op)
    strategy = _strategy(call.op, call.attrs, inputs, call.checked_type, target, plain=True)
    implementation = strategy.specializations[0].implementations[0]
    return LoweredOutput(tuple(implementation.compute(call.attrs, inputs, call.checked_type)), implementation)


@dataclass
class _Anchor:
    """The operator whose schedule schedules the whole kernel."""

    pattern: OpPattern = OpPattern.ELEMWISE
    op: Op | None = None
    attrs: Any = None
    implementation: OpImplementation | None = None


@dataclass
class _TensorBuilder(ExprFunctor[list[te.Tensor]]):
    """Compute the tensors of a primitive function."""

    target: Target
    plain: bool = False  # compute operators in plain loops, whatever the target has for them
    widener: Widener | None = None  # makes dimensions of 64 bits
    heavy: bool = False  # an operator has a schedule of its own, such as a convolution
    limited: list[te.Tensor] = field(default_factory=list)  # may be too large for positions of 32 bits
    memo_map: dict[RelayExpr, list[te.Tensor]] = field(default_factory=dict)
    anchor: _Anchor = field(default_factory=_Anchor)
    layout_attrs: dict[str, str] = field(default_factory=dict)
    scalars: list[te.Tensor] = field(default_factory=list)
    record: ConfigSpace | None = None  # of the whole kernel
    recorded: str = ""  # says which record the schedule is of
    conflict: str = ""
    """why no operator's schedule schedules the whole kernel"""

    def children(self, expr: RelayExpr) -> Sequence[RelayExpr]:
        """Skip operators, which have no tensors."""
        if isinstance(expr, Call):
            return expr.args
        return super().children(expr)

    def visit_var(self, expr: Var) -> list[te.Tensor]:
        raise TilewrightError(f"the primitive function uses the free variable {expr.name_hint}")

    def visit_constant(self, expr: Constant) -> list[te.Tensor]:
        value = expr.data.numpy()
        if value.shape:
            raise TilewrightError("a primitive function may hold scalar constants only; pass arrays as arguments")
        dtype = str(expr.data.dtype)
        tensor = te.compute(
            (), lambda *_: prim_const(value.item(), dtype), name="compile_engine_const", tag="broadcast"
        )
        self.scalars.append(tensor)
        return [tensor]

    def visit_tuple(self, expr: Tuple) -> list[te.Tensor]:
        return [tensor for item in expr.fields for tensor in self.visit(item)]

    def visit_tuple_getitem(self, expr: TupleGetItem) -> list[te.Tensor]:
        return [self.visit(expr.tuple_value)[expr.index]]

    def visit_let(self, expr: Let) -> list[te.Tensor]:
        raise TilewrightError("a primitive function holds no let; run relay.transform.ToGraphNormalForm first")

    def visit_call(self, expr: Call) -> list[te.Tensor]:
        inputs = [tensor for arg in expr.args for tensor in self.visit(arg)]
        if self.widener:
            attrs = self.widener.attrs(expr.attrs) if expr.attrs is not None else None
            expr = Call(expr.op, expr.args, attrs).with_checked_type(self.widener.type(expr.checked_type))
        lowered = (_lower_plainly if self.plain else lower_call)(expr, inputs, self.target)
        op, implementation = expr.op, lowered.implement
        assert isinstance(op, Op)
        pattern = op.get_attr("TOpPattern", OpPattern.OPAQUE)
        if pattern >= OpPattern.COMM_REDUCE and self.anchor.pattern >= OpPattern.COMM_REDUCE:
            assert self.anchor.op is not None
            self.conflict = f"{self.anchor.op.name} and {op.name} cannot share one kernel"
        if pattern > OpPattern.COMM_REDUCE and not takes_any_size(lowered.outputs[0].op):
            self.heavy = True
        if pattern >= self.anchor.pattern:
            self.anchor = _Anchor(pattern, op, expr.attrs, implementation)
        if expr.attrs is not None:
            fields = expr.attrs.field_values()
            self.layout_attrs.update((name, str(value)) for name, value in fields if name.endswith("layout"))
        return list(lowered.outputs)


def _placeholders(type_: Type, read_between: int) -> list[te.Tensor]:
    if isinstance(type_, TupleType):
        return [t for item in type_.fields for t in _placeholders(item, read_between)]
    assert isinstance(type_, TensorType)
    return [te.placeholder(type_.shape, name="placeholder", dtype=type_.dtype, read_between=read_between)]


def kernel_name(operators: Sequence[str], suffix: str) -> str:
    """Return ``fused_op1_op2...``; a name over 80 characters is cut and ends with a hash of the whole."""
    name = "_".join(["fused", *operators])
    if len(name) > _MAX_NAME_LENGTH:
        digest = hashlib.sha256((name + suffix).encode()).hexdigest()[:16]
        name = f"{name[: _MAX_NAME_LENGTH - 17]}_{digest}"
    return name


class KernelNames:
    """Names of the kernels of one module: ``tvmgen_MODULE_NAME``, numbered where they would be equal."""

    def __init__(self, mod_name: str = "default", prefix: str | None = None) -> None:
        self.prefix = f"tvmgen_{mod_name.replace('-', '_')}_" if prefix is None else prefix
        self._taken: dict[str, None] = {}

    def __call__(self, name: str) -> str:
        """Return a name that no kernel has yet."""
        base = unique = self.prefix + name
        count = 0
        while unique in self._taken:
            count += 1
            unique = f"{base}_{count}"
        self._taken[unique] = None
        return unique


def kernel_name_of(func: Function) -> str:
    """Return the name of a primitive function's kernel, which may have to be numbered."""
    return kernel_name(operator_names(func), hash_of(func))


def operator_names(func: Function) -> list[str]:
    """Return the names of the operators that a primitive function computes, in order."""
    seen, body = _reinterpreted(func)
    skipped = set(seen.values())
    calls = [e for e in post_order(body) if isinstance(e, Call) and e not in skipped]
    return [c.op.name.replace(".", "_") for c in calls if isinstance(c.op, Op)]


def measured(cost: float | None) -> str:
    """Return the time of a tuning record, in seconds, in words."""
    return "" if cost is None else f", {cost * 1e3:.4g} ms where it was measured"


def _reason(config: ConfigSpace | None) -> str:
    """Return why a kernel without a record of its own has its schedule, by the configuration of its operator."""
    if config is not None and not config.is_fallback:
        return f"a tuning record of the operator{measured(config.cost)}"
    none = "no tuning records are in force" if DispatchContext.current.is_fallback() else "no tuning record is of it"
    return f"the untuned choice: {none}"


def called_type(func: Function) -> FuncType:
    """Return the type of a primitive function."""
    return FuncType([p.checked_type for p in func.params], func.body.checked_type)


def lower_primitive(func: Function, target: Target, names: Callable[[str], str]) -> CachedFunc:
    """Lower a typed primitive function; ``relay.backend.lowered`` lists the kernel's attributes."""
    label = hash_of(func)
    called = called_type(func)
    unknown = symbolic(func) if is_dynamic_function(func) else None
    func = unknown.func if unknown else func
    with target:
        inputs, outputs, schedule, builder = build_schedule(func, target)
        name = names(kernel_name(operator_names(func), label))
        tensors = [*inputs, *outputs]
        binds = _argument_buffers(func, tensors) if unknown or SLACK.has(func) else None  # as the machine makes them
        prim_func = lower_schedule(schedule, tensors, name, binds)[name]
        config = builder.record or DispatchContext.current.query_of(outputs, target)
    result = func.body.checked_type
    if REINTERPRET.on(func):
        prim_func = _with_argument_types(prim_func, [*(p.checked_type for p in func.params), result])
    implementation = builder.anchor.implementation
    attrs = {
        GLOBAL_SYMBOL.key: name,
        TARGET.key: target,
        HASH.key: label,
        IMPLEMENTATION.key: implementation.name if implementation else "",
        SCHEDULE.key: config.summary() if config is not None else "",
        SCHEDULE_REASON.key: builder.recorded or _reason(config),
        LAYOUTS.key: tuple(builder.layout_attrs.items()),
        **({DEVICE_TYPE.key: DEVICE_TYPE.of(func)} if DEVICE_TYPE.has(func) else {}),
    }
    if _moves_nothing(func):
        attrs[MOVES_NOTHING.key] = True
    funcs: dict[GlobalVar, PrimFunc] = {}
    if unknown:
        if builder.widener:
            unknown = unknown.widened(builder.widener)
        shapes = shape_function(names(f"shape_func_{name}"), inputs, outputs, unknown, host_of(target), builder.limited)
        funcs[GlobalVar(GLOBAL_SYMBOL.of(shapes))] = shapes
        attrs |= {
            SHAPE_FUNCTION.key: GLOBAL_SYMBOL.of(shapes),
            SHAPE_CHECKS.key: isinstance(shapes.body, AssertStmt),
            SHAPE_INPUTS.key: tuple(inputs_with_variables(inputs)),
            SHAPE_VALUES.key: unknown.values,
        }
    prim_func = prim_func.with_attr(attrs).with_checked_type(called)
    var = GlobalVar(name).with_checked_type(called)
    funcs[var] = prim_func
    return CachedFunc(target, var, tuple(inputs), tuple(outputs), schedule, IRModule(funcs))


def _argument_buffers(func: Function, tensors: Sequence[te.Tensor]) -> dict[te.Tensor, Buffer]:
    """Return compact buffers, but with strides for parameters whose memory may have spare capacity."""
    buffers = {t: argument_buffer(t, True) for t in tensors}
    for index, axis in SLACK.get(func, ()):
        if axis == 0:
            continue  # compact all the same: the slack is after the whole tensor
        tensor = tensors[sum(len(list(tensors_of(p.checked_type))) for p in func.params[:index])]
        strides: list[PrimExpr] = []
        for i in reversed(range(len(tensor.shape))):
            if i == axis - 1:
                strides.insert(0, SizeVar("stride", tensor.shape[axis].dtype))
            else:
                strides.insert(0, strides[0] * tensor.shape[i + 1] if strides else as_expr(1))
        buffers[tensor] = decl_buffer(tensor.shape, tensor.dtype, tensor.name, strides=strides)
    return buffers


def _moves_nothing(func: Function) -> bool:
    """Return whether a function only reshapes its first parameter."""
    body = func.body
    if SLACK.on(func) or not func.params:  # of constants alone
        return False
    while is_reshape(body):
        body = body.args[0]
    return body is not func.body and body is func.params[0] and isinstance(body.checked_type, TensorType)


class TECompiler:
    """Compiler of primitive functions; those that are structurally equal are lowered once for each target."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, ...], tuple[CCacheKey, CachedFunc]] = {}
        self._names: dict[str, KernelNames] = {}

    def lower(self, source_func: Function | CCacheKey, target: Any = None, mod_name: str = "default") -> CachedFunc:
        """Return the kernel of a typed function of operators, for ``target`` or the current target."""
        key = source_func if isinstance(source_func, CCacheKey) else _cache_key(source_func, target)
        weights = str(NETWORK_WEIGHTS.get(key.source_func, ""))
        known = (hash_of(key.source_func), str(key.target), mod_name, weights)
        if known not in self._cache:
            names = self._names.setdefault(mod_name, KernelNames(mod_name))
            self._cache[known] = key, lower_primitive(key.source_func, key.target, names)
        return self._cache[known][1]

    def jit(self, source_func: Function | CCacheKey, target: Any = None) -> PackedFunc:
        """Return the compiled kernel: a function of the arguments and then the results, which it writes."""
        lowered = self.lower(source_func, target)
        builder = ModuleBuilder(lowered.target)
        builder.add(lowered.funcs)
        return builder.finish()[lowered.prim_fn_var.name_hint]

    def clear(self) -> None:
        """Forget every kernel."""
        self._cache.clear()
        self._names.clear()

    def items(self) -> list[tuple[CCacheKey, CachedFunc]]:
        """Return all keys and kernels."""
        return list(self._cache.values())


_compiler = TECompiler()


def get() -> TECompiler:
    """Return the compiler of this process."""
    return _compiler


def _cache_key(func: Any, target: Any) -> CCacheKey:
    chosen = Target(target) if target is not None else Target.current()
    if chosen is None:
        raise TilewrightError('lowering needs a target: lower(func, "llvm"), or "with target:" around it')
    if not isinstance(func, Function):
        raise TilewrightError(f"a Relay function is lowered, found a {type(func).__name__}")
    if func.checked_type_or_none is None:
        raise TilewrightError("the function has no types yet; run relay.transform.InferType() on its module first")
    return CCacheKey(func, chosen)


Scheduled = tuple[list[te.Tensor], list[te.Tensor], Any, _TensorBuilder]
tuned_schedules: list[Callable[[Function, Target], Scheduled | None]] = []  # schedules of kernels by records in force


def build_schedule(func: Function, target: Target) -> Scheduled:
    """Return inputs, outputs and schedule of a primitive function, by a record of it where one is in force."""
    for tuned in tuned_schedules:
        found = tuned(func, target)
        if found is not None:
            return found
    return schedule_of(func, target)


def schedule_of(func: Function, target: Target) -> Scheduled:
    """Return inputs, outputs and schedule of a primitive function by the schedule of its anchor."""
    inputs, outputs, builder = computed(func, target)
    anchor = builder.anchor
    if builder.conflict:
        raise TilewrightError(builder.conflict)
    if anchor.implementation is None:
        schedule = generic.schedule_injective(None, outputs, target)
    else:
        schedule = anchor.implementation.schedule(anchor.attrs, _distinct(outputs), target)
    inline_scalars(builder, outputs, schedule)
    return inputs, outputs, schedule, builder


def inline_scalars(builder: _TensorBuilder, outputs: Sequence[te.Tensor], schedule: te.Schedule) -> None:
    """Inline the scalar constants of a kernel."""
    for scalar in builder.scalars:
        if scalar.op in schedule.stage_map and not any(scalar.op is t.op for t in outputs):
            schedule[scalar].compute_inline()


def computed(
    func: Function, target: Target, plain: bool = False
) -> tuple[list[te.Tensor], list[te.Tensor], _TensorBuilder]:
    """Return inputs and outputs of a primitive function, and their builder; an output that is an input is copied.

    With ``plain``, operators are computed in plain loops, whatever the target has for them.
    """
    if not is_wide(func, target):
        return _computed(func, _TensorBuilder(target, plain))
    inputs, outputs, builder = _computed(func, _TensorBuilder(target, plain))
    limited = narrow_tensors(outputs)
    if builder.heavy and not is_bounded(func):
        limited += [*inputs, *outputs]
    if not limited:
        return _computed(func, _TensorBuilder(target, plain, Widener()))
    builder.limited = list(dict.fromkeys(limited))
    if any(ops.is_const_int(limit_of(tensor, Widener()), 0) for tensor in builder.limited):
        names = ", ".join(operator_names(func))
        raise UnsupportedError(f"{names}: positions have 32 bits, so tensors of 2^31 elements or more are too large")
    return inputs, outputs, builder


def _computed(func: Function, builder: _TensorBuilder) -> tuple[list[te.Tensor], list[te.Tensor], _TensorBuilder]:
    inputs: list[te.Tensor] = []
    seen, body = _reinterpreted(func)
    weights = NETWORK_WEIGHTS.get(func, 0)
    for param in func.params:
        read = seen.get(param, param)
        type_ = builder.widener.type(read.checked_type) if builder.widener else read.checked_type
        tensors = _placeholders(type_, weights)
        builder.memo_map[read] = tensors
        inputs += tensors
    outputs = builder.visit(body)
    return inputs, [topi.identity(t) if t in inputs else t for t in outputs], builder


def auto_scheduled() -> bool:
    """Return whether this build takes schedules of the auto-scheduler."""
    return bool(PassContext.current().option("relay.backend.use_auto_scheduler"))


def _reinterpreted(func: Function) -> tuple[dict[RelayExpr, RelayExpr], RelayExpr]:
    """Return the reshape of each parameter that a function reads in another shape, and the result in the kernel's
    shape.
    """
    if not REINTERPRET.on(func):
        return {}, func.body
    assert isinstance(func.body, Call)
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    return {c.args[0]: c for c in calls if c.op is Reshape.op and c is not func.body}, func.body.args[0]


def _with_argument_types(prim_func: PrimFunc, types: Sequence[Type]) -> PrimFunc:
    """Return ``prim_func``, whose body works on flat memory, with arguments declared as ``types`` of the same
    sizes.
    """
    buffers = dict(prim_func.buffer_map)
    for param, type_ in zip(prim_func.params, types, strict=True):
        assert isinstance(type_, TensorType)
        buffer = buffers[param]
        assert not buffer.strides
        assert math.prod(get_const_tuple(buffer.shape)) == math.prod(type_.concrete_shape)
        buffers[param] = buffer.replace(shape=type_.shape)
    return prim_func.replace(buffer_map=buffers)


def _distinct(tensors: Sequence[te.Tensor]) -> list[te.Tensor]:
    return list(dict.fromkeys(tensors))


def run_primitive(call: Call, arguments: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Compile one operator call for this machine and run it on numpy arrays (flattened arguments)."""
    rest = iter(arguments)
    types = [_type_of_value(a.checked_type, rest) for a in call.args]
    params = [Var(f"p{i}", type_).with_checked_type(type_) for i, type_ in enumerate(types)]
    body = Call(call.op, params, call.attrs, call.type_args)
    mod = InferType()(IRModule.from_expr(Function(params, body, attrs={PRIMITIVE.key: 1})))
    func = mod["main"]
    kernel = TECompiler().jit(func, "llvm")
    result = func.body.checked_type
    out_types: Sequence[Any] = result.fields if isinstance(result, TupleType) else (result,)
    outputs = [nd.empty(t.concrete_shape, t.dtype) for t in out_types]
    kernel(*[nd.array(a) for a in arguments], *outputs)
    return [out.numpy() for out in outputs]


def _type_of_value(type_: Type, arrays: Iterator[np.ndarray[Any, Any]]) -> Type:
    """Return ``type_`` with the shapes of the arrays of its value."""
    if isinstance(type_, TupleType):
        return TupleType([_type_of_value(item, arrays) for item in type_.fields])
    assert isinstance(type_, TensorType)
    return TensorType(next(arrays).shape, type_.dtype)
