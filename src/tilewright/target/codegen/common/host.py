"""Host code beyond device kernels: errors, calls by name, argument checks, workspaces, and task launches.

A host function returns 0, or -1 after it has set the runtime's last error. A workspace is freed on every exit of the
function.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import dtype as dt
from tilewright.target.codegen.common.emitter import Emitter
from tilewright.tir.expr import Call, IntImm, PrimExpr, StringImm
from tilewright.tir.stmt import AssertStmt, For, LetStmt, SeqStmt, Stmt

# TVMStructFieldKind: what tir.tvm_struct_get and tir.tvm_struct_set name by number.
ARRAY_ADDRESS, ARRAY_DATA, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_NDIM, ARRAY_TYPE_CODE, ARRAY_TYPE_BITS = range(7)
ARRAY_TYPE_LANES, ARRAY_BYTE_OFFSET, ARRAY_DEVICE_ID, ARRAY_DEVICE_TYPE, _, VALUE_CONTENT = range(7, 13)

NO_VALUE = 4  # the type code of None
_DTYPE_CODES = {"int": 0, "uint": 1, "bool": 1, "float": 2, "handle": 3, "bfloat": 4, "void": 3}


@dataclass(frozen=True)
class Argument:
    """Description of one argument of a packed function, from ``tir.tvm_check_arguments``.

    ``flags``: 1 a tensor, 2 any strides, 4 any byte offset. ``dims``: a size, -1 for any, or -2-k for symbol k, which
    has one value throughout.
    """

    name: str
    dtype: str
    device_type: int
    alignment: int
    flags: int
    dims: tuple[int, ...]

    @property
    def packed_dtype(self) -> int:
        """The DLDataType as one 32-bit number: code, bits and lanes, from the lowest byte up."""
        info = dt.parse(self.dtype)
        if dt.is_custom(self.dtype):
            code = dt.custom_code(self.dtype)
        else:
            code = dt.SMALL_FLOATS[info.name].code if info.name else _DTYPE_CODES[info.kind]
        return code | info.bits << 8 | info.lanes << 16

    @staticmethod
    def of(described: PrimExpr) -> Argument:
        """The argument that a call in the check describes."""
        assert isinstance(described, Call)
        name, dtype, *numbers = described.args
        device_type, alignment, flags, *dims = [_number(n) for n in numbers]
        return Argument(_text(name), _text(dtype), device_type, alignment, flags, tuple(dims))


@dataclass(frozen=True)
class PackedCall:
    """A call with stacks of argument values and type codes: ``count`` of them from ``begin`` on.

    ``traced`` is its value where the function returns None.
    """

    name: str
    values: PrimExpr
    codes: PrimExpr
    begin: int
    count: int
    dtype: str
    traced: PrimExpr | None

    @staticmethod
    def of(e: Call) -> PackedCall:
        """Read the call of the intrinsic ``e``."""
        name, values, codes, begin, end, *traced = e.args
        first, count = _number(begin), _number(end) - _number(begin)
        return PackedCall(_text(name), values, codes, first, count, e.dtype, traced[0] if traced else None)


def _text(e: PrimExpr) -> str:
    assert isinstance(e, StringImm)
    return e.value


def _number(e: PrimExpr) -> int:
    assert isinstance(e, IntImm)
    return e.value


def is_workspace(value: PrimExpr) -> bool:
    """Return whether ``value`` is a new workspace."""
    return isinstance(value, Call) and value.op.name == "tir.TVMBackendAllocWorkspace"


class HostEmitter(Emitter):
    """Adds host-only code."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.workspaces: list[Call] = []  # calls that free the live ones
        self.in_task = False  # parallel loops inside run in order

    # ---- what a back end says ----
    @abstractmethod
    def check(self, condition: PrimExpr, message: str) -> None:
        """Leave the function with ``message`` unless ``condition`` holds."""

    @abstractmethod
    def leave(self) -> None:
        """Return -1."""

    @abstractmethod
    def check_arguments(self, function: str, given: Sequence[PrimExpr], wanted: Sequence[Argument]) -> None:
        """Check the arguments ``given`` (values, type codes, count); leave when they are not as ``wanted``."""

    @abstractmethod
    def report_index(self, what: str, index: PrimExpr, low: PrimExpr, high: PrimExpr) -> None:
        """Set the error that ``index`` is not within ``low`` to ``high``."""

    @abstractmethod
    def report_shape(self, what: str, shape: Sequence[PrimExpr], why: str, like: Sequence[PrimExpr]) -> None:
        """Set the error about a vector of int64, and a shape, each as its data and its number of elements."""

    @abstractmethod
    def find_function(self, name: str) -> str:
        """The handle of a function of the registry or of the module's imports, looked up at the first call."""

    @abstractmethod
    def call_handle(self, function: str, call: PackedCall) -> str:
        """Call a function by its handle, leave when it fails; the result as a value of ``call.dtype``."""

    @abstractmethod
    def call_symbol(self, call: PackedCall) -> str:
        """Call a function with the packed signature by its symbol, leave when it fails."""

    @abstractmethod
    def launch(self, s: For) -> None:
        """The iterations of a loop as the tasks of one parallel launch."""

    # ---- leaving ----
    def fail(self) -> None:
        """Free the workspaces, the last one first, and leave; the message is set already."""
        for call in reversed(self.workspaces):
            self.effect(call)
        self.leave()

    def _effect_tvm_throw_last_error(self, e: Call) -> None:
        self.fail()

    def _effect_tvm_report_index(self, e: Call) -> None:
        what, index, low, high = e.args
        self.report_index(_text(what), index, low, high)

    def _effect_tvm_report_shape(self, e: Call) -> None:
        what, shape, count, why, like, like_count = e.args
        self.report_shape(_text(what), (shape, count), _text(why), (like, like_count))

    def visit_assert(self, s: AssertStmt) -> Stmt | None:
        """The check, then the body."""
        self.begin_statement(s.condition)
        self.check(s.condition, s.message.value if isinstance(s.message, StringImm) else str(s.message))
        return s.body

    # ---- memory of the runtime ----
    def visit_let_stmt(self, s: LetStmt) -> Stmt | None:
        """The variable, then the body; during that of a workspace, a failure frees it."""
        rest = super().visit_let_stmt(s)
        if not is_workspace(s.value):
            return rest
        assert isinstance(s.value, Call)
        steps = s.body.seq if isinstance(s.body, SeqStmt) else (s.body,)
        self.visit_stmt(steps[0])  # the test whether there is one
        self.workspaces.append(Call("int32", "tir.TVMBackendFreeWorkspace", (*s.value.args[:2], s.var)))
        self.visit_stmt(SeqStmt(steps[1:]))
        self.workspaces.pop()
        return None

    # ---- functions ----
    def _effect_tvm_check_arguments(self, e: Call) -> None:
        values, codes, count, function, *wanted = e.args
        self.check_arguments(_text(function), (values, codes, count), [Argument.of(w) for w in wanted])

    def _call_tvm_call_packed_lowered(self, e: Call) -> str:
        call = PackedCall.of(e)
        return self.call_handle(self.find_function(call.name), call)

    _call_tvm_call_trace_packed_lowered = _call_tvm_call_packed_lowered

    def _call_tvm_call_cpacked_lowered(self, e: Call) -> str:
        return self.call_symbol(PackedCall.of(e))

    # ---- tasks ----
    def parallel(self, s: For) -> None:
        """The tasks of a launch; in order inside a task."""
        if self.in_task:
            super().parallel(s)
        else:
            self.launch(s)
