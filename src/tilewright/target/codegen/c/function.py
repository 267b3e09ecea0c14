"""Host functions in C: calls of the runtime, and checks of their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import CallingConv
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.common.host import (
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
    Argument,
    HostEmitter,
    PackedCall,
    is_workspace,
)
from tilewright.target.codegen.source.names import KEYWORDS, c_type, string_literal
from tilewright.target.codegen.source.statements import StatementPrinter, Uses, prepare
from tilewright.tir.expr import Call, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import CALLING_CONV, NOALIAS
from tilewright.tir.stmt import AttrStmt, For, LetStmt, Stmt
from tilewright.tir.visitor import free_vars

_PARAMETERS = (
    ("void*", "args"), ("int32_t*", "arg_type_ids"), ("int32_t", "num_args"), ("void*", "out_ret_value"),
    ("int32_t*", "out_ret_tcode"), ("void*", "resource_handle"),
)  # fmt: skip


_FIELDS = {
    ARRAY_DATA: ("data", "void*"), ARRAY_SHAPE: ("shape", "int64_t*"), ARRAY_STRIDES: ("strides", "int64_t*"),
    ARRAY_NDIM: ("ndim", "int32_t"), ARRAY_TYPE_CODE: ("dtype.code", "uint8_t"),
    ARRAY_TYPE_BITS: ("dtype.bits", "uint8_t"), ARRAY_TYPE_LANES: ("dtype.lanes", "uint16_t"),
    ARRAY_BYTE_OFFSET: ("byte_offset", "uint64_t"), ARRAY_DEVICE_ID: ("device.device_id", "int"),
    ARRAY_DEVICE_TYPE: ("device.device_type", "DLDeviceType"),
}  # fmt: skip
_MEMBERS = {"float": "v_float64", "bfloat": "v_float64", "handle": "v_handle"}


def _member(dtype: str) -> str:
    """The field of a TVMValue that holds a value of ``dtype``."""
    return _MEMBERS.get(dt.parse(dtype).kind, "v_int64")


class Source:
    """The C functions of one source, and the declarations they need."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.launches = 0
        self.has_entry = False  # whether one function is called from outside, and no other


class FunctionPrinter(StatementPrinter, HostEmitter):
    """Prints one C function into the source. ``restrict`` says that distinct pointers name distinct memory."""

    language = "C"

    def __init__(self, source: Source, name: str, uses: Uses, alignments: dict[Var, int], restrict: bool) -> None:
        super().__init__(name, uses, alignments)
        self.source, self.restrict = source, restrict
        for _, parameter in _PARAMETERS:
            self.names.fresh(parameter)

    def signature(self, func: PrimFunc) -> str:
        """A packed function."""
        for var, (_, parameter) in zip(func.params, _PARAMETERS, strict=True):
            self.names.set(var, parameter)
            if var not in self.uses.used:
                self.put(f"(void){parameter};")
        return f"int32_t {self.name}({', '.join(f'{kind} {parameter}' for kind, parameter in _PARAMETERS)})"

    def finish(self, head: str) -> None:
        """Declare the function, and add it to the source."""
        lines = "\n".join(self.lines)
        self.source.declarations[self.name] = f"TVM_DLL {head};"
        self.source.functions.append(f"TVM_DLL {head} {{\n{lines}\n}}\n")

    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Declare an external function, once in the source."""
        params = ", ".join(c_type(a) for a in args) or "void"
        self.source.declarations.setdefault(name, f"extern {c_type(result)} {name}({params});")

    # ---- variables ----
    def let(self, var: Var, value: PrimExpr) -> None:
        """A constant; a workspace is there even if nobody uses it."""
        if is_workspace(value):
            self.uses.used.add(var)
        super().let(var, value)

    def qualifier(self, var: Var) -> str:
        """Return the restrict qualifier of a buffer's pointer, if it has one."""
        return " TW_RESTRICT" if self.restrict and var in self.alignments else ""

    def converted(self, var: Var, value: str) -> str:
        """Return a pointer annotated with its alignment."""
        aligned = self.alignments.get(var)
        if var.dtype == "handle" and aligned is not None and aligned > 1:
            value = f"TW_ALIGNED({value}, {aligned})"
        return super().converted(var, value)

    def _attr_pragma_import_c(self, s: AttrStmt) -> Stmt:
        if isinstance(s.value, StringImm):
            self.source.declarations.setdefault(s.value.value, s.value.value)
        return s.body

    # ---- leaving ----
    def leave(self) -> None:
        """Return -1."""
        self.put("return -1;")

    def _fail_block(self) -> None:
        """The body and the end of an ``if`` whose condition is a failure."""
        self.depth += 1
        self.fail()
        self.depth -= 1
        self.put("}")

    def _effect_ret(self, e: Call) -> None:
        self.put(f"return {self.value(e.args[0])};")

    def check(self, condition: PrimExpr, message: str) -> None:
        """An ``if`` around setting the message."""
        self.put(f"if (!{self.value(condition)}) {{")
        self.put(f"  TVMAPISetLastError({string_literal(message)});")
        self._fail_block()

    def report_index(self, what: str, index: PrimExpr, low: PrimExpr, high: PrimExpr) -> None:
        """Report by the function at the head of the source."""
        numbers = ", ".join(self.value(e) for e in (index, low, high))
        self.put(f"tw_report_index({string_literal(what)}, {numbers});")

    def report_shape(self, what: str, shape: Sequence[PrimExpr], why: str, like: Sequence[PrimExpr]) -> None:
        """Report by the function at the head of the source."""
        texts = [string_literal(what), string_literal(why)]
        numbers = [f"{self.value(data)}, {self.value(count)}" for data, count in (shape, like)]
        self.put(f"tw_report_shape({texts[0]}, {numbers[0]}, {texts[1]}, {numbers[1]});")

    def check_arguments(self, function: str, given: Sequence[PrimExpr], wanted: Sequence[Argument]) -> None:
        """Check by the function at the head of the source, from a table."""
        rows = []
        for i, argument in enumerate(wanted):
            sizes = "NULL"
            if argument.dims:
                sizes = f"dims{i}"
                self.put(f"static const int64_t {sizes}[] = {{{', '.join(map(str, argument.dims))}}};")
            numbers = (
                len(argument.dims), argument.packed_dtype, argument.device_type, argument.alignment, argument.flags
            )  # fmt: skip
            rows.append(f"{{{string_literal(argument.name)}, {sizes}, {', '.join(map(str, numbers))}}}")
        table = "NULL"
        if rows:
            table = "arguments"
            self.put("static const TwArgument arguments[] = {")
            for row in rows:
                self.put(f"  {row},")
            self.put("};")
        values = "(const TVMValue*)args, (const int*)arg_type_ids, num_args"
        check = f"tw_check_arguments({string_literal(function)}, {table}, {len(rows)}, {values})"
        self.put(f"if ({check} != 0) return -1;")

    # ---- structs of the C API ----
    def _call_tvm_struct_get(self, e: Call) -> str:
        struct, index, kind = self.value(e.args[0]), self.value(e.args[1]), int(e.args[2])  # type: ignore[call-overload]
        if kind == 12:
            member = {"float": "v_float64", "bfloat": "v_float64", "handle": "v_handle"}.get(
                dt.parse(e.dtype).kind, "v_int64"
            )
            text = f"((TVMValue*){struct})[{index}].{member}"
            return text if dt.parse(e.dtype).kind == "handle" else f"(({self.type_name(e.dtype)}){text})"
        if kind == 0:
            return f"(&((DLTensor*){struct})[{index}])"
        member, member_type = _FIELDS[kind]
        text = f"((DLTensor*){struct})[{index}].{member}"
        return text if member_type.endswith("*") else f"(({self.type_name(e.dtype)}){text})"

    def _call_tvm_struct_set(self, e: Call) -> str:
        struct, index, value = self.value(e.args[0]), self.value(e.args[1]), e.args[3]
        kind = int(e.args[2])  # type: ignore[call-overload]
        if kind == 12:
            group = dt.parse(value.dtype).kind
            if isinstance(value, StringImm):
                target, text = "v_str", self.value(value)
            else:
                target = {"float": "v_float64", "bfloat": "v_float64", "handle": "v_handle"}.get(group, "v_int64")
                text = self.value(value)
                if group == "bfloat":
                    text = f"tw_bfloat_to_float({text})"
            return f"((TVMValue*){struct})[{index}].{target} = {text}"
        member, member_type = _FIELDS[kind]
        text = (
            "NULL"
            if member_type.endswith("*") and ops.is_const_int(value, 0)
            else f"({member_type}){self.value(value)}"
        )
        return f"((DLTensor*){struct})[{index}].{member} = {text}"

    def _call_tvm_stack_alloca(self, e: Call) -> str:
        kind, count = e.args[0], int(e.args[1])  # type: ignore[call-overload]
        assert isinstance(kind, StringImm)
        element = {"shape": "int64_t", "arg_value": "TVMValue", "arg_tcode": "int", "array": "DLTensor"}[kind.value]
        name = self.names.fresh(f"stack_{kind.value}_memory")
        self.put(f"{element} {name}[{max(count, 1)}];")
        return name

    def _call_TVMBackendAllocWorkspace(self, e: Call) -> str:
        device_type, device_id, size, code, bits = [self.value(a) for a in e.args]
        return f"TVMBackendAllocWorkspace({device_type}, {device_id}, (uint64_t){size}, {code}, {bits})"

    def _call_TVMBackendFreeWorkspace(self, e: Call) -> str:
        return f"TVMBackendFreeWorkspace({', '.join([self.value(a) for a in e.args])})"

    # ---- functions of others ----
    def find_function(self, name: str) -> str:
        """A static variable, filled at the first call."""
        cell = self.names.fresh("function")
        self.put(f"static TVMFunctionHandle {cell} = NULL;")
        found = f"TVMBackendGetFuncFromEnv(__tvm_module_ctx, {string_literal(name)}, &{cell})"
        self.put(f"if ({cell} == NULL && {found} != 0) {{")
        self._fail_block()
        return cell

    def _result(self, code_type: str) -> tuple[str, str]:
        """Variables for a result and its type code."""
        result, code = self.names.fresh("result"), self.names.fresh("result_code")
        self.put(f"TVMValue {result};")
        self.put(f"{code_type} {code};")
        return result, code

    def _stacks(self, call: PackedCall) -> tuple[str, str]:
        values, codes = self.value(call.values), self.value(call.codes)
        return (f"({values} + {call.begin})", f"({codes} + {call.begin})") if call.begin else (values, codes)

    def call_handle(self, function: str, call: PackedCall) -> str:
        """Through TVMFuncCall."""
        result, code = self._result("int")
        values, codes = self._stacks(call)
        given = f"(TVMValue*){values}, (int*){codes}, {call.count}"
        self.put(f"if (TVMFuncCall({function}, {given}, &{result}, &{code}) != 0) {{")
        self._fail_block()
        if dt.parse(call.dtype).kind == "void":
            return "0"
        value = f"({c_type(call.dtype)}){result}.{_member(call.dtype)}"
        return f"({value})" if call.traced is None else f"({code} == {NO_VALUE} ? {self.value(call.traced)} : {value})"

    def call_symbol(self, call: PackedCall) -> str:
        """Directly."""
        declaration = f"extern int32_t {call.name}(void*, int32_t*, int32_t, void*, int32_t*, void*);"
        self.source.declarations.setdefault(call.name, declaration)
        result, code = self._result("int32_t")
        values, codes = self._stacks(call)
        given = f"{values}, (int32_t*){codes}, {call.count}, &{result}, &{code}, NULL"
        self.put(f"if ({call.name}({given}) != 0) {{")
        self._fail_block()
        return "0"

    def _effect_tvm_call_packed_lowered(self, e: Call) -> None:
        self.value(e)  # the statements before it are the call

    _effect_tvm_call_cpacked_lowered = _effect_tvm_call_trace_packed_lowered = _effect_tvm_call_packed_lowered

    # ---- tasks ----
    def launch(self, s: For) -> None:
        """Run the iterations as the tasks of a parallel launch; the variables of the body go through a struct."""
        captured = free_vars(s)
        name = f"{self.name}_parallel_{self.source.launches}"
        self.source.launches += 1
        task = FunctionPrinter(self.source, self.name, self.uses, self.alignments, self.restrict)
        task.in_task = True
        fields = []
        for parameter in ("task_id", "penv", "cdata"):
            task.names.fresh(parameter)
        for i, var in enumerate(captured):
            fields.append(f"  {c_type(var.dtype)} f{i};")
            source = f"((const struct {name}_closure*)cdata)->f{i}"
            task.put(f"{task.declared(var)} = {task.converted(var, source)};")
        task.begin_statement(s.min, s.extent)
        low, extent = task.value(s.min), task.value(s.extent)
        kind = c_type(s.loop_var.dtype)
        count, part = task.names.fresh("extent"), task.names.fresh("part")
        first, last = task.names.fresh("first"), task.names.fresh("last")
        task.put(f"const {kind} {count} = {self.outer(extent)};")
        task.put(f"const {kind} {part} = ({count} + penv->num_task - 1) / penv->num_task;")
        task.put(f"const {kind} {first} = ({kind})task_id * {part};")
        task.put(f"const {kind} {last} = {first} + {part} < {count} ? {first} + {part} : {count};")
        task.range(s, first if low == "0" else f"{low} + {first}", last if low == "0" else f"{low} + {last}")
        task.put("return 0;")
        closure = "\n".join(fields or ["  char unused;"])
        unused = "" if captured else "  (void)cdata;\n"
        self.source.functions.append(
            f"struct {name}_closure {{\n{closure}\n}};\n\n"
            f"static int {name}(int task_id, TVMParallelGroupEnv* penv, void* cdata) {{\n{unused}"
            + "\n".join(task.lines)
            + "\n}\n"
        )
        variable = self.names.fresh("closure")
        values = ", ".join([self.names.of(v) for v in captured]) or "0"
        self.put(f"struct {name}_closure {variable} = {{{values}}};")
        self.put(f"if (TVMBackendParallelLaunch({name}, &{variable}, 0) != 0) {{")
        self._fail_block()


def _leading_lets(body: Stmt) -> Iterator[LetStmt]:
    """The definitions at the head of a function."""
    while isinstance(body, (LetStmt, AttrStmt)):
        if isinstance(body, LetStmt):
            yield body
        body = body.body


class UnpackedPrinter(FunctionPrinter):
    """Prints functions of pointers and scalars (MakeUnpackedAPI)."""

    def signature(self, func: PrimFunc) -> str:
        """A function of pointers and scalars."""
        unread = {s.value for s in _leading_lets(func.body) if s.var not in self.uses.used}
        for param in func.params:
            if param in unread or param not in self.uses.used:
                self.put(f"(void){self.names.of(param)};")
        params = ", ".join(f"{c_type(p.dtype)} {self.names.of(p)}" for p in func.params)
        return f"int32_t {self.name}({params or 'void'})"


def print_function(func: PrimFunc, source: Source, printer: type[FunctionPrinter] | None = None) -> str:
    """Add ``func`` (after LowerTVMBuiltin and LowerIntrin) to the source; return its name.

    By default its signature is what its attribute ``calling_conv`` says; a ``printer`` may choose another.
    """
    name = exported_name(func)
    if not name.isidentifier() or name in KEYWORDS:
        raise TilewrightError(f"the function name {name!r} cannot be used in C; choose another")
    func, uses, alignments = prepare(func)
    restrict = NOALIAS.on(func)
    if printer is None:
        printer = UnpackedPrinter if CALLING_CONV.get(func) == CallingConv.UNPACKED else FunctionPrinter
    printer(source, name, uses, alignments, restrict).function(func)
    return name
