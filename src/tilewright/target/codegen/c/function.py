"""Statements of C functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_functor import DEPTH_STEP, ensure_room
from tilewright.ir.type import PointerType, PrimType
from tilewright.target.codegen.c.expr import ExpressionPrinter
from tilewright.target.codegen.c.names import KEYWORDS, c_type, string_literal
from tilewright.target.codegen.c.scalarize import scalarize
from tilewright.tir.expr import Call, IntImm, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    Store,
    While,
)  # fmt: skip
from tilewright.tir.visitor import StmtExprVisitor, StmtMutator, free_vars

_PARAMETERS = (
    ("void*", "args"), ("int32_t*", "arg_type_ids"), ("int32_t", "num_args"), ("void*", "out_ret_value"),
    ("int32_t*", "out_ret_tcode"), ("void*", "resource_handle"),
)  # fmt: skip
_DTYPE_CODES = {"int": 0, "uint": 1, "bool": 1, "float": 2, "handle": 3, "bfloat": 4, "void": 3}


class _DropAlignments(StmtMutator):
    """Takes the ``storage_alignment`` attributes out, and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Var, int] = {}

    def visit_attr(self, s: AttrStmt) -> Stmt:
        if s.attr_key != "storage_alignment":
            return super().visit_attr(s)
        self.found[s.node] = int(s.value)  # type: ignore[call-overload]
        return self.visit_stmt(s.body)


class _Uses(StmtExprVisitor):
    """Which variables are read, and what types buffers are accessed as."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[Var] = set()
        self.accessed: dict[Var, set[str]] = {}

    def visit_var(self, e: Var) -> None:
        self.used.add(e)

    def visit_load(self, e: object) -> None:
        self.accessed.setdefault(e.buffer_var, set()).add(dt.element(e.dtype))  # type: ignore[attr-defined]
        self.used.add(e.buffer_var)  # type: ignore[attr-defined]
        super().visit_load(e)  # type: ignore[arg-type]

    def visit_store(self, s: Store) -> None:
        self.accessed.setdefault(s.buffer_var, set()).add(dt.element(s.value.dtype))
        self.used.add(s.buffer_var)
        super().visit_store(s)


class Source:
    """The C functions of one source, and what they need declared before them."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.launches = 0


class FunctionPrinter(ExpressionPrinter):
    """Prints the statements of one C function."""

    _statements: ClassVar[dict[type, Callable[..., Stmt | None]]] = {}

    def __init__(self, source: Source, name: str, uses: _Uses, alignments: dict[Var, int], restrict: bool) -> None:
        super().__init__(name)
        self.source, self.uses, self.alignments, self.restrict = source, uses, alignments, restrict
        self.workspaces: list[Call] = []
        self.in_task = False
        for _, parameter in _PARAMETERS:
            self.names.fresh(parameter)

    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Declare an external function, once in the source."""
        params = ", ".join(_parameter_type(a) for a in args) or "void"
        self.source.declarations.setdefault(name, f"extern {c_type(result)} {name}({params});")

    # ---- statements ----
    def statement(self, stmt: Stmt | None) -> None:
        """Print ``stmt``; methods give back what to go on with."""
        while stmt is not None:
            method = self._statements.get(type(stmt))
            if method is None:
                raise TilewrightError(
                    f"{self.name}: C code generation does not handle the statement {type(stmt).__name__}; "
                    "lower the function first (tvm.lower, tvm.build)"
                )
            self._nesting += 1
            if not self._nesting % DEPTH_STEP:
                ensure_room()
            stmt = method(self, stmt)
            self._nesting -= 1

    def block(self, head: str, body: Stmt) -> None:
        """``head { body }``, left open for an else."""
        self.put(f"{head} {{".lstrip())
        self.depth += 1
        self.statement(body)
        self.depth -= 1

    def _seq(self, s: SeqStmt) -> Stmt | None:
        for item in s.seq:
            if isinstance(item, (LetStmt, Allocate, AttrStmt, AssertStmt)) and len(s.seq) > 1:
                self.block("", item)  # the copies of an unrolled loop declare the same names
                self.put("}")
            else:
                self.statement(item)
        return None

    def _let_stmt(self, s: LetStmt) -> Stmt | None:
        is_workspace = isinstance(s.value, Call) and s.value.op.name == "tir.TVMBackendAllocWorkspace"
        if s.var not in self.uses.used and not is_workspace:
            return s.body
        self.begin_statement(s.value)
        value = self.value(s.value)
        self.put(f"{self._declared(s.var)} = {self._converted(s.var, value)};")
        if is_workspace:
            assert isinstance(s.value, Call)
            steps = s.body.seq if isinstance(s.body, SeqStmt) else (s.body,)
            self.statement(steps[0])  # the test whether there is one
            self.workspaces.append(Call("int32", "tir.TVMBackendFreeWorkspace", (*s.value.args[:2], s.var)))
            self.statement(SeqStmt(steps[1:]))
            self.workspaces.pop()
            return None
        return s.body

    def _pointed_to(self, var: Var) -> str | None:
        """The C type of a buffer's elements, when all accesses agree."""
        accessed = {c_type(d) for d in self.uses.accessed.get(var, ())}
        annotation = var.type_annotation
        if not accessed and isinstance(annotation, PointerType) and isinstance(annotation.element_type, PrimType):
            return c_type(annotation.element_type.dtype) if annotation.element_type.dtype != "void" else None
        return accessed.pop() if len(accessed) == 1 else None

    def _declared(self, var: Var) -> str:
        """The declaration of a variable without its value."""
        if var.dtype != "handle":
            return f"const {c_type(var.dtype)} {self.names.of(var)}"
        pointed = self._pointed_to(var)
        if pointed is None:
            return f"void* {self.names.of(var)}"
        self.element_types[var] = pointed
        restrict = " TW_RESTRICT" if self.restrict and var in self.alignments else ""
        return f"{pointed}*{restrict} {self.names.of(var)}"

    def _converted(self, var: Var, value: str) -> str:
        if var.dtype != "handle":
            return value
        pointed = self.element_types.get(var)
        aligned = self.alignments.get(var)
        if aligned is not None and aligned > 1:
            value = f"TW_ALIGNED({value}, {aligned})"
        return value if pointed is None else f"({pointed}*){value}"

    def _store(self, s: Store) -> None:
        self.begin_statement(s.value, s.index, s.predicate)
        guard = "" if isinstance(s.predicate, IntImm) else f"if ({self._outer(self.value(s.predicate))}) "
        value = self.value(s.value)
        place = self.element(s.buffer_var, s.value.dtype, s.index)
        self.put(f"{guard}{place} = {self._outer(value)};")

    def _allocate(self, s: Allocate) -> Stmt | None:
        count = dt.lanes(s.dtype)
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise TilewrightError(
                    f"{self.name}: the size of {s.buffer_var.name} is not a constant; run LowerTVMBuiltin"
                )
            count *= extent.value
        if s.buffer_var in self.uses.used:
            element = c_type(s.dtype)
            self.element_types[s.buffer_var] = element
            self.put(f"{element} {self.names.of(s.buffer_var)}[{max(count, 1)}];")
        return s.body

    def _if(self, s: IfThenElse) -> Stmt | None:
        self.begin_statement(s.condition)
        self.block(f"if ({self._outer(self.value(s.condition))})", s.then_case)
        if s.else_case is not None:
            self.block("} else", s.else_case)
        self.put("}")
        return None

    def _while(self, s: While) -> Stmt | None:
        self.put("while (1) {")
        self.depth += 1
        self.begin_statement(s.condition)
        self.put(f"if (!{self.value(s.condition)}) break;")
        self.statement(s.body)
        self.depth -= 1
        self.put("}")
        return None

    def _assert(self, s: AssertStmt) -> Stmt | None:
        self.begin_statement(s.condition)
        self.put(f"if (!{self.value(s.condition)}) {{")
        self.depth += 1
        message = s.message.value if isinstance(s.message, StringImm) else str(s.message)
        self.put(f"TVMAPISetLastError({string_literal(message)});")
        self.fail()
        self.depth -= 1
        self.put("}")
        return s.body

    def fail(self) -> None:
        """Free workspaces and return -1."""
        for call in reversed(self.workspaces):
            self.put(f"{self.value(call)};")
        self.put("return -1;")

    def _attr(self, s: AttrStmt) -> Stmt | None:
        if s.attr_key == "pragma_import_c" and isinstance(s.value, StringImm):
            self.source.declarations.setdefault(s.value.value, s.value.value)
        return s.body

    def _evaluate(self, s: Evaluate) -> Stmt | None:
        call = s.value
        if not isinstance(call, Call):
            return None
        self.begin_statement(call)
        name = call.op.name
        if name == "tir.ret":
            self.put(f"return {self.value(call.args[0])};")
        elif name == "tir.tvm_throw_last_error":
            self.fail()
        elif name == "tir.tvm_check_arguments":
            self._check_arguments(call)
        elif name in ("tir.tvm_call_packed_lowered", "tir.tvm_call_cpacked_lowered"):
            self.value(call)
        else:
            self.put(f"{self._outer(self.value(call))};")
        return None

    def _check_arguments(self, call: Call) -> None:
        rows = []
        for i, described in enumerate(call.args[4:]):
            assert isinstance(described, Call)
            name, dtype, device, align, flags, *dims = described.args
            assert isinstance(name, StringImm) and isinstance(dtype, StringImm)
            sizes = "NULL"
            if dims:
                sizes = f"dims{i}"
                self.put(f"static const int64_t {sizes}[] = {{{', '.join([str(int(d)) for d in dims])}}};")  # type: ignore[call-overload]
            info = dt.parse(dtype.value)
            kind = f"{{{_DTYPE_CODES[info.kind]}, {info.bits}, {info.lanes}}}"
            numbers = ", ".join([str(int(v)) for v in (device, align, flags)])  # type: ignore[call-overload]
            texts = f"{string_literal(name.value)}, {string_literal(dtype.value)}"
            rows.append(f"{{{texts}, {sizes}, {len(dims)}, {kind}, {numbers}}}")
        table = "NULL"
        if rows:
            table = "arguments"
            self.put("static const TwArgument arguments[] = {")
            for row in rows:
                self.put(f"  {row},")
            self.put("};")
        given = "(const TVMValue*)args, (const int*)arg_type_ids, num_args"
        self.put(f"if (tw_check_arguments({self.value(call.args[3])}, {table}, {len(rows)}, {given}) != 0) return -1;")

    # ---- packed calls ----
    def _call_tvm_stack_alloca(self, e: Call) -> str:
        kind, count = e.args[0], int(e.args[1])  # type: ignore[call-overload]
        assert isinstance(kind, StringImm)
        element = {"shape": "int64_t", "arg_value": "TVMValue", "arg_tcode": "int", "array": "DLTensor"}[kind.value]
        name = self.names.fresh(f"stack_{kind.value}_memory")
        self.put(f"{element} {name}[{max(count, 1)}];")
        return name

    def _call_tvm_call_packed_lowered(self, e: Call) -> str:
        name, values, codes, _, end = e.args
        assert isinstance(name, StringImm)
        cell = self.names.fresh("function")
        self.put(f"static TVMFunctionHandle {cell} = NULL;")
        self.put(
            f"if ({cell} == NULL && TVMBackendGetFuncFromEnv(__tvm_module_ctx, {self.value(name)}, &{cell}) != 0) {{"
        )
        self._fail_block()
        result, code = self.names.fresh("result"), self.names.fresh("result_code")
        self.put(f"TVMValue {result};")
        self.put(f"int {code};")
        given = f"(TVMValue*){self.value(values)}, (int*){self.value(codes)}, {self.value(end)}"
        self.put(f"if (TVMFuncCall({cell}, {given}, &{result}, &{code}) != 0) {{")
        self._fail_block()
        kind = dt.parse(e.dtype).kind
        member = {"float": "v_float64", "bfloat": "v_float64", "handle": "v_handle"}.get(kind, "v_int64")
        return "0" if kind == "void" else f"(({c_type(e.dtype)}){result}.{member})"

    def _call_tvm_call_cpacked_lowered(self, e: Call) -> str:
        name, values, codes, _, end = e.args
        assert isinstance(name, StringImm)
        declaration = f"extern int32_t {name.value}(void*, int32_t*, int32_t, void*, int32_t*, void*);"
        self.source.declarations.setdefault(name.value, declaration)
        result, code = self.names.fresh("result"), self.names.fresh("result_code")
        self.put(f"TVMValue {result};")
        self.put(f"int32_t {code};")
        given = f"{self.value(values)}, (int32_t*){self.value(codes)}, {self.value(end)}, &{result}, &{code}, NULL"
        self.put(f"if ({name.value}({given}) != 0) {{")
        self._fail_block()
        return "0"

    def _fail_block(self) -> None:
        self.depth += 1
        self.fail()
        self.depth -= 1
        self.put("}")

    # ---- loops ----
    def _for(self, s: For) -> Stmt | None:
        if s.kind == ForKind.PARALLEL and not self.in_task:
            self._launch(s)
            return None
        self.begin_statement(s.min, s.extent)
        low, extent = self.value(s.min), self.value(s.extent)
        if low == "0":
            high = self._outer(extent)
        else:
            high = f"{low} + {extent}"
        self._loop(s, low, high)
        return None

    def _loop(self, s: For, low: str, high: str) -> None:
        var = self.names.of(s.loop_var)
        if s.kind == ForKind.VECTORIZED:
            self.lines += ["#ifdef __GNUC__", "#pragma GCC ivdep", "#endif"]
        self.block(f"for ({c_type(s.loop_var.dtype)} {var} = {self._outer(low)}; {var} < {high}; ++{var})", s.body)
        self.put("}")

    def _launch(self, s: For) -> None:
        """The iterations as the tasks of a parallel launch; what the body uses goes through a struct."""
        captured = free_vars(s)
        name = f"{self.name}_parallel_{self.source.launches}"
        self.source.launches += 1
        task = FunctionPrinter(self.source, self.name, self.uses, self.alignments, self.restrict)
        task.in_task = True
        fields = []
        for parameter in ("task_id", "penv", "cdata"):
            task.names.fresh(parameter)
        for i, var in enumerate(captured):
            fields.append(f"  {_parameter_type(var.dtype)} f{i};")
            source = f"((const struct {name}_closure*)cdata)->f{i}"
            task.put(f"{task._declared(var)} = {task._converted(var, source)};")
        task.begin_statement(s.min, s.extent)
        low, extent = task.value(s.min), task.value(s.extent)
        kind = c_type(s.loop_var.dtype)
        count, part = task.names.fresh("extent"), task.names.fresh("part")
        first, last = task.names.fresh("first"), task.names.fresh("last")
        task.put(f"const {kind} {count} = {self._outer(extent)};")
        task.put(f"const {kind} {part} = ({count} + penv->num_task - 1) / penv->num_task;")
        task.put(f"const {kind} {first} = ({kind})task_id * {part};")
        task.put(f"const {kind} {last} = {first} + {part} < {count} ? {first} + {part} : {count};")
        task._loop(s, first if low == "0" else f"{low} + {first}", last if low == "0" else f"{low} + {last}")
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


FunctionPrinter._methods = dict(ExpressionPrinter._methods)
FunctionPrinter._statements = {
    SeqStmt: FunctionPrinter._seq,
    LetStmt: FunctionPrinter._let_stmt,
    Store: FunctionPrinter._store,
    Allocate: FunctionPrinter._allocate,
    IfThenElse: FunctionPrinter._if,
    While: FunctionPrinter._while,
    AssertStmt: FunctionPrinter._assert,
    Evaluate: FunctionPrinter._evaluate,
    AttrStmt: FunctionPrinter._attr,
    For: FunctionPrinter._for,
}


def _parameter_type(dtype: str) -> str:
    return c_type(dtype)


def print_function(func: PrimFunc, source: Source) -> str:
    """Add ``func`` (after MakePackedAPI, LowerTVMBuiltin and LowerIntrin) to the source; gives its name."""
    symbol = func.attrs.get("global_symbol")
    if symbol is None:
        raise TilewrightError("a function to build needs the attribute global_symbol: its exported name")
    name = str(symbol)
    if not name.isidentifier() or name in KEYWORDS:
        raise TilewrightError(f"the function name {name!r} cannot be used in C; choose another")
    drop = _DropAlignments()
    body = scalarize(drop.visit_stmt(func.body))
    uses = _Uses()
    uses.visit_stmt(body)
    restrict = bool(func.attrs.get("tir.noalias", False))
    printer = FunctionPrinter(source, name, uses, drop.found, restrict)
    for var, (_, parameter) in zip(func.params, _PARAMETERS, strict=True):
        printer.names._of[var] = parameter
    printer.statement(body)
    params = ", ".join(f"{kind} {parameter}" for kind, parameter in _PARAMETERS)
    unused = [p for v, (_, p) in zip(func.params, _PARAMETERS, strict=True) if v not in uses.used]
    head = [f"  (void){p};" for p in unused]
    lines = "\n".join([*head, *printer.lines])
    declaration = f"int32_t {name}({params})"
    source.declarations[name] = f"TVM_DLL {declaration};"
    source.functions.append(f"TVM_DLL {declaration} {{\n{lines}\n}}\n")
    return name
