"""The form of a lowered module, and its verifier.

::

    def @main(%x: Tensor[(1, 3), float32]) -> Tensor[(1, 4), float32] {
      @tvmgen_default_fused_nn_dense(%x, meta[relay.Constant][0])
    }

    @tvmgen_default_fused_nn_dense = primfn(...)
      attr = {"global_symbol": "tvmgen_default_fused_nn_dense", "hash": "...", "target": llvm, ...}

Called functions other than Relay's open ones are of three kinds:

- a kernel is a ``PrimFunc``. Its parameters are the tensors of the arguments, tuples flattened, then those of the
  result. Attributes: ``global_symbol``, ``target`` (each kernel its own), ``hash`` (``LabelOps``), ``implementation``
  and ``schedule`` (texts for reports), ``layouts`` (pairs that the graph JSON carries), ``device_type`` (where its
  tensors are, if that is not the device of the target's kind);
- an external function is a Relay function with ``Compiler`` and ``global_symbol``, whose code another code generator
  makes; for results of unknown shapes it has the attributes of a shape function, as a kernel has;
- a view is a Relay function with ``view`` and ``offsets`` (``PlanViews``): it has no code, and its result is in memory
  of other tensors.

A call may have the attributes ``run_once`` and ``in_place`` (``PlanViews``). A program for several devices calls
the operator ``device_copy`` as well; with main's ``param_device_types`` and ``result_device_type`` these determine the
device of each value (``relay.analysis.device_types``), and each device has one target.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.structural import structural_equal
from tilewright.ir.type import FuncType, TensorType, Type
from tilewright.relay.analysis import device_types
from tilewright.relay.data_flow import tensor_types
from tilewright.relay.expr import Call, Function
from tilewright.relay.function_attributes import (
    COMPILER,
    GLOBAL_SYMBOL,
    IN_PLACE,
    RESULT_DEVICE_TYPE,
    RUN_ONCE,
    SHAPE_FUNCTION,
    TARGET,
    VIEW,
)
from tilewright.relay.op.annotation.devices import DeviceCopy, OnDevice
from tilewright.relay.op.vm import InvokeTVMOp
from tilewright.relay.transform.common import call_of, open_children
from tilewright.relay.transform.devices.device_domains import device_name
from tilewright.relay.verify import module_attribute_problems
from tilewright.relay.visitor import is_closed, post_order
from tilewright.target.target import Target
from tilewright.tir.function import PrimFunc

CALL_MARKS = (RUN_ONCE.key, IN_PLACE.key)


def is_external(func: BaseFunc) -> bool:
    """Return whether another code generator makes the function's code."""
    return isinstance(func, Function) and COMPILER.on(func)


def is_machine_op(op: RelayExpr) -> bool:
    """Return whether an operator is an instruction of the virtual machine, which needs no kernel."""
    return isinstance(op, Op) and bool(op.get_attr("TMachineOp"))


def kernels(mod: IRModule) -> dict[GlobalVar, PrimFunc]:
    """Return the kernels of a lowered module, in order."""
    return {var: func for var, func in mod.items() if isinstance(func, PrimFunc)}


def verify_lowered(mod: IRModule) -> None:
    """Check that ``mod`` is a lowered module.

    Raises:
        TilewrightError: it is not; the message lists every problem.
    """
    problems = module_attribute_problems(mod)
    for var, func in mod.items():
        if isinstance(func, PrimFunc):
            problems += _problems_of_kernel(var, func)
        elif is_closed(func):
            problems += _problems_of_closed(var, func)
        elif isinstance(func, Function):
            for expr in post_order(func.body, open_children):
                if isinstance(expr, Call) and not call_of(expr, DeviceCopy.op):
                    problems += [f"in @{var.name_hint}: {text}" for text in _problems_of_call(mod, expr)]
            if RESULT_DEVICE_TYPE.has(func):
                problems += [f"in @{var.name_hint}: {text}" for text in _problems_of_devices(mod, func)]
    if problems:
        raise TilewrightError("the module is not lowered:\n" + "\n".join(f"  {text}" for text in problems))


def _problems_of_kernel(var: GlobalVar, func: PrimFunc) -> list[str]:
    problems = []
    if not isinstance(TARGET.get(func), Target):
        problems.append(f"the kernel @{var.name_hint} has no target")
    if GLOBAL_SYMBOL.get(func) != var.name_hint:
        found = GLOBAL_SYMBOL.get(func)
        problems.append(f"the kernel @{var.name_hint} has the global_symbol {found!r}; expected its name")
    return problems


def _problems_of_closed(var: GlobalVar, func: BaseFunc) -> list[str]:
    if is_external(func):
        named = GLOBAL_SYMBOL.get(func) == var.name_hint
        return [] if named else [f"the external function @{var.name_hint} has no global_symbol of that name"]
    return [] if VIEW.on(func) else [f"the primitive function @{var.name_hint} has not been lowered"]


def _problems_of_call(mod: IRModule, call: Call) -> list[str]:
    if is_machine_op(call.op):
        return _problems_of_invocation(mod, call) if call_of(call, InvokeTVMOp.op) else []
    if isinstance(call.op, Op):
        return [f"the operator {call.op.name} is outside of a kernel; run relay.transform.FuseOps before LowerTE"]
    if is_closed(call.op):
        return ["a primitive function is called that has not been lowered"]
    if not isinstance(call.op, GlobalVar):
        return []
    if call.op not in mod:
        return [f"the module has no function @{call.op.name_hint}"]
    return _problems_of_types(mod, call.op, [*(a.checked_type for a in call.args), call.checked_type])


def _problems_of_invocation(mod: IRModule, call: Call) -> list[str]:
    kernel = call.args[0]
    if not isinstance(kernel, GlobalVar) or kernel not in mod:
        return [f"vm.invoke_tvm_op is given {kernel}; expected a kernel of the module"]
    return _problems_of_types(mod, kernel, [a.checked_type for a in call.args[1:]])


def _problems_of_types(mod: IRModule, kernel: GlobalVar, types: Sequence[Type]) -> list[str]:
    """Return the problems where the types of a kernel's arguments or result are not those of a call."""
    expected = _signature(mod[kernel.name_hint])
    if expected is None:
        return []
    found = _tensors(types)
    if len(expected) == len(found) and all(map(structural_equal, expected, found)):
        return []
    show = ["(" + ", ".join(map(str, types)) + ")" for types in (expected, found)]
    return [f"@{kernel.name_hint} takes and gives {show[0]}, and is called with {show[1]}"]


def _problems_of_devices(mod: IRModule, func: Function) -> list[str]:
    try:
        devices = device_types(func)
    except TilewrightError as error:
        return [str(error)]
    targets: dict[int, Target] = {}
    problems = []
    for expr, device in devices.items():
        if call_of(expr, OnDevice.op):
            problems.append("a mark on_device is left; ForEachDevice removes it")
        if copy := call_of(expr, DeviceCopy.op):
            to = int(copy.attrs.dst_dev_type)  # type: ignore[union-attr]
            if to != device:
                problems.append(f"what is copied to {device_name(to)} is used on {device_name(device)}")
        elif isinstance(expr, Call) and isinstance(expr.op, GlobalVar) and expr.op in mod:
            target = TARGET.get(mod[expr.op])
            if isinstance(target, Target) and targets.setdefault(device, target) != target:
                found = f"{targets[device]} and {target}"
                problems.append(f"kernels on {device_name(device)} have two targets: {found}")
    return problems


def _signature(callee: RelayExpr) -> list[Type] | None:
    """Return the parameter and result tensors of a kernel, view or external function; None for other functions."""
    if isinstance(callee, PrimFunc) and SHAPE_FUNCTION.has(callee):  # of unknown shapes: as it is called
        called = callee.checked_type
        assert isinstance(called, FuncType)
        return _tensors([*called.arg_types, called.ret_type])
    if isinstance(callee, PrimFunc):
        buffers = [callee.buffer_map[p] for p in callee.params]
        return [TensorType(b.shape, b.dtype) for b in buffers]
    type_ = callee.checked_type_or_none
    return _tensors([*type_.arg_types, type_.ret_type]) if is_closed(callee) and isinstance(type_, FuncType) else None


def _tensors(types: Sequence[Type]) -> list[Type]:
    return [t for type_ in types for t in tensor_types(type_)]
