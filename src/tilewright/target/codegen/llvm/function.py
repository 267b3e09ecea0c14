"""Host functions in LLVM IR: calls of the runtime, and checks of their results.

The bodies of parallel loops, and the part of a packed function after its argument checks, become functions of their own
whose pointer parameters are ``noalias``: that tells LLVM which buffers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.codegen.common.argument_check import REPORT_INDEX, REPORT_SHAPE
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.common.host import (
    ARRAY_ADDRESS,
    ARRAY_BYTE_OFFSET,
    ARRAY_DATA,
    ARRAY_DEVICE_ID,
    ARRAY_DEVICE_TYPE,
    ARRAY_NDIM,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    ARRAY_TYPE_BITS,
    ARRAY_TYPE_CODE,
    ARRAY_TYPE_LANES,
    NO_VALUE,
    VALUE_CONTENT,
    Argument,
    HostEmitter,
    PackedCall,
    is_workspace,
)
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import LIKELY, UNLIKELY, Unit
from tilewright.target.codegen.llvm.statements import StatementEmitter, divided_variables
from tilewright.target.codegen.llvm.support import argument_check, report
from tilewright.target.codegen.llvm.tiles import configuration, configuration_of
from tilewright.tir.expr import Call, IntImm, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.parallel_work import least_of_task, most_tasks
from tilewright.tir.stmt import AttrStmt, For, Stmt

_PARALLEL_ENV = "{ ptr, i32 }"
# The C API's structs; offsets follow from the target's data layout.
TENSOR = "{ ptr, { i32, i32 }, i32, { i8, i8, i16 }, ptr, ptr, i64 }"

_FIELD_PATHS: dict[int, tuple[str, str]] = {
    ARRAY_DATA: ("i32 0", "ptr"),
    ARRAY_DEVICE_TYPE: ("i32 1, i32 0", "i32"),
    ARRAY_DEVICE_ID: ("i32 1, i32 1", "i32"),
    ARRAY_NDIM: ("i32 2", "i32"),
    ARRAY_TYPE_CODE: ("i32 3, i32 0", "i8"),
    ARRAY_TYPE_BITS: ("i32 3, i32 1", "i8"),
    ARRAY_TYPE_LANES: ("i32 3, i32 2", "i16"),
    ARRAY_SHAPE: ("i32 4", "ptr"),
    ARRAY_STRIDES: ("i32 5", "ptr"),
    ARRAY_BYTE_OFFSET: ("i32 6", "i64"),
}
_FEW_CORES = 2  # on which a loop that is worth threads is worth all of them
_FIELD_DTYPES = {"ptr": "handle", "i8": "uint8", "i16": "uint16", "i32": "int32", "i64": "uint64"}


class FunctionEmitter(StatementEmitter, HostEmitter):
    """Emits one function.

    ``parent`` is the function around this one: variables that are not defined here become parameters that the parent
    passes. ``restrict`` says that distinct pointers name distinct memory.
    """

    def __init__(self, unit: Unit, parent: FunctionEmitter | None = None, restrict: bool = True) -> None:
        super().__init__(unit)
        self.parent, self.restrict = parent, restrict
        self.captured: dict[Var, str] = {}
        self.task: tuple[str, str, str] | None = None  # task number, number of tasks, environment
        self.tiles: str | None = None  # configuration of AMX's tiles, while they have one
        self.spread_loop: str | None = None  # how the next parallel loop is shared out inside a launch
        if parent is not None:
            self.in_task = parent.in_task
            self.divisors = parent.divisors
            self.alignments = parent.alignments
            self.data_variables = parent.data_variables
            self.float_flags = parent.float_flags
            self.flushes_subnormals = parent.flushes_subnormals
            self.divided = parent.divided

    def signature(self, func: PrimFunc) -> str:
        """A packed function, whose parameters are ``%p0``, ``%p1``, ..."""
        params = []
        for i, param in enumerate(func.params):
            self.variables[param] = f"%p{i}"
            params.append(f"{ty.register(param.dtype)} %p{i}")
        self.divided = divided_variables(func.body)
        return f'define i32 @"{exported_name(func)}"({", ".join(params)}) nounwind'

    def finish(self, head: str) -> None:
        """Close the function and add it to the unit."""
        self.do("ret i32 0")
        self.unit.functions.append(f"{head} {{\n{self.body_text()}\n}}")

    # ---- variables of the function around ----
    def undefined_variable(self, var: Var) -> str:
        """A parameter that the function around passes."""
        if self.parent is None:
            return super().undefined_variable(var)
        self.parent.value(var)
        text = f"%arg{len(self.captured)}"
        self.captured[var] = self.variables[var] = text
        return text

    def parameters(self) -> list[str]:
        """Declarations of the captured variables as parameters."""
        return [f"{ty.register(v.dtype)}{self._pointer_attributes(v)} {text}" for v, text in self.captured.items()]

    def _pointer_attributes(self, var: Var) -> str:
        if var.dtype != "handle":
            return ""
        align = self.alignments.get(var)
        if align is None:  # not the memory of a buffer, for instance the arguments themselves
            return ""
        return f"{' noalias' if self.restrict else ''} align {align}"

    # ---- leaving ----
    def leave(self) -> None:
        """Return -1: the current block ends here."""
        self.do("ret i32 -1")

    def _effect_ret(self, e: Call) -> None:
        self.do(f"ret i32 {self.value(e.args[0])}")
        self.start(self.new_label("dead"))

    def _effect_tvm_throw_last_error(self, e: Call) -> None:
        self.fail()
        self.start(self.new_label("dead"))

    def check(self, condition: PrimExpr, message: str) -> None:
        """A branch to a block that sets the message."""
        failed, passed = self.new_label("fail"), self.new_label("ok")
        self.branch(self.value(condition), passed, failed, LIKELY)
        self.start(failed)
        self.runtime_call("TVMAPISetLastError", "void", f"ptr {self.unit.string(message)}")
        self.fail()
        self.start(passed)

    def check_arguments(self, function: str, given: Sequence[PrimExpr], wanted: Sequence[Argument]) -> None:
        """Check arguments by the function that all kernels share."""
        values, codes, count = given
        check = argument_check(self.unit, function, wanted)
        args = f"ptr {self.value(values)}, ptr {self.value(codes)}, i32 {self.value(count)}"
        self.check_zero(self.emit(f"{check}, {args})"))

    def report_index(self, what: str, index: PrimExpr, low: PrimExpr, high: PrimExpr) -> None:
        """Report an index by the function that all kernels share."""
        numbers = ", ".join(self.typed(e) for e in (index, low, high))
        self.do(f"call i32 @{report(self.unit, REPORT_INDEX)}(ptr {self.unit.string(what)}, {numbers})")

    def report_shape(self, what: str, shape: Sequence[PrimExpr], why: str, like: Sequence[PrimExpr]) -> None:
        """Report by the function that all kernels share."""
        texts = [f"ptr {self.unit.string(text)}" for text in (what, why)]
        numbers = [", ".join(self.typed(e) for e in pair) for pair in (shape, like)]
        call = f"call i32 @{report(self.unit, REPORT_SHAPE)}"
        self.do(f"{call}({texts[0]}, {numbers[0]}, {texts[1]}, {numbers[1]})")

    def let(self, var: Var, value: PrimExpr) -> None:
        """The variable is the value's register."""
        self.bind(var, value)
        if self.parent is None:  # unpacked arguments, such as dimensions, do not change
            self.data_variables.discard(var)
        if is_workspace(value):
            self._pure.pop(value, None)  # another workspace of the same size is another call
            self.alignments[var] = 64

    # ---- structs of the C API ----
    def _field_address(self, struct: PrimExpr, index: PrimExpr, kind: int) -> str:
        base, at = self.value(struct), self.value(index)
        if kind == VALUE_CONTENT:
            return (
                self.emit(f"getelementptr inbounds i64, ptr {base}, {ty.scalar(index.dtype)} {at}")
                if at != "0"
                else base
            )
        path, _ = _FIELD_PATHS[kind]
        return self.emit(f"getelementptr inbounds {TENSOR}, ptr {base}, {ty.scalar(index.dtype)} {at}, {path}")

    def _call_tvm_struct_get(self, e: Call) -> str:
        self._reads += 1
        kind = int(e.args[2])  # type: ignore[call-overload]
        if kind == ARRAY_ADDRESS:
            base, at = self.value(e.args[0]), self.typed(e.args[1])
            return self.emit(f"getelementptr inbounds {TENSOR}, ptr {base}, {at}")
        where = self._field_address(e.args[0], e.args[1], kind)
        if kind == VALUE_CONTENT:
            stored = _value_dtype(e.dtype)
            loaded = self.emit(f"load {ty.scalar(stored)}, ptr {where}, align 8")
            return self.cast(loaded, stored, e.dtype)
        _, type_text = _FIELD_PATHS[kind]
        loaded = self.emit(f"load {type_text}, ptr {where}")
        return self.cast(loaded, _FIELD_DTYPES[type_text], e.dtype)

    def _call_tvm_struct_set(self, e: Call) -> str:
        struct, index, kind_expr, value = e.args
        kind = int(kind_expr)  # type: ignore[call-overload]
        where = self._field_address(struct, index, kind)
        if kind == VALUE_CONTENT:
            stored = _value_dtype(value.dtype)
        else:
            stored = _FIELD_DTYPES[_FIELD_PATHS[kind][1]]
        if stored == "handle" and isinstance(value, IntImm) and value.value == 0:
            text = "null"
        else:
            text = self.cast(self.value(value), value.dtype, stored)
        self.do(f"store {ty.scalar(stored)} {text}, ptr {where}")
        return "0"

    def _call_tvm_stack_alloca(self, e: Call) -> str:
        kind, count = e.args[0], int(e.args[1])  # type: ignore[call-overload]
        assert isinstance(kind, StringImm)
        type_text = {"shape": "i64", "arg_value": "i64", "arg_tcode": "i32", "array": TENSOR}[kind.value]
        return self.stack(type_text, 16, max(count, 1))

    # ---- functions of others ----
    def runtime_call(self, name: str, result: str, args: str) -> str:
        """Call the runtime's function ``name`` through its pointer variable."""
        pointer = self.emit(f"load ptr, ptr {self.unit.runtime_pointer(name)}, align 8")
        if result == "void":
            self.do(f"call void {pointer}({args})")
            return "0"
        return self.emit(f"call {result} {pointer}({args})")

    def check_zero(self, code: str) -> None:
        """Leave the function with -1 when ``code`` is not zero."""
        failed, passed = self.new_label("fail"), self.new_label("ok")
        bad = self.emit(f"icmp ne i32 {code}, 0")
        self.branch(bad, failed, passed, UNLIKELY)
        self.start(failed)
        self.fail()
        self.start(passed)

    def _call_TVMBackendAllocWorkspace(self, e: Call) -> str:
        device_type, device_id, size, code, bits = (self.value(a) for a in e.args)
        wide = self.cast(size, e.args[2].dtype, "uint64")
        args = f"i32 {device_type}, i32 {device_id}, i64 {wide}, i32 {code}, i32 {bits}"
        pointer = self.emit(f"load ptr, ptr {self.unit.runtime_pointer('TVMBackendAllocWorkspace')}, align 8")
        return self.emit(f"call noalias ptr {pointer}({args})")

    def _call_TVMBackendFreeWorkspace(self, e: Call) -> str:
        device_type, device_id, data = (self.value(a) for a in e.args)
        return self.runtime_call("TVMBackendFreeWorkspace", "i32", f"i32 {device_type}, i32 {device_id}, ptr {data}")

    def _stacks(self, call: PackedCall) -> tuple[str, str, str]:
        """Return the arguments for the runtime (values, codes, count), and the place of the result."""
        where = self.emit(f"getelementptr inbounds i64, ptr {self.value(call.values)}, i64 {call.begin}")
        code = self.emit(f"getelementptr inbounds i32, ptr {self.value(call.codes)}, i64 {call.begin}")
        result, result_code = self.stack("i64", 8), self.stack("i32", 4)
        return f"ptr {where}, ptr {code}, i32 {call.count}", result, result_code

    def call_handle(self, function: str, call: PackedCall) -> str:
        """Through TVMFuncCall."""
        given, result, result_code = self._stacks(call)
        args = f"ptr {function}, {given}, ptr {result}, ptr {result_code}"
        self.check_zero(self.runtime_call("TVMFuncCall", "i32", args))
        if dt.parse(call.dtype).kind == "void":
            return "0"
        stored = _value_dtype(call.dtype)
        value = self.cast(self.emit(f"load {ty.scalar(stored)}, ptr {result}, align 8"), stored, call.dtype)
        if call.traced is None:
            return value
        code = self.emit(f"load i32, ptr {result_code}, align 4")
        none, scalar = self.emit(f"icmp eq i32 {code}, {NO_VALUE}"), ty.scalar(call.dtype)
        return self.emit(f"select i1 {none}, {scalar} {self.value(call.traced)}, {scalar} {value}")

    def call_symbol(self, call: PackedCall) -> str:
        """Directly."""
        self.unit.declare(call.name, "i32", "ptr, ptr, i32, ptr, ptr, ptr")
        given, result, result_code = self._stacks(call)
        status = self.emit(f"call i32 @{call.name}({given}, ptr {result}, ptr {result_code}, ptr null)")
        self.check_zero(status)
        return status

    def find_function(self, name: str) -> str:
        """The function ``name`` of the module's imports or of the registry; looked up at the first call."""
        cell = f"@.func.{self.unit.name}.{name}"
        cell = '@"' + cell[1:] + '"'
        self.unit.globals.setdefault(cell, f"{cell} = internal global ptr null, align 8")
        self.unit.context["__tvm_module_ctx"] = None
        self.unit.globals.setdefault("@__tvm_module_ctx", "@__tvm_module_ctx = external global ptr, align 8")
        known = self.emit(f"load ptr, ptr {cell}, align 8")
        missing, found = self.new_label("lookup"), self.new_label("found")
        self.branch(self.emit(f"icmp eq ptr {known}, null"), missing, found, UNLIKELY)
        origin = self.block
        self.start(missing)
        context = self.emit("load ptr, ptr @__tvm_module_ctx, align 8")
        out = self.stack("ptr", 8)
        args = f"ptr {context}, ptr {self.unit.string(name)}, ptr {out}"
        self.check_zero(self.runtime_call("TVMBackendGetFuncFromEnv", "i32", args))
        fresh = self.emit(f"load ptr, ptr {out}, align 8")
        self.do(f"store ptr {fresh}, ptr {cell}, align 8")
        end = self.block
        self.jump(found)
        self.start(found)
        return self.emit(f"phi ptr [ {known}, %{origin} ], [ {fresh}, %{end} ]")

    def _call_tvm_static_handle(self, e: Call) -> str:
        """The address of a pointer that is null at first and lives as long as the code."""
        cell = '@"' + self.unit.unique(f".static.{self.name}") + '"'
        self.unit.globals[cell] = f"{cell} = internal global ptr null, align 8"
        return cell

    # ---- functions inside ----
    def _attr_coproc_uop_scope(self, s: AttrStmt) -> None:
        """Emit the body as a function that the named one, such as TVMBackendRunOnce, calls."""
        if not isinstance(s.value, StringImm):
            raise TilewrightError(f"{self.name}: coproc_uop_scope is the name of a function, not {s.value}")
        name = self.unit.unique(f"{self.name}.once")
        child = type(self)(self.unit, self, self.restrict)
        child.visit_stmt(s.body)
        child.finish(f'define internal i32 @"{name}"({", ".join(child.parameters())}) noinline nounwind')
        struct, closure = self._closure(name, child)
        size = self.emit(f"ptrtoint ptr getelementptr ({struct}, ptr null, i32 1) to i32")
        handle = self._call_tvm_static_handle(Call("handle", "tir.tvm_static_handle", ()))
        args = f'ptr {handle}, ptr @"{name}.lambda", ptr {closure}, i32 {size}'
        caller = s.value.value
        if caller.startswith("TVMBackend"):
            self.check_zero(self.runtime_call(caller, "i32", args))
            return
        self.unit.declare(caller, "i32", "ptr, ptr, ptr, i32")
        self.check_zero(self.emit(f"call i32 @{caller}({args})"))

    def _attr_compute_scope(self, s: AttrStmt) -> None:
        """The body as a function of the variables it uses."""
        name = self.unit.unique(f"{self.name}.compute")
        child = type(self)(self.unit, self, self.restrict)
        child.visit_stmt(s.body)
        child.finish(f'define internal i32 @"{name}"({", ".join(child.parameters())}) noinline nounwind')
        args = ", ".join(f"{ty.register(v.dtype)} {self.value(v)}" for v in child.captured)
        self.check_zero(self.emit(f'call i32 @"{name}"({args})'))

    def _attr_pragma_parallel_launch_point(self, s: AttrStmt) -> None:
        self._launch(lambda child: child.visit_stmt(s.body))

    def _attr_pragma_parallel_stride_pattern(self, s: AttrStmt) -> Stmt:
        self.spread_loop = "stride"
        return s.body

    def _attr_pragma_parallel_barrier_when_finish(self, s: AttrStmt) -> None:
        self.visit_stmt(s.body)
        if self.task is not None:
            self.check_zero(
                self.runtime_call("TVMBackendParallelBarrier", "i32", f"i32 {self.task[0]}, ptr {self.task[2]}")
            )

    def _attr_tile_configuration(self, s: AttrStmt) -> Stmt | None:
        """Configure AMX's tiles for the body, unless a loop around has done so."""
        assert isinstance(s.value, StringImm)
        if self.tiles == s.value.value:
            return s.body
        with self._configured(s.value.value):
            self.visit_stmt(s.body)
        return None

    @contextmanager
    def _configured(self, tiles: str | None) -> Iterator[None]:
        """Configure AMX's tiles for what is emitted inside, and release them; None: leave them."""
        if tiles is None or self.tiles is not None:
            yield
            return
        for name, params in (("ldtilecfg", "ptr"), ("tilerelease", "")):
            self.unit.declare(f"llvm.x86.{name}", "void", params)
        self.do(f"call void @llvm.x86.ldtilecfg(ptr {self.unit.constant(configuration(tiles), 64)})")
        self.tiles = tiles
        yield
        self.tiles = None
        self.do("call void @llvm.x86.tilerelease()")

    def loop(self, s: For) -> None:
        """Emit a loop, around which tiles are configured."""
        with self._configured(self._tiles_of(s)):
            super().loop(s)

    def _tiles_of(self, s: For) -> str | None:
        return configuration_of(s.body) if self.unit.uses_tiles and self.tiles is None else None

    def parallel(self, s: For) -> None:
        """Emit the tasks of a launch; inside one, this task's part if the schedule says so, else all iterations."""
        if self.spread_loop is not None and self.task is not None:
            self.begin_statement()
            self.shared_out(s)
        else:
            super().parallel(s)

    def launch(self, s: For) -> None:
        """The iterations as tasks."""
        self.stays_loop = False
        self._launch(lambda child: child.shared_out(s), self._most_tasks(s))

    def _most_tasks(self, s: For) -> int:
        """Return the tasks of a loop that has too little work for all cores of the target; 0: one for each thread."""
        cpu = self.unit.features
        if cpu.cores <= _FEW_CORES:
            return 0
        lanes = cpu.lanes(32)
        found = most_tasks(s, lanes * 32, least_of_task(cpu.processor.threads.least_work, lanes))
        return found if found is not None and found < cpu.cores else 0

    def _launch(self, body: Callable[[FunctionEmitter], None], tasks: int = 0) -> None:
        """Run ``body`` as the tasks of one parallel launch, 0: one for each thread.

        The variables it uses go through a struct: the lambda that the runtime calls unpacks it and calls the function
        with the body.
        """
        name = self.unit.unique(f"{self.name}.parallel")
        child = type(self)(self.unit, self, self.restrict)
        count = child.emit(f"getelementptr inbounds {_PARALLEL_ENV}, ptr %env, i32 0, i32 1")
        child.in_task = True
        child.task = ("%task", child.emit(f"load i32, ptr {count}, align 4"), "%env")
        body(child)
        params = ", ".join(["i32 %task", "ptr %env", *child.parameters()])
        child.finish(f'define internal i32 @"{name}"({params}) noinline nounwind')
        _, closure = self._closure(name, child, "i32 %task", "ptr %env")
        self.check_zero(
            self.runtime_call("TVMBackendParallelLaunch", "i32", f'ptr @"{name}.lambda", ptr {closure}, i32 {tasks}')
        )

    def _closure(self, name: str, child: FunctionEmitter, *given: str) -> tuple[str, str]:
        """Store the variables that ``child`` uses in a struct on the stack; return the struct's type and its address.

        The function ``name.lambda``, which takes the parameters ``given`` and that address, calls ``name``.
        """
        captured = list(child.captured)
        struct = "{ " + ", ".join(ty.register(v.dtype) for v in captured) + " }" if captured else "{ i8 }"
        self._add_lambda(name, struct, captured, given)
        closure = self.stack(struct, 8)
        for i, var in enumerate(captured):
            where = self.emit(f"getelementptr inbounds {struct}, ptr {closure}, i32 0, i32 {i}")
            self.do(f"store {ty.register(var.dtype)} {self.value(var)}, ptr {where}")
        return struct, closure

    def _add_lambda(self, name: str, struct: str, captured: list[Var], given: Sequence[str]) -> None:
        lines, args = [], [*given]
        for i, var in enumerate(captured):
            reg = ty.register(var.dtype)
            lines.append(f"  %p{i} = getelementptr inbounds {struct}, ptr %data, i32 0, i32 {i}")
            lines.append(f"  %c{i} = load {reg}, ptr %p{i}")
            args.append(f"{reg} %c{i}")
        lines += [f'  %r = call i32 @"{name}"({", ".join(args)})', "  ret i32 %r"]
        body = "\n".join(lines)
        self.unit.functions.append(
            f'define internal i32 @"{name}.lambda"({", ".join([*given, "ptr %data"])}) nounwind {{\n{body}\n}}'
        )

    def shared_out(self, s: For) -> None:
        """The iterations of a parallel loop that this task runs: one contiguous part, or every n-th."""
        assert self.task is not None
        stride, self.spread_loop = self.spread_loop == "stride", None
        self.stays_loop = False
        with self._configured(self._tiles_of(s)):
            self._own_part(s, stride, *self.task[:2])

    def _own_part(self, s: For, stride: bool, task: str, tasks: str) -> None:
        reg = ty.register(s.loop_var.dtype)
        task, tasks = (self.cast(v, "int32", s.loop_var.dtype) for v in (task, tasks))
        low, extent = self.value(s.min), self.value(s.extent)
        if stride:
            begin = self.emit(f"add nsw {reg} {low}, {task}")
            end = self.emit(f"add nsw {reg} {low}, {extent}")
            self.range(s.loop_var, begin, end, tasks, s.body, True)
            return
        above = self.emit(f"add nsw {reg} {extent}, {self.emit(f'add nsw {reg} {tasks}, -1')}")
        part = self.emit(f"sdiv {reg} {above}, {tasks}")
        bounds = []
        for number in (task, self.emit(f"add nsw {reg} {task}, 1")):
            limit = self.min_max(s.loop_var.dtype, False, self.emit(f"mul nsw {reg} {number}, {part}"), extent)
            bounds.append(limit if low == "0" else self.emit(f"add nsw {reg} {low}, {limit}"))
        self.range(s.loop_var, bounds[0], bounds[1], "1", s.body, True)


def _value_dtype(dtype: str) -> str:
    """Return the dtype in which a TVMValue holds a value of ``dtype``."""
    info = dt.parse(dtype)
    return {"int": "int64", "uint": "int64", "bool": "int64", "float": "float64", "bfloat": "float64"}.get(
        info.kind, "handle"
    )
