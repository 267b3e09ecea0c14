"""Instructions of the operators ``memory.*`` and ``vm.*``, for the bytecode compiler.

memory.alloc_storage(size, alignment)        alloc_storage
memory.alloc_tensor(storage, offset, shape)  alloc_tensor where the shape is constant, else alloc_tensor_reg
memory.kill(x)                               nothing: registers are released after their last use
vm.invoke_tvm_op(@kernel, inputs, outputs)   invoke_packed
vm.shape_func(@kernel, inputs, outputs)      invoke_packed of the kernel's shape function
vm.shape_of(x), vm.reshape_tensor(x, shape)  shape_of, reshape_tensor
device_copy(x)                               device_copy
vm.append(past, more), vm.write_rows(past, rows, starts)    invoke_packed of built-in functions of the machine
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.expr import GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.type import TensorType, Type
from tilewright.relay.backend.target_map import CPU
from tilewright.relay.expr import Call, Constant, Tuple
from tilewright.relay.function_attributes import SHAPE_FUNCTION, SHAPE_INPUTS, SHAPE_VALUES
from tilewright.relay.op.annotation.devices import DeviceCopy
from tilewright.relay.op.definition import OpDef
from tilewright.relay.op.memory import AllocStorage, AllocTensor, Kill
from tilewright.relay.op.vm import Append, InvokeTVMOp, ReshapeTensor, ShapeFunc, ShapeOf, VMWriteRows
from tilewright.relay.transform.common import scalar_constant
from tilewright.runtime.bytecode import APPEND, WRITE_ROWS, Opcode
from tilewright.runtime.dtype import DataType

TUPLE_TAG = 0


class _Program(Protocol):
    mod: IRModule

    def packed_index(self, name: str) -> int: ...


class FunctionCompiler(Protocol):
    """The part of a function's compiler (``vm_codegen``) that emitters use."""

    @property
    def program(self) -> _Program: ...

    @property
    def ending(self) -> Collection[int]: ...

    def new(self) -> int: ...

    def release(self, *registers: int) -> None: ...

    def emit(self, opcode: Opcode, *fields: int) -> int: ...

    def integer(self, value: int) -> int: ...

    def data(self, tag: int, fields: Sequence[int]) -> int: ...

    def tensor(self, type_: TensorType, device: int | None = None) -> int: ...

    def device_copy(self, register: int, source: int, device: int) -> int: ...

    def operands(self, exprs: Sequence[RelayExpr], temporaries: list[int]) -> list[int]: ...

    def flatten(self, register: int, type_: Type, args: list[int], temporaries: list[int]) -> None: ...


_Emitter = Callable[[FunctionCompiler, Call, list[int]], int | None]

EMITTER = "FVMEmit"
"""The attribute of an operator that emits the instructions of a call, and returns the register of its result."""


def _emits(operator: type[OpDef[Any]]) -> Callable[[_Emitter], _Emitter]:
    def register(emitter: _Emitter) -> _Emitter:
        operator.op.set_attr(EMITTER, emitter)
        return emitter

    return register


def emit_memory_op(compiler: FunctionCompiler, call: Call, used: bool) -> int | None:
    """Return the register of an operator's result, None where it has none and is not ``used``.

    Raises
    ------
    UnsupportedError : the operator is no instruction.
    """
    assert isinstance(call.op, Op)
    emit: _Emitter | None = call.op.get_attr(EMITTER)
    if emit is None:
        raise UnsupportedError(f"the virtual machine cannot run the operator {call.op.name} outside of a kernel")
    temporaries: list[int] = []
    result = emit(compiler, call, temporaries)
    if result is None and used:
        result = compiler.data(TUPLE_TAG, [])
    compiler.release(*temporaries)
    return result


def _number(compiler: FunctionCompiler, expr: RelayExpr, temporaries: list[int]) -> int:
    """Return the register of a size or offset."""
    value = scalar_constant(expr)
    if value is None:
        (register,) = compiler.operands([expr], temporaries)
        return register
    temporaries.append(compiler.integer(int(value)))
    return temporaries[-1]


@_emits(AllocStorage)
def _alloc_storage(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    attrs: Any = call.attrs
    alignment = scalar_constant(call.args[1])
    if alignment is None:
        raise UnsupportedError("memory.alloc_storage: the alignment must be a constant")
    size = _number(compiler, call.args[0], temporaries)
    result = compiler.new()
    fields = dtype_fields(attrs.dtype)
    compiler.emit(Opcode.ALLOC_STORAGE, size, int(alignment), *fields, attrs.device_type, result)
    return result


@_emits(AllocTensor)
def _alloc_tensor(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    attrs: Any = call.attrs
    storage, offset, shape = call.args
    (place,) = compiler.operands([storage], temporaries)
    start = _number(compiler, offset, temporaries)
    fields = dtype_fields(attrs.dtype)
    if isinstance(shape, Constant):
        extents = [int(extent) for extent in shape.data.numpy()]
        result = compiler.new()
        compiler.emit(Opcode.ALLOC_TENSOR, place, start, *fields, len(extents), result, *extents)
        return result
    (vector,) = compiler.operands([shape], temporaries)
    result = compiler.new()
    compiler.emit(Opcode.ALLOC_TENSOR_REG, place, start, vector, *fields, result)
    return result


@_emits(Kill)
def _kill(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> None:
    return None


def _fields(compiler: FunctionCompiler, expr: RelayExpr, temporaries: list[int]) -> list[int]:
    """Return the registers of the tensors in a tuple."""
    parts: Sequence[RelayExpr] = expr.fields if isinstance(expr, Tuple) else [expr]
    found: list[int] = []
    for part, register in zip(parts, compiler.operands(parts, temporaries), strict=True):
        compiler.flatten(register, part.checked_type, found, temporaries)
    return found


def _kernel(call: Call) -> GlobalVar:
    callee = call.args[0]
    if not isinstance(callee, GlobalVar):
        raise UnsupportedError(f"{call.op.name}: expected a primitive function, found {type(callee).__name__}")  # type: ignore[attr-defined]
    return callee


@_emits(InvokeTVMOp)
def _invoke(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> None:
    inputs = _fields(compiler, call.args[1], temporaries)
    outputs = _fields(compiler, call.args[2], temporaries)
    registers = [*inputs, *outputs]
    index = compiler.program.packed_index(_kernel(call).name_hint)
    compiler.emit(Opcode.INVOKE_PACKED, index, len(registers), len(outputs), *registers)


@_emits(ShapeFunc)
def _shape_func(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> None:
    """Call a shape function; its sizes in bytes, which follow the shapes, are not used."""
    kernel = _kernel(call)
    func = compiler.program.mod[kernel]
    if not SHAPE_FUNCTION.has(func):
        raise UnsupportedError(f"vm.shape_func: the results of @{kernel.name_hint} have known shapes; it has none")
    given, outputs = (_fields(compiler, arg, temporaries) for arg in call.args[1:])
    is_value: Sequence[bool] = call.attrs.is_input  # type: ignore[union-attr]
    registers = []
    for index in SHAPE_INPUTS.of(func):
        registers.append(given[index])
        if is_value[index]:
            registers[-1] = compiler.new()
            compiler.emit(Opcode.SHAPE_OF, given[index], registers[-1])
            temporaries.append(registers[-1])
    for index in SHAPE_VALUES.of(func):
        if not is_value[index]:
            raise UnsupportedError(
                f"vm.shape_func: the shape function of @{kernel.name_hint} reads the value of input {index}; give the "
                "value, and is_inputs=True for it"
            )
        registers.append(given[index])
    for shape in outputs:
        registers += [shape, compiler.tensor(TensorType((), "int64"), CPU)]
        temporaries.append(registers[-1])
    index = compiler.program.packed_index(SHAPE_FUNCTION.of(func))
    compiler.emit(Opcode.INVOKE_PACKED, index, len(registers), 2 * len(outputs), *registers)


@_emits(ShapeOf)
def _shape_of(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    if call.attrs.dtype != "int64":  # type: ignore[union-attr]
        raise UnsupportedError(f"vm.shape_of returns int64, not {call.attrs.dtype}")  # type: ignore[union-attr]
    (tensor,) = compiler.operands(call.args, temporaries)
    result = compiler.new()
    compiler.emit(Opcode.SHAPE_OF, tensor, result)
    return result


@_emits(ReshapeTensor)
def _reshape_tensor(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    data, shape = compiler.operands(call.args, temporaries)
    result = compiler.new()
    compiler.emit(Opcode.RESHAPE_TENSOR, data, shape, result)
    return result


@_emits(Append)
def _append(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    past, more = compiler.operands(call.args, temporaries)
    temporaries.append(compiler.integer(call.attrs.axis))  # type: ignore[union-attr]
    result = compiler.new()
    index = compiler.program.packed_index(APPEND)
    compiler.emit(Opcode.INVOKE_PACKED, index, 4, 1, past, more, temporaries[-1], result)
    return result


@_emits(VMWriteRows)
def _write_rows(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    past, rows, starts = compiler.operands(call.args, temporaries)
    last = past in compiler.ending and rows != past
    numbers = [compiler.integer(int(n)) for n in (call.attrs.axis, last)]  # type: ignore[union-attr]
    temporaries += numbers
    result = compiler.new()
    index = compiler.program.packed_index(WRITE_ROWS)
    compiler.emit(Opcode.INVOKE_PACKED, index, 6, 1, past, rows, starts, *numbers, result)
    return result


@_emits(DeviceCopy)
def _device_copy(compiler: FunctionCompiler, call: Call, temporaries: list[int]) -> int:
    (value,) = compiler.operands(call.args, temporaries)
    return compiler.device_copy(value, call.attrs.src_dev_type, call.attrs.dst_dev_type)  # type: ignore[union-attr]


def dtype_fields(dtype: str) -> tuple[int, int, int]:
    """Return a data type as the fields of an instruction."""
    found = DataType(dtype)
    return found.type_code, found.bits, found.lanes
