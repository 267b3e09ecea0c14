"""``relay.create_executor``: evaluate Relay from Python, by compiling it or by interpreting it.

``create_executor("graph", mod).evaluate()(x, y)`` runs ``main``; ``create_executor().evaluate(expr)`` returns the value
of an expression. Tensors are returned as NDArrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.ir.dtype import is_custom
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.type import TensorType, TupleType, Type, known_tensors
from tilewright.relay.adt import Constructor
from tilewright.relay.backend.executors import Evaluator, evaluator_of, register_executor
from tilewright.relay.build_module import build, with_params
from tilewright.relay.expr import Call, Function, RefCreate, Tuple, Var, const
from tilewright.relay.interpreter import Closure, ConstructorValue, RefValue, to_value
from tilewright.relay.interpreter import Interpreter as Machine
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.precision.compute_in_float32 import ComputeInFloat32
from tilewright.relay.visitor import bind
from tilewright.runtime import ndarray as nd
from tilewright.runtime.container import ADT, tuple_object
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.dtype import DataType
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule, AotModule
from tilewright.runtime.executor.graph import GraphModule
from tilewright.runtime.vm import VirtualMachine

Run = Callable[..., Any]


class Executor:
    """Evaluator of functions and expressions of a module; the next ``evaluate`` sees changes of the module."""

    def __init__(self, mod: IRModule, device: Device, target: Any = "llvm") -> None:
        self.mod = mod
        self.device = device
        self.target = target

    def evaluate(self, expr: RelayExpr | None = None, binds: Mapping[Var, Any] | None = None) -> Any:
        """Return a Python function for a Relay function, a global variable or (None) ``main``; else the value of
        ``expr``.

        The function takes the parameters in order or by name: arrays, Python numbers, tuples, values returned by an
        executor. ``binds`` maps free variables of ``expr`` to values.
        """
        if expr is not None and binds:
            expr = bind(expr, {var: _to_expr(value) for var, value in binds.items()})
        if expr is None or isinstance(expr, (GlobalVar, BaseFunc)):
            return self._make_executor(expr)
        return self._make_executor(Function([], expr))()

    def _make_executor(self, expr: RelayExpr | None) -> Run:
        raise NotImplementedError


class Interpreter(Executor):
    """Executor that interprets every construct of the language; it compiles only operators without a meaning in
    numpy.
    """

    def _make_executor(self, expr: RelayExpr | None) -> Run:
        mod = self.mod.copy()
        if isinstance(expr, Function):
            name = "evaluated"
            while name in mod:
                name += "_"
            mod[name] = expr
        else:
            name = expr.name_hint if isinstance(expr, GlobalVar) else "main"
            mod.get_global_var(name)
        typed = ComputeInFloat32()(InferType()(mod))
        machine, func = Machine(typed), typed[name]

        def run(*args: Any, **kwargs: Any) -> Any:
            values = [to_value(v) for v in in_order(func, args, kwargs)]
            return from_value(machine.apply(Closure(func, machine.globals), values))

        return run


class GraphExecutor(Executor):
    """Executor that compiles for the graph executor: data flow between tensors of known shapes."""

    def _make_executor(self, expr: RelayExpr | None) -> Run:
        mod = self.mod.copy()
        if expr is not None:
            mod["main"] = mod[expr] if isinstance(expr, GlobalVar) else expr
        mod.get_global_var("main")
        mod = InferType()(mod)
        func = mod["main"]
        types = [t for param in func.params for t in _tensor_types(param.checked_type, f"parameter %{param.name_hint}")]
        result = func.body.checked_type
        _tensor_types(result, "result")
        executor = self._built(mod)

        def run(*args: Any, **kwargs: Any) -> Any:
            arrays = _flat([to_value(v) for v in in_order(func, args, kwargs)])
            for index, (array, type_) in enumerate(zip(arrays, types, strict=True)):
                value: Any = array.astype(DataType(type_.dtype).to_numpy(), copy=False)
                if is_custom(type_.dtype):  # which numpy knows as the integers of their bits
                    value = nd.empty(array.shape, type_.dtype).copyfrom(value)
                executor.set_input(index, value)
            executor.run()
            outputs = (executor.get_output(i).copyto(cpu()) for i in range(executor.get_num_outputs()))
            return _unflatten(outputs, result)

        return run

    def _built(self, mod: IRModule) -> GraphModule | AotModule:
        return GraphModule(build(mod, self.target)["default"](self.device))


class AotExecutor(GraphExecutor):
    """Executor that compiles ahead of time: what the graph executor takes, as one function."""

    def _built(self, mod: IRModule) -> GraphModule | AotModule:
        factory: AOTExecutorFactoryModule = build(mod, self.target, executor="aot")
        return factory.create_executor(self.device)


class VMExecutor(Executor):
    """Executor that compiles for the virtual machine: all of Relay."""

    def _make_executor(self, expr: RelayExpr | None) -> Callable[..., Any]:
        mod = self.mod.copy()
        if expr is not None:
            mod["main"] = mod[expr] if expr in mod.functions else expr
        mod = InferType()(mod)
        func = mod["main"]
        self.executable = build(mod, self.target, executor="vm")
        self.vm = VirtualMachine(self.executable, self.device)

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.vm.run(*in_order(func, args, kwargs))

        return run


def create_executor(
    kind: str = "debug",
    mod: IRModule | None = None,
    device: Device | None = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
) -> Evaluator:
    """Return an executor of kind "debug" (interprets), "graph" or "aot" (compile data flow), "vm" (compiles), or a
    registered one.

    Parameters
    ----------
    mod : the functions; an empty module when only expressions are evaluated.
    device, target : where compiled code runs and the target it is compiled for; by default the CPU.
    params : arrays for parameters of ``main`` by name; they become constants.

    Raises
    ------
    UnsupportedError for kinds that are not registered (``relay.backend.executors``).
    """
    make = evaluator_of(kind)
    module = mod if mod is not None else IRModule()
    if params:
        module = module.copy()
        module["main"] = with_params(module["main"], params)
    return make(module, device if device is not None else cpu(), target)


def in_order(func: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return a value for each parameter, from positional arguments, then keywords; other names are ignored, as in
    TVM.
    """
    names = [param.name_hint for param in func.params]
    if len(args) > len(names):
        raise TilewrightError(f"{len(args)} values for the {len(names)} parameters ({', '.join(names)})")
    if twice := [name for name in names[: len(args)] if name in kwargs]:
        raise TilewrightError(f"values both in order and by name for the parameters {', '.join(twice)}")
    if missing := [name for name in names[len(args) :] if name not in kwargs]:
        raise TilewrightError(f"no value for the parameters {', '.join(missing)}")
    return [*args, *(kwargs[name] for name in names[len(args) :])]


def _to_expr(value: Any) -> RelayExpr:
    """Return a value as an expression."""
    match value:
        case RelayExpr():
            return value
        case tuple() | list() | ADT():
            return Tuple([_to_expr(item) for item in value])
        case ConstructorValue():
            return Call(value.constructor, [_to_expr(item) for item in value.fields])
        case RefValue():
            return RefCreate(_to_expr(value.value))
    return const(value)


def from_value(value: Any) -> Any:
    """Return an interpreter's value for Python callers: arrays become NDArrays, tuples ADTs."""
    match value:
        case tuple():
            return tuple_object([from_value(item) for item in value])
        case ConstructorValue():
            return ConstructorValue(value.tag, [from_value(item) for item in value.fields], value.constructor)
        case RefValue():
            return RefValue(from_value(value.value))
        case Closure() | Constructor():
            return value
    return nd.array(value)


def _tensor_types(type_: Type, what: str) -> list[TensorType]:
    tensors = known_tensors(type_)
    if tensors is None:
        raise UnsupportedError(
            f"the graph executor takes and returns tensors of known shapes; the {what} is a {type_} "
            '(kind="debug" interprets such functions)'
        )
    return tensors


def _flat(values: Any) -> Iterator[np.ndarray[Any, Any]]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield np.asarray(value)


def _unflatten(tensors: Iterator[Any], type_: Type) -> Any:
    """Return the tensors in the structure of ``type_``: a list for a tuple, as in TVM."""
    return [_unflatten(tensors, item) for item in type_.fields] if isinstance(type_, TupleType) else next(tensors)


register_executor("debug", evaluator=Interpreter)
register_executor("graph", evaluator=GraphExecutor)
register_executor("aot", evaluator=AotExecutor)
register_executor("vm", evaluator=VMExecutor)
