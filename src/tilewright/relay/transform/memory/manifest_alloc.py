"""ManifestAlloc: make the memory of kernels' results part of the program.

Before, where ``%k`` is a primitive function::

    let %x1 = %k(%x);
    %x1

after::

    let %storage = memory.alloc_storage(8i64, 64i64, dtype="float32", device_id=0, device_type=1);
    let %x1 = memory.alloc_tensor(%storage, 0i64, meta[relay.Constant][0], ...);   # shape (2,)
    let %done = vm.invoke_tvm_op(%k, (%x,), (%x1,));
    %x1

The program is first brought to A-normal form. Calls with unknown dimensions in arguments or results stay as they are,
since the shape functions of their kernels check shapes and compute sizes at run time; so do calls that only reshape,
which take no memory. ``MemoryPlan`` then shares memory between tensors that do not live at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.transform import ModulePass, Pass, PassContext, PassInfo
from tilewright.ir.type import TensorType, Type, known_tensors
from tilewright.relay.expr import Call, Constant, Function, Let, Tuple, Var, const
from tilewright.relay.function_attributes import CLOSURE
from tilewright.relay.lets import with_lets
from tilewright.relay.op import memory, vm
from tilewright.relay.op.views import ALIGNMENT, is_reshape, tensor_bytes
from tilewright.relay.transform.common import open_children
from tilewright.relay.transform.devices.for_each_device import device_of
from tilewright.relay.transform.functional.to_a_normal_form import to_a_normal_form
from tilewright.relay.type_infer import infer_module
from tilewright.relay.visitor import ExprMutator, is_closed
from tilewright.runtime.device import Device, cpu
from tilewright.target.target import Target


def ManifestAlloc(target_host: Any = None, targets: Any = None) -> Pass:
    """Make the memory of kernels' results part of a fused program.

    Parameters
    ----------
    target_host : accepted, as in TVM; shapes are computed on the CPU.
    targets : the target of the memory's device, or a dictionary with it alone; by default the current one, or the CPU.

    Raises
    ------
    ValueError : there are several targets; the machine's programs run on one device.
    """
    chosen = _one_target(targets)

    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        target = chosen or Target.current()
        device = cpu() if target is None else Device(target.device_type, 0)
        whole = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and not is_closed(func):
                # a lifted function that makes a closure is a function whose body is one
                whole[var] = (
                    func.replace(body=to_a_normal_form(func.body)) if CLOSURE.on(func) else to_a_normal_form(func)
                )
        result = infer_module(whole).copy()
        changed = False
        for var, func in result.functions.items():
            if isinstance(func, Function) and not is_closed(func):
                body = _Manifester(device).visit(func.body)
                changed = changed or body is not func.body
                result[var] = func if body is func.body else func.replace(body=body)
        if not changed:
            return mod
        if not any(v.name_hint == "Storage" for v in result.type_definitions):
            result.import_from_std("core.rly")
        return infer_module(result)

    return ModulePass(run, PassInfo(0, "ManifestAlloc"))


def _one_target(targets: Any) -> Target | None:
    if isinstance(targets, Mapping):
        if len(targets) != 1:
            raise ValueError(f"a program for the virtual machine runs on one device; got {len(targets)} targets")
        (targets,) = targets.values()
    return None if targets is None else Target(targets)


def only_reshapes(func: RelayExpr) -> bool:
    """Return whether a primitive function only reshapes its argument."""
    body = func.body if isinstance(func, Function) else None
    while body is not None and is_reshape(body):
        body = body.args[0]
    return isinstance(body, Var)


class _Manifester(ExprMutator):
    """Rewriter of lets of calls of primitive functions."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device

    def children(self, expr: RelayExpr) -> Any:
        return open_children(expr)

    def visit_function(self, expr: Function) -> RelayExpr:
        return expr if is_closed(expr) else super().visit_function(expr)

    def visit_let(self, expr: Let) -> RelayExpr:
        post = super().visit_let(expr)
        assert isinstance(post, Let)
        call, typed = post.value, expr.value
        if (
            not isinstance(call, Call)
            or not isinstance(typed, Call)
            or not is_closed(call.op)
            or only_reshapes(call.op)
        ):
            return post
        if any(known_tensors(arg.checked_type) is None for arg in typed.args):  # its shape function checks them
            return post
        types = known_tensors(typed.checked_type)
        return post if types is None else self._with_memory(post, call, typed.checked_type, types)

    def _with_memory(self, let: Let, call: Call, type_: Type, types: list[TensorType]) -> RelayExpr:
        bindings: list[tuple[Var, RelayExpr]] = []
        single = isinstance(type_, TensorType)
        outputs: list[RelayExpr] = []
        device = Device(device_of(call.op, self.device.device_type), 0)
        for tensor in types:
            storage, out = Var("storage"), let.var if single else Var("out")
            size, shape = tensor_bytes(tensor), const(np.array(tensor.concrete_shape, "int64"))
            place = memory.alloc_storage(_number(size), _number(ALIGNMENT), device, tensor.dtype)
            bindings.append((storage, place))
            bindings.append((out, memory.alloc_tensor(storage, _number(0), shape, tensor.dtype)))
            outputs.append(out)
        bindings.append((Var("done"), vm.invoke_tvm_op(call.op, Tuple(call.args), Tuple(outputs))))
        if not single:
            bindings.append((let.var, memory.to_tuple_type(type_, outputs)))
        return with_lets(bindings, let.body)


def _number(value: int) -> Constant:
    return const(np.array(value, "int64"))
