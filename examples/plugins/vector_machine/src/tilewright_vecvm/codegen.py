"""From lowered TIR to byte code; ``machine.py`` says what the instructions mean.

A visitor writes the instructions of an expression and gives the register that has its value; variables of loops and
lets are registers as well. Equal parts of one expression are computed once. Of a condition's two branches only one
runs, so each may use what was computed before it, and nothing of the other.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import UnsupportedError
from tilewright.tir import PrimFunc, expr, stmt
from tilewright.tir.functor import StmtFunctor
from tilewright_vecvm.machine import TYPES, Operation, Program, bits_of

_BINARY: dict[type, Operation] = {
    expr.Add: Operation.ADD,
    expr.Sub: Operation.SUB,
    expr.Mul: Operation.MUL,
    expr.Div: Operation.DIV,
    expr.Mod: Operation.TRUNCMOD,
    expr.FloorDiv: Operation.FLOORDIV,
    expr.FloorMod: Operation.FLOORMOD,
    expr.Min: Operation.MIN,
    expr.Max: Operation.MAX,
    expr.EQ: Operation.EQ,
    expr.NE: Operation.NE,
    expr.LT: Operation.LT,
    expr.LE: Operation.LE,
    expr.GT: Operation.GT,
    expr.GE: Operation.GE,
    expr.And: Operation.AND,
    expr.Or: Operation.OR,
}
_CALLS = {f"tir.{op.name.lower()}": op for op in Operation if op >= Operation.EXP}


def program_of(func: PrimFunc) -> Program:
    """The byte code of a lowered function.

    Raises
    ------
    UnsupportedError : for shapes that are not known, and for what the machine has no instruction for
    """
    program = Program(str(func.attrs["global_symbol"]), [])
    writer = _Writer(program)
    for param in func.params:
        buffer = func.buffer_map.get(param)
        if buffer is None or not all(isinstance(d, expr.IntImm) for d in buffer.shape):
            raise writer.unsupported(f"the parameter {param.name}, which is no tensor of known shape")
        size = 1
        for dim in buffer.shape:
            size *= int(dim)
        program.arguments.append((TYPES[writer.type_of(buffer.dtype)], size))
        writer.memories[buffer.data] = len(writer.memories)
    writer.visit_stmt(func.body)
    writer.finish()
    return program


class _Writer(StmtFunctor[int]):
    """Writes the instructions of one function."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.memories: dict[expr.Var, int] = {}
        self.variables: dict[expr.Var, int] = {}
        self.constants: dict[tuple[str, int], int] = {}  # their registers; written at the head, once
        self.registers = 0

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for something that the machine cannot do."""
        return UnsupportedError(f"vecvm cannot run {self.program.name}: it has no instruction for {what}")

    def type_of(self, dtype: str) -> int:
        """The number of an element type."""
        element = dt.element(dtype)
        if element not in TYPES:
            raise self.unsupported(f"the type {element}")
        return TYPES.index(element)

    def finish(self) -> None:
        """Put the constants before the code."""
        head = [
            (Operation.CONSTANT, TYPES.index(dtype), 1, register, index, 0, 0)
            for index, ((dtype, _), register) in enumerate(self.constants.items())
        ]
        self.program.constants = [bits for _, bits in self.constants]
        jumps = (Operation.JUMP, Operation.JUMP_UNLESS)
        moved = [(i[0], i[1], i[2], i[3] + len(head), *i[4:]) if i[0] in jumps else i for i in self.program.code]
        self.program.code = head + moved

    # ---- writing ----
    def new(self) -> int:
        """A register that nobody uses."""
        self.registers += 1
        return self.registers - 1

    def emit(self, operation: Operation, dtype: str, a: int, b: int = 0, c: int = 0, d: int = 0) -> int:
        """Write an instruction; gives ``a``."""
        self.program.code.append((operation, self.type_of(dtype), dt.lanes(dtype), a, b, c, d))
        return a

    def value(self, e: expr.PrimExpr) -> int:
        """The register with the value of ``e``, computed here."""
        self.memo = {}
        return self.visit_expr(e)

    def constant(self, dtype: str, value: float) -> int:
        """The register with a literal."""
        key = (TYPES[self.type_of(dtype)], bits_of(value, dtype))
        if key not in self.constants:
            self.constants[key] = self.new()
        return self.constants[key]

    def jump(self, condition: int | None = None) -> int:
        """Write a jump, where the condition is false or always, whose end ``land`` says."""
        at = len(self.program.code)
        self.emit(Operation.JUMP if condition is None else Operation.JUMP_UNLESS, "bool", 0, condition or 0)
        return at

    def land(self, jump: int) -> None:
        """Let a jump go to the next instruction that is written."""
        operation, dtype, lanes, _, *rest = self.program.code[jump]
        self.program.code[jump] = (operation, dtype, lanes, len(self.program.code), *rest)

    # ---- expressions ----
    def visit_prim(self, e: expr.PrimExpr) -> int:
        raise self.unsupported(f"{type(e).__name__} ({e})")

    def visit_var(self, e: expr.Var) -> int:
        return self.variables[e]

    def visit_int_imm(self, e: expr.IntImm) -> int:
        return self.constant(e.dtype, e.value)

    def visit_float_imm(self, e: expr.FloatImm) -> int:
        return self.constant(e.dtype, e.value)

    def visit_binary(self, e: expr.BinaryExpr) -> int:
        operation = _BINARY[type(e)]
        if operation == Operation.DIV and not dt.is_float(e.dtype):
            operation = Operation.TRUNCDIV
        a, b = self.visit_expr(e.a), self.visit_expr(e.b)
        return self.emit(operation, e.dtype, self.new(), a, b)

    def visit_not(self, e: expr.Not) -> int:
        return self.emit(Operation.NOT, e.dtype, self.new(), self.visit_expr(e.a))

    def visit_cast(self, e: expr.Cast) -> int:
        return self.emit(Operation.CAST, e.dtype, self.new(), self.visit_expr(e.value))

    def visit_broadcast(self, e: expr.Broadcast) -> int:
        return self.emit(Operation.BROADCAST, e.dtype, self.new(), self.visit_expr(e.value))

    def visit_ramp(self, e: expr.Ramp) -> int:
        base, stride = self.visit_expr(e.base), self.visit_expr(e.stride)
        return self.emit(Operation.RAMP, e.dtype, self.new(), base, stride)

    def visit_select(self, e: expr.Select) -> int:
        parts = [self.visit_expr(part) for part in (e.condition, e.true_value, e.false_value)]
        return self.emit(Operation.SELECT, e.dtype, self.new(), *parts)

    def visit_let(self, e: expr.Let) -> int:
        self.variables[e.var] = self.visit_expr(e.value)
        return self.visit_expr(e.body)

    def visit_load(self, e: expr.Load) -> int:
        self.check_predicate(e.predicate)
        return self.emit(Operation.LOAD, e.dtype, self.new(), self.memories[e.buffer_var], self.visit_expr(e.index))

    def check_predicate(self, predicate: expr.PrimExpr) -> None:
        """Refuse loads and stores of some lanes only."""
        lanes = predicate.value if isinstance(predicate, expr.Broadcast) else predicate
        if not (isinstance(lanes, expr.IntImm) and lanes.value):
            raise self.unsupported(f"an access where {predicate}")

    def visit_call(self, e: expr.Call) -> int:
        name = getattr(e.op, "name", "")
        if name == "tir.likely":
            return self.visit_expr(e.args[0])
        if name == "tir.if_then_else" and dt.lanes(e.args[0].dtype) == 1:
            return self.choose(e)
        if name not in _CALLS:
            raise self.unsupported(f"{name} ({e})")
        return self.emit(_CALLS[name], e.dtype, self.new(), self.visit_expr(e.args[0]))

    def choose(self, e: expr.Call) -> int:
        """One of two values; only its own instructions run."""
        result = self.new()
        over = self.jump(self.visit_expr(e.args[0]))
        before = dict(self.memo)
        self.emit(Operation.MOVE, e.dtype, result, self.visit_expr(e.args[1]))
        end = self.jump()
        self.land(over)
        self.memo = dict(before)
        self.emit(Operation.MOVE, e.dtype, result, self.visit_expr(e.args[2]))
        self.land(end)
        self.memo = before
        return result

    # ---- statements ----
    def visit_any_stmt(self, s: stmt.Stmt) -> Any:
        raise self.unsupported(f"the statement {type(s).__name__}")

    def visit_seq(self, s: stmt.SeqStmt) -> None:
        for item in s.seq:
            self.visit_stmt(item)

    def visit_for(self, s: stmt.For) -> None:
        dtype = s.loop_var.dtype
        at, first = self.new(), self.value(s.min)
        end = self.emit(Operation.ADD, dtype, self.new(), first, self.visit_expr(s.extent))
        one = self.constant(dtype, 1)
        self.variables[s.loop_var] = self.emit(Operation.MOVE, dtype, at, first)
        top = len(self.program.code)
        leave = self.jump(self.emit(Operation.LT, "bool", self.new(), at, end))
        self.visit_stmt(s.body)
        self.emit(Operation.ADD, dtype, at, at, one)
        self.emit(Operation.JUMP, "bool", top)
        self.land(leave)

    def visit_if_then_else(self, s: stmt.IfThenElse) -> None:
        over = self.jump(self.value(s.condition))
        self.visit_stmt(s.then_case)
        if s.else_case is None:
            self.land(over)
            return
        end = self.jump()
        self.land(over)
        self.visit_stmt(s.else_case)
        self.land(end)

    def visit_let_stmt(self, s: stmt.LetStmt) -> None:
        self.variables[s.var] = self.value(s.value)
        self.visit_stmt(s.body)

    def visit_store(self, s: stmt.Store) -> None:
        self.check_predicate(s.predicate)
        value, index = self.value(s.value), self.visit_expr(s.index)
        self.emit(Operation.STORE, s.value.dtype, value, self.memories[s.buffer_var], index)

    def visit_allocate(self, s: stmt.Allocate) -> None:
        size = self.constant("int64", dt.lanes(s.dtype))
        for extent in s.extents:
            size = self.emit(Operation.MUL, "int64", self.new(), size, self.value(extent))
        memory = self.memories[s.buffer_var] = len(self.memories)
        self.emit(Operation.ALLOCATE, dt.element(s.dtype), memory, size)
        self.visit_stmt(s.body)

    def visit_attr(self, s: stmt.AttrStmt) -> None:
        if s.attr_key == "thread_extent":
            raise self.unsupported("threads")
        self.visit_stmt(s.body)

    def visit_evaluate(self, s: stmt.Evaluate) -> None:
        if not isinstance(s.value, expr.ConstExpr):
            raise self.unsupported(f"the call {s.value}")
