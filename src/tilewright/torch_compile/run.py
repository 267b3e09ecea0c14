"""Runs a compiled library on the memory of torch's tensors.

Inputs are read where they lie: one that has gaps, or begins at an address that vectors cannot be loaded from, is copied
first. Outputs are written to new tensors, which share memory with no input. Any number of threads may call a
program; each call has an executor of its own.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from tilewright.relay.frontend.torch.dtypes import dtype_name
from tilewright.relay.frontend.torch.strides import back
from tilewright.runtime._ffi import LIB, DLDevice, DLTensor, TVMValue, TypeCode, check_call
from tilewright.runtime.device import cpu
from tilewright.runtime.dtype import DataType, to_native
from tilewright.runtime.model import holds_program, tensors_in
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.packed_func import unpack_return
from tilewright.runtime.vm import Executable, VirtualMachine
from tilewright.torch_compile.plan import Output, Plan

_MAIN = b"main"  # the function of a program
_ARRAY = int(TypeCode.NDARRAY)
_ALIGNMENT = 63  # bits of an address that must be 0


class Runner:
    """The function of a compiled graph: takes its inputs, returns its outputs."""

    def __init__(self, plan: Plan, module: Module, names: Sequence[str]) -> None:
        self._places = [plan.inputs.index(name) for name in names]
        kind = _Program if holds_program(module) else _Graph
        self._library: _Library = kind(module, names, plan)
        self._idle: list[_Executor] = [self._library.executor()]
        self._give = [_giver(output) for output in plan.outputs]
        self._plain = all(o.kind == "computed" and o.order is None and o.value == i for i, o in enumerate(plan.outputs))

    def __call__(self, *args: Any) -> Sequence[Any]:
        idle = self._idle
        try:
            executor = idle.pop()
        except IndexError:
            executor = self._library.executor()
        try:
            made = executor.run([args[place] for place in self._places])
        finally:
            idle.append(executor)
        return made if self._plain else [give(args, made) for give in self._give]


def _giver(output: Output) -> Any:
    value: Any = output.value
    if output.kind == "value":
        return lambda args, made: value
    if output.kind == "input":
        return lambda args, made: args[value]
    if output.kind == "number":
        return lambda args, made: made[value].item()
    if output.kind == "view":
        assert output.geometry is not None
        where = output.geometry.of
        return lambda args, made: made[value].as_strided(*where(args))
    if output.order is None:
        return lambda args, made: made[value]
    undo = back(output.order)
    return lambda args, made: made[value].permute(undo)


def _ready(value: Any) -> torch.Tensor:
    """Return a tensor whose memory kernels can read: compact, and aligned."""
    if not isinstance(value, torch.Tensor):
        return torch.tensor(value)
    if not value.is_contiguous():
        value = value.contiguous()
    return value.clone() if value.data_ptr() & _ALIGNMENT else value


class _Executor(ABC):
    """Runs a program, once at a time."""

    @abstractmethod
    def run(self, values: list[Any]) -> list[torch.Tensor]:
        """Return what the program computes, in memory of its own."""


class _Library(ABC):
    """A program, and the factory of its executors."""

    @abstractmethod
    def executor(self) -> _Executor:
        """Return a new executor."""


# ---- graphs: all shapes are known ----


class _Graph(_Library):
    def __init__(self, module: Module, names: Sequence[str], plan: Plan) -> None:
        self._module, self._names = module, names
        self._outputs = [(tuple(t.shape), t.dtype) if t is not None else ((), torch.int64) for t in plan.computed]

    def executor(self) -> _Executor:
        """Return an executor; all share the weights."""
        return _GraphExecutor(self._module["default"](cpu()), self._names, self._outputs)


class _Slot:
    """One call of ``set_input_zero_copy`` or ``set_output_zero_copy``, with its arguments laid out once."""

    def __init__(self, function: Any, index: int, shape: Sequence[int], dtype: str) -> None:
        self._shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        pointer = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
        self._tensor = DLTensor(None, DLDevice(1, 0), len(shape), to_native(DataType(dtype)), pointer, None, 0)
        self._values = (TVMValue * 2)()
        self._values[0].v_int64 = index
        self._values[1].v_handle = ctypes.addressof(self._tensor)
        self._codes = (ctypes.c_int * 2)(TypeCode.INT, TypeCode.DLTENSOR)
        self._function, self._result, self._code = function, TVMValue(), ctypes.c_int()
        self._address = -1

    def put(self, address: int) -> None:
        """Let the executor use memory at an address; nothing to do where it does already."""
        if address != self._address:
            self._tensor.data = address
            self._address = -1
            check_call(LIB.TVMFuncCall(self._function.handle, self._values, self._codes, 2, self._result, self._code))
            self._address = address


class _GraphExecutor(_Executor):
    def __init__(
        self, module: Module, names: Sequence[str], outputs: Sequence[tuple[tuple[int, ...], torch.dtype]]
    ) -> None:
        self._module, self._run = module, module["run"]
        self._outputs = outputs
        take, give = module["set_input_zero_copy"], module["set_output_zero_copy"]
        places = [module["get_input_index"](name) for name in names]
        self._takes = [None if i < 0 else _Slot(take, i, *_described(module, "describe_input", i)) for i in places]
        self._gives = [_Slot(give, i, *_described(module, "describe_output", i)) for i in range(len(outputs))]

    def run(self, values: list[Any]) -> list[torch.Tensor]:
        """Run on the memory of the values."""
        held = []  # copies live until the run ends
        for slot, value in zip(self._takes, values, strict=True):
            if slot is not None:
                ready = _ready(value)
                held.append(ready)
                slot.put(ready.data_ptr())
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in self._outputs]
        for slot, tensor in zip(self._gives, made, strict=True):
            slot.put(tensor.data_ptr())
        self._run()
        return made


def _described(module: Module, function: str, index: int) -> tuple[list[int], str]:
    from tilewright.runtime.executor.access import Access

    shape, dtype = Access(module).describe(function, index)
    return list(shape), dtype


# ---- programs: shapes are known when they run ----


class _Program(_Library):
    def __init__(self, module: Module, names: Sequence[str], plan: Plan) -> None:
        self._executable, self._names = Executable(module), names

    def executor(self) -> _Executor:
        """Return a machine; all share the program and its constants."""
        return _Machine(VirtualMachine(self._executable, cpu()), len(self._names))


class _Machine(_Executor):
    """Calls ``set_input`` and ``invoke`` of a machine with arguments that are laid out once."""

    def __init__(self, machine: VirtualMachine, inputs: int) -> None:
        self._set, self._invoke = machine.module["set_input"], machine.module["invoke"]
        self._views = [_View() for _ in range(inputs)]
        self._values = (TVMValue * (inputs + 1))()
        self._values[0].v_str = _MAIN
        self._slots = [self._values[i + 1] for i in range(inputs)]
        self._codes = (ctypes.c_int * (inputs + 1))(TypeCode.STR, *[TypeCode.NDARRAY] * inputs)
        self._result, self._code = TVMValue(), ctypes.c_int()

    def run(self, values: list[Any]) -> list[torch.Tensor]:
        """Run on the memory of the values, which the machine does not read later."""
        held = [_ready(value) for value in values]
        if held:
            self._give(held)
        check_call(LIB.TVMFuncCall(self._invoke.handle, self._values, self._codes, 1, self._result, self._code))
        code = self._code.value
        taken = {value.data_ptr() for value in held}
        if code == _ARRAY:  # one result, which most programs have
            return [_owned(NDArray(self._result.v_handle), taken)]
        return [_owned(result, taken) for result in tensors_in(unpack_return(self._result, code))]

    def _give(self, held: Sequence[torch.Tensor]) -> None:
        """Set the inputs; the machine has references of its own."""
        made = []
        try:
            for slot, view, value in zip(self._slots, self._views, held, strict=True):
                made.append(view.of(value))
                slot.v_handle = made[-1]
            count = len(held) + 1
            check_call(LIB.TVMFuncCall(self._set.handle, self._values, self._codes, count, self._result, self._code))
        finally:
            for handle in made:
                LIB.TVMArrayFree(handle)


class _ManagedTensor(ctypes.Structure):
    """DLPack's managed tensor, whose owner is somebody else: there is no deleter."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_DESCRIPTIONS: list[_ManagedTensor] = []  # for ever: a machine may hold an array longer than its input


class _View:
    """Makes arrays of one input's memory, without DLPack's capsules."""

    def __init__(self) -> None:
        self._managed = _ManagedTensor()
        self._sizes: torch.Size | None = None
        self._dtype: torch.dtype | None = None
        self._tensor, self._made = self._managed.tensor, ctypes.c_void_p()
        self._given, self._out = ctypes.byref(self._managed), ctypes.byref(self._made)
        self._managed.tensor.device = DLDevice(1, 0)
        _DESCRIPTIONS.append(self._managed)

    def of(self, value: torch.Tensor) -> int:
        """Return the handle of an array of a tensor's memory, which must outlive its use; the caller frees it."""
        tensor = self._tensor
        sizes = value.shape
        if sizes != self._sizes or value.dtype is not self._dtype:
            if self._sizes is None or len(sizes) != len(self._sizes):
                self._shape = (ctypes.c_int64 * max(len(sizes), 1))()
                tensor.shape = ctypes.cast(self._shape, ctypes.POINTER(ctypes.c_int64))
            self._shape[: len(sizes)] = sizes
            tensor.ndim, tensor.dtype = len(sizes), to_native(DataType(dtype_name(value.dtype)))
            self._sizes, self._dtype = sizes, value.dtype
        tensor.data = value.data_ptr()
        check_call(LIB.TVMArrayFromDLPack(self._given, self._out))
        assert self._made.value is not None
        return self._made.value


def _owned(result: NDArray, taken: set[int]) -> torch.Tensor:
    """Return a result as a tensor: in its memory, or in new memory where that is an input's or another result's."""
    if not result.writeable:
        return torch.from_dlpack(result.copyto(cpu()))
    made = torch.from_dlpack(result.to_dlpack())  # a capsule, which is faster than asking the array
    if made.numel() and made.data_ptr() in taken:
        return made.clone()
    taken.add(made.data_ptr())
    return made
