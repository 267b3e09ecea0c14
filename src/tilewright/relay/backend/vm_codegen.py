"""From a lowered module to a program of the virtual machine (``runtime.bytecode``).

Functions are in A-normal form and lifted: a function that makes a closure (``Closure``) becomes one function of the
closure's captured values and of its own parameters. A variable lives in a register until its last use; registers are
reused, so that their values go back to the pool as soon as possible.

    let %x = @kernel(%a);       r3 = number of bytes, r4 = alloc_storage r3, r5 = alloc_tensor r4,
                                invoke_packed kernel (in: a, out: r5)
    if (%c) { .. } else { .. }  if c == 1: ...; goto end; else: ...
    match                       tags are compared one after another; fatal after the last
    @f(%x), %f(%x)              invoke, invoke_closure
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import BaseFunc, GlobalVar, RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.op import Op
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar, PrimExpr
from tilewright.ir.prim_functor import ensure_stack
from tilewright.ir.type import TensorType, TupleType, Type, tensors_of
from tilewright.relay import function_attributes
from tilewright.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from tilewright.relay.backend.interface import interface_array
from tilewright.relay.backend.lowered import is_external
from tilewright.relay.backend.symbolic import variables_of
from tilewright.relay.backend.target_map import CPU
from tilewright.relay.backend.vm_memory import TUPLE_TAG, dtype_fields, emit_memory_op
from tilewright.relay.backend.vm_regions import Placed, emit_regions
from tilewright.relay.expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.facts import ByBits
from tilewright.relay.function_attributes import (
    CLOSURE,
    INTERFACE,
    IS_SPECIALIZATION,
    MACHINE_PARAM_DEVICES,
    MOVES_NOTHING,
    SHAPE_CHECKS,
    SHAPE_FUNCTION,
    SHAPE_INPUTS,
    SHAPE_VALUES,
    SPECIALIZATIONS,
)
from tilewright.relay.op.views import ALIGNMENT, tensor_bytes
from tilewright.relay.op.vm import InvokeTVMOp
from tilewright.relay.transform.common import call_of, open_children
from tilewright.relay.transform.devices.for_each_device import device_of
from tilewright.relay.visitor import post_order
from tilewright.runtime.bytecode import (
    CHECK_INPUTS,
    DIMS_ARE,
    REF_WRITE,
    TAKES_ROOM,
    Code,
    Instruction,
    Opcode,
    VMFunction,
)
from tilewright.runtime.ndarray import NDArray, array, numpy_view
from tilewright.tir.function import PrimFunc


@dataclass
class Program:
    """A program under construction."""

    mod: IRModule
    device: int
    several: bool = False  # whether kernels run on other devices too
    indices: dict[GlobalVar, int] = field(default_factory=dict)
    packed: dict[str, int] = field(default_factory=dict)
    constants: list[NDArray] = field(default_factory=list)
    constant_devices: list[int] = field(default_factory=list)
    known: ByBits[int] = field(default_factory=ByBits)
    functions: list[VMFunction] = field(default_factory=list)

    def compile(self) -> Code:
        """Compile all open functions of the module, main first."""
        found = {v: f for v, f in self.mod.items() if isinstance(f, Function) and not is_kernel(f)}
        order = sorted(found, key=lambda var: var.name_hint != "main")
        self.indices = {var: i for i, var in enumerate(order)}
        for var in order:
            self.functions.append(FunctionCompiler(self).compile(var.name_hint, found[var]))
        return Code(self.functions, list(self.packed))

    def packed_index(self, name: str) -> int:
        """Return the number of a packed function."""
        return self.packed.setdefault(name, len(self.packed))

    def constant_index(self, data: NDArray, device: int) -> int:
        """Return the number of a constant; equal arrays have one on each device."""
        return self.known.find(numpy_view(data), device, lambda: self._add_constant(data, device))

    def _add_constant(self, data: NDArray, device: int) -> int:
        self.constants.append(data)
        self.constant_devices.append(device)
        return len(self.constants) - 1

    def device_of(self, func: BaseFunc) -> int:
        """Return the device of a kernel's tensors."""
        return device_of(func, self.device) if self.several else self.device


def is_kernel(func: BaseFunc) -> bool:
    """Return whether a function is called as a packed function."""
    return isinstance(func, PrimFunc) or is_external(func)


class FunctionCompiler:
    """Compiler of one function to instructions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.code: list[Instruction] = []
        self.registers = 0
        self.free: list[int] = []
        self.vars: dict[Var, int] = {}
        self.ending: frozenset[int] = frozenset()  # registers whose last use the let being compiled is
        self.params: frozenset[Var] = frozenset()
        self.places: dict[Constant, int] = {}  # devices of constants
        self.names: frozenset[DimVar] = frozenset()  # that mean one number wherever they stand
        self.placed: Placed = {}
        self.shapes: dict[_Shape, tuple[int, int]] = {}  # over names: the registers of the extents and the size

    def compile(self, name: str, func: Function) -> VMFunction:
        """Return the function's instructions and registers."""
        params = list(func.params)
        if CLOSURE.on(func):
            assert isinstance(func.body, Function)
            params += func.body.params
            func = func.body
        for param in params:
            self.vars[param] = self.new()
        self.params = frozenset(params)
        self._place_constants(func.body)
        if INTERFACE.on(func):
            self.check(INTERFACE.of(func), [self.vars[param] for param in params])
        for specialization, guard in json.loads(SPECIALIZATIONS.get(func, "[]")):
            self.prefer(specialization, guard, [self.vars[param] for param in params])
        if INTERFACE.on(func) or IS_SPECIALIZATION.on(func):
            dims = (d for param in params for t in tensors_of(param.checked_type) for d in t.shape)
            self.names = frozenset(d for d in dims if isinstance(d, DimVar))
            self.placed = emit_regions(self, func.body, params)
        if views := [self.vars[params[index]] for index in function_attributes.TAKES_SLACK.get(func, ())]:
            self.emit(Opcode.INVOKE_PACKED, self.program.packed_index(TAKES_ROOM), len(views), 0, *views)
        names = _unique([param.name_hint for param in params])
        self.emit(Opcode.RET, self.expr(func.body, params))
        devices = [int(d) for d in MACHINE_PARAM_DEVICES.get(func, [self.program.device] * len(params))]
        return VMFunction(name, names, devices, max(self.registers, 1), self.code)

    def _place_constants(self, body: RelayExpr) -> None:
        """Place each constant on the device of the kernel that takes it."""
        for expr in post_order(body, open_children):
            if not isinstance(expr, Call):
                continue
            args, kernel = list(expr.args), expr.op
            if call_of(expr, InvokeTVMOp.op):
                kernel, *args = args
            if isinstance(kernel, GlobalVar) and is_kernel(self.program.mod[kernel]):
                device = self.program.device_of(self.program.mod[kernel])
                while args:
                    arg = args.pop()
                    if isinstance(arg, Constant):
                        self.places[arg] = device
                    args += arg.fields if isinstance(arg, Tuple) else ()

    def check(self, interface: str, params: Sequence[int]) -> None:
        """Check the parameters against the interface."""
        text = self.constant(interface_array(interface), CPU)
        self.emit(Opcode.INVOKE_PACKED, self.program.packed_index(CHECK_INPUTS), 1 + len(params), 0, text, *params)
        self.release(text)

    def prefer(self, specialization: str, guard: Sequence[Sequence[int]], params: Sequence[int]) -> None:
        """Return the result of a specialization where the parameters satisfy its guard."""
        limits = self.constant(array(np.array(guard, "int64")), CPU)
        fits, one = self.tensor(TensorType((), "int32"), CPU), self.integer(1)
        registers = [limits, *params, fits]
        self.emit(Opcode.INVOKE_PACKED, self.program.packed_index(DIMS_ARE), len(registers), 1, *registers)
        jump = self.emit(Opcode.IF, fits, one, 1, 0)
        index = next(i for var, i in self.program.indices.items() if var.name_hint == specialization)
        result = self._invoke(Opcode.INVOKE, index, params)
        self.emit(Opcode.RET, result)
        self.jump_here(jump, 3)
        self.release(limits, fits, one, result)

    # ---- registers and instructions ----

    def new(self) -> int:
        """Return a free register."""
        if self.free:
            return self.free.pop()
        self.registers += 1
        return self.registers - 1

    def release(self, *registers: int) -> None:
        """Free registers whose values are no longer needed."""
        self.free.extend(registers)

    def emit(self, opcode: Opcode, *fields: int) -> int:
        """Append an instruction and return its index."""
        self.code.append(Instruction(opcode, list(fields)))
        return len(self.code) - 1

    def jump_here(self, at: int, index: int = 0) -> None:
        """Set a field of the jump at ``at`` to lead to the next instruction."""
        self.code[at].fields[index] = len(self.code) - at

    def integer(self, value: int) -> int:
        """Return a new register that holds a number."""
        register = self.new()
        self.emit(Opcode.LOAD_CONSTI, value, register)
        return register

    # ---- expressions ----

    def expr(self, expr: RelayExpr, bound: Sequence[Var] = ()) -> int:
        """Return the register of an expression's value; for a chain of lets, that of its body.

        The variables of the chain, and ``bound``, release their registers after their last use.
        """
        lets: list[Let] = []
        while isinstance(expr, Let):
            lets.append(expr)
            expr = expr.body
        last: dict[Var, int] = {}
        for step, node in enumerate([*(let.value for let in lets), expr]):
            last.update((e, step) for e in post_order(node, open_children) if isinstance(e, Var))
        ends: list[list[Var]] = [[] for _ in range(len(lets) + 1)]
        for var in bound:
            ends[last.get(var, 0)].append(var)
        for step, let in enumerate(lets):
            ends[max(last.get(let.var, 0), step)].append(let.var)
        for step, let in enumerate(lets):
            self.ending = frozenset(self.vars[var] for var in ends[step] if var in self.vars)
            if let.var not in last and isinstance(let.value, Call) and isinstance(let.value.op, Op):
                unused = emit_memory_op(self, let.value, used=False)
                ends[step].remove(let.var)
                self.release(*([] if unused is None else [unused]))
            else:
                self.vars[let.var] = self._let_value(let.value)
            self.release(*(self.vars.pop(var) for var in ends[step]))
        return self.value(expr)

    def _let_value(self, value: RelayExpr) -> int:
        register = self.value(value)
        if isinstance(value, (Var, Let)) and register in self.vars.values():
            copy = self.new()
            self.emit(Opcode.MOVE, register, copy)
            return copy
        return register

    def operands(self, exprs: Sequence[RelayExpr], temporaries: list[int]) -> list[int]:
        """Return the registers of operands; registers that only this use needs are added to ``temporaries``."""
        registers = []
        for expr in exprs:
            registers.append(self.value(expr))
            if not isinstance(expr, Var):
                temporaries.append(registers[-1])
        return registers

    def value(self, expr: RelayExpr) -> int:
        """Return the register of an expression that is no let."""
        match expr:
            case Var():
                if expr not in self.vars:
                    raise TilewrightError(f"the variable %{expr.name_hint} has no value; every variable needs a let")
                return self.vars[expr]
            case Let():
                return self.expr(expr)
            case Constant():
                return self.constant(expr.data, self.places.get(expr))
            case Tuple():
                return self.data(TUPLE_TAG, [self.value(item) for item in expr.fields])
            case TupleGetItem():
                return self.field(self.value(expr.tuple_value), expr.index)
            case Call():
                return self.call(expr)
            case If():
                return self.branch(expr)
            case Match():
                return self.match(expr)
            case GlobalVar():
                return self.closure(expr, [])
            case RefCreate():
                return self.data(TUPLE_TAG, [self.value(expr.value)])
            case RefRead():
                return self.field(self.value(expr.ref), 0)
            case RefWrite():
                written = [self.value(expr.ref), self.value(expr.value)]
                self.emit(Opcode.INVOKE_PACKED, self.program.packed_index(REF_WRITE), 2, 0, *written)
                return self.data(TUPLE_TAG, [])
        raise UnsupportedError(f"the virtual machine cannot run a {type(expr).__name__} expression here")

    def constant(self, data: NDArray, device: int | None = None) -> int:
        """Return a new register with a constant."""
        register = self.new()
        index = self.program.constant_index(data, self.program.device if device is None else device)
        self.emit(Opcode.LOAD_CONST, index, register)
        return register

    def data(self, tag: int, fields: Sequence[int]) -> int:
        """Return a new register with a tuple or a value of a data type."""
        register = self.new()
        self.emit(Opcode.ALLOC_ADT, tag, len(fields), register, *fields)
        return register

    def field(self, register: int, index: int) -> int:
        """Return a new register with a field of a value."""
        result = self.new()
        self.emit(Opcode.GET_FIELD, register, index, result)
        return result

    def closure(self, var: GlobalVar, captured: Sequence[int]) -> int:
        """Return a new register with a function as a value."""
        if var not in self.program.indices:
            raise UnsupportedError(f"@{var.name_hint} is a kernel; it can be called, and is no value")
        result = self.new()
        self.emit(Opcode.ALLOC_CLOSURE, self.program.indices[var], len(captured), result, *captured)
        return result

    # ---- control flow ----

    def branch(self, expr: If) -> int:
        """Compile both branches, whose results go to one register."""
        ensure_stack()
        test, one = self.value(expr.cond), self.integer(1)
        jump = self.emit(Opcode.IF, test, one, 1, 0)
        self.release(one)
        result = self.new()
        before = self._mark()
        self.emit(Opcode.MOVE, self.expr(expr.true_branch), result)
        self._back_to(before)
        end = self.emit(Opcode.GOTO, 0)
        self.jump_here(jump, 3)
        self.emit(Opcode.MOVE, self.expr(expr.false_branch), result)
        self._back_to(before)
        self.jump_here(end)
        return result

    def _mark(self) -> _Mark:
        return dict(self.vars), dict(self.shapes), list(self.free), self.registers

    def _back_to(self, mark: _Mark) -> None:
        """Forget the variables bound since then and free their registers."""
        known, shapes, free, count = mark
        self.vars, self.shapes = dict(known), dict(shapes)
        self.free = [*range(count, self.registers), *free]

    def match(self, expr: Match) -> int:
        """Compile a match: clauses are tried one after another."""
        ensure_stack()
        data, result = self.value(expr.data), self.new()
        ends = []
        for clause in expr.clauses:
            before = self._mark()
            misses: list[int] = []
            self._test(clause.lhs, data, misses)
            self.emit(Opcode.MOVE, self.expr(clause.rhs), result)
            self._back_to(before)
            ends.append(self.emit(Opcode.GOTO, 0))
            for miss in misses:
                self.jump_here(miss, 3)
        self.emit(Opcode.FATAL)
        for end in ends:
            self.jump_here(end)
        return result

    def _test(self, pattern: Pattern, register: int, misses: list[int]) -> None:
        """Compare tags and bind variables; the Ifs in ``misses`` jump where the value does not match."""
        if isinstance(pattern, PatternVar):
            self.vars[pattern.var] = register
        if isinstance(pattern, PatternConstructor):
            tag, wanted = self.new(), self.integer(pattern.constructor.tag)
            self.emit(Opcode.GET_TAG, register, tag)
            misses.append(self.emit(Opcode.IF, tag, wanted, 1, 0))
            self.release(tag, wanted)
        if isinstance(pattern, (PatternConstructor, PatternTuple)):
            for index, inner in enumerate(pattern.patterns):
                if isinstance(inner, (PatternVar, PatternConstructor, PatternTuple)):
                    self._test(inner, self.field(register, index), misses)

    def call(self, expr: Call) -> int:
        """Return a new register with the result of a call."""
        temporaries: list[int] = []
        callee = expr.op
        if isinstance(callee, Op):
            made = emit_memory_op(self, expr, used=True)
            assert made is not None
            return made
        if isinstance(callee, GlobalVar) and is_kernel(self.program.mod[callee]):
            return self.kernel(callee.name_hint, self.program.mod[callee], expr)
        args = self.operands(expr.args, temporaries)
        if isinstance(callee, Constructor):
            result = self.data(callee.tag, args)
        elif isinstance(callee, GlobalVar) and CLOSURE.on(self.program.mod[callee]):
            result = self.closure(callee, args)
        elif isinstance(callee, GlobalVar):
            result = self._invoke(Opcode.INVOKE, self.program.indices[callee], args)
        else:
            (closure,) = self.operands([callee], temporaries)
            result = self._invoke(Opcode.INVOKE_CLOSURE, closure, args)
        self.release(*temporaries)
        return result

    def _invoke(self, opcode: Opcode, callee: int, args: Sequence[int]) -> int:
        result = self.new()
        self.emit(opcode, callee, len(args), result, *args)
        return result

    def kernel(self, name: str, func: BaseFunc, expr: Call) -> int:
        """Allocate the results of a kernel and call it."""
        temporaries: list[int] = []
        args: list[int] = []
        for arg, register in zip(expr.args, self.operands(expr.args, temporaries), strict=True):
            self.flatten(register, arg.checked_type, args, temporaries)
        outputs: list[int] = []
        if self.moves_nothing(expr):
            return self.reshaped(func, args, expr.checked_type, temporaries)
        given = self._shapes(func, args, expr.checked_type, temporaries)
        homes = iter(self.placed.get(expr, ()))
        results = self._results(expr.checked_type, outputs, given, self.program.device_of(func), homes)
        registers = [*args, *outputs]
        self.emit(Opcode.INVOKE_PACKED, self.program.packed_index(name), len(registers), len(outputs), *registers)
        self.release(*temporaries)
        return self._tuple(results)

    def moves_nothing(self, expr: Call) -> bool:
        """Return whether a kernel only reshapes its first argument; results must not share the caller's memory."""
        assert isinstance(expr.op, GlobalVar)
        moves = MOVES_NOTHING.on(self.program.mod[expr.op])
        return moves and isinstance(expr.args[0], Var) and expr.args[0] not in self.params

    def device_of_call(self, expr: Call) -> int | None:
        """Return the device of the called kernel; None for a call of anything else."""
        kernel = self.program.mod[expr.op] if isinstance(expr.op, GlobalVar) else None
        return self.program.device_of(kernel) if kernel is not None and is_kernel(kernel) else None

    def reshaped(self, func: BaseFunc, args: Sequence[int], type_: Type, temporaries: list[int]) -> int:
        """Return a new register with the first argument's memory in the result's shape."""
        found = next(self._shapes(func, args, type_, temporaries), None)
        if found is not None:
            shape = found[0]
        else:
            assert isinstance(type_, TensorType)
            shape = self.constant(array(np.array(type_.concrete_shape, "int64")), CPU)
            temporaries.append(shape)
        result = self.new()
        self.emit(Opcode.RESHAPE_TENSOR, args[0], shape, result)
        self.release(*temporaries)
        return result

    def flatten(self, register: int, type_: Type, args: list[int], temporaries: list[int]) -> None:
        """Append the registers of the tensors in a value to ``args``."""
        if not isinstance(type_, TupleType):
            args.append(register)
            return
        for index, field_type in enumerate(type_.fields):
            temporaries.append(self.field(register, index))
            self.flatten(temporaries[-1], field_type, args, temporaries)

    def _shapes(
        self, func: BaseFunc, args: Sequence[int], type_: Type, temporaries: list[int]
    ) -> Iterator[tuple[int, int]]:
        """Return the registers of each result's shape and size, from the shape function; none for known shapes.

        Shapes over names alone are computed once.
        """
        name = SHAPE_FUNCTION.get(func)
        if name is None:
            return iter(())
        keys = [self._key(tensor) for tensor in tensors_of(type_)]
        if not SHAPE_CHECKS.on(func) and all(key in self.shapes for key in keys):
            return iter([self.shapes[key] for key in keys if key is not None])
        shapes = []
        for index in SHAPE_INPUTS.of(func):
            shapes.append(self.new())
            self.emit(Opcode.SHAPE_OF, args[index], shapes[-1])
        given = []
        for tensor in tensors_of(type_):
            vector, size = TensorType((len(tensor.shape),), "int64"), TensorType((), "int64")
            given.append((self.tensor(vector, CPU), self.tensor(size, CPU)))
        values = [args[index] for index in SHAPE_VALUES.of(func)]
        device = self.program.device_of(func)
        if device != CPU:  # shapes are computed on the host
            values = [self.device_copy(value, device, CPU) for value in values]
            temporaries += values
        registers = [*shapes, *values, *(register for pair in given for register in pair)]
        index = self.program.packed_index(name)
        self.emit(Opcode.INVOKE_PACKED, index, len(registers), 2 * len(given), *registers)
        temporaries += shapes
        for key, pair in zip(keys, given, strict=True):
            if key is None or key in self.shapes:
                temporaries += pair
            else:
                self.shapes[key] = pair
        return iter(given)

    def _key(self, tensor: TensorType) -> _Shape | None:
        """Return the key of a tensor's shape and size in bytes; None where they are not over names."""
        variables = (e for d in tensor.shape for e in variables_of(d))
        fixed = not any(isinstance(d, AnyDim) for d in tensor.shape) and self.names.issuperset(variables)
        return (tensor.shape, dt.nbytes(tensor.dtype)) if fixed else None

    def _results(
        self, type_: Type, outputs: list[int], given: Iterator[tuple[int, int]], device: int, homes: Iterator[_Home]
    ) -> _Nested:
        if isinstance(type_, TupleType):
            return [self._results(item, outputs, given, device, homes) for item in type_.fields]
        if not isinstance(type_, TensorType):
            raise UnsupportedError(f"a kernel returns tensors, not {type_}")
        found, home = next(given, None), next(homes, None)
        if found is None:
            outputs.append(self.tensor(type_, device))
        else:
            outputs.append(self.tensor_of_shape(type_.dtype, *found, device, home))
        return outputs[-1]

    def tensor_of_shape(self, dtype: str, shape: int, size: int, device: int, home: _Home) -> int:
        """Return a new register with a tensor whose shape and size in bytes are in registers; ``home`` is its place
        in a region.
        """
        fields = dtype_fields(dtype)
        storage, offset = home or (self.new(), self.integer(0))
        if home is None:
            self.emit(Opcode.ALLOC_STORAGE, size, ALIGNMENT, *fields, device, storage)
        result = self.new()
        self.emit(Opcode.ALLOC_TENSOR_REG, storage, offset, shape, *fields, result)
        self.release(*(() if home else (storage, offset)))
        return result

    def _tuple(self, nested: _Nested) -> int:
        if isinstance(nested, int):
            return nested
        fields = [self._tuple(item) for item in nested]
        result = self.data(TUPLE_TAG, fields)
        self.release(*fields)
        return result

    def device_copy(self, register: int, source: int, device: int) -> int:
        """Return a new register with a copy on ``device`` of a tensor on ``source``."""
        result = self.new()
        self.emit(Opcode.DEVICE_COPY, register, source, device, result)
        return result

    def tensor(self, type_: TensorType, device: int | None = None) -> int:
        """Return a new register with a tensor of a known shape, in its own memory."""
        size = self.integer(tensor_bytes(type_))
        storage = self.new()
        dtype = dtype_fields(type_.dtype)
        self.emit(
            Opcode.ALLOC_STORAGE, size, ALIGNMENT, *dtype, self.program.device if device is None else device, storage
        )
        offset = self.integer(0)
        self.release(size)
        result = self.new()
        shape = type_.concrete_shape
        self.emit(Opcode.ALLOC_TENSOR, storage, offset, *dtype, len(shape), result, *shape)
        self.release(storage, offset)
        return result


_Nested = int | list["_Nested"]
_Home = tuple[int, int] | None
_Shape = tuple[Sequence[PrimExpr], int]
_Mark = tuple[dict[Var, int], dict[_Shape, tuple[int, int]], list[int], int]


def _unique(names: Sequence[str]) -> list[str]:
    """Make names unique: a second %x becomes x_1."""
    taken: dict[str, int] = {}
    result = []
    for name in names:
        count = taken.get(name, 0)
        taken[name] = count + 1
        result.append(f"{name}_{count}" if count else name)
    return result
