"""Code shared by the kernels of a module: argument checks, runtime pointers, the entry name, needed features.

Each kernel is its own object file and only describes its arguments, as constants; the code that checks them against
the description and words the message (``argument_check.py``) is in one more object. So checks cost a kernel next to no
code and no compile time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.target.codegen.common.argument_check import CHECK, REPORT_INDEX, REPORT_SHAPE
from tilewright.target.codegen.common.host import Argument
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.builder import Unit
from tilewright.target.features import CpuFeatures, operating_system

CHECK_FUNCTION = "__tilewright_check_arguments"
SHARED_FUNCTIONS = {
    CHECK: CHECK_FUNCTION, REPORT_INDEX: "__tilewright_report_index", REPORT_SHAPE: "__tilewright_report_shape",
}  # fmt: skip
"""Symbols of what kernels call, by the names in ``argument_check.py``."""
ARGUMENT = "{ ptr, ptr, i32, i32, i32, i32, i32 }"


def argument_check(unit: Unit, function: str, wanted: Sequence[Argument]) -> str:
    """Return the call, up to its arguments, that checks them; their description is a constant of the unit."""
    rows = []
    for i, argument in enumerate(wanted):
        sizes = "null"
        if argument.dims:
            sizes = f'@"{unit.name}.dims.{i}"'
            row = ", ".join(f"i64 {d}" for d in argument.dims)
            unit.globals[sizes] = f"{sizes} = private unnamed_addr constant [{len(argument.dims)} x i64] [{row}]"
        numbers = (
            len(argument.dims), argument.packed_dtype, argument.device_type, argument.alignment, argument.flags
        )  # fmt: skip
        fields = ", ".join(f"i32 {n}" for n in numbers)
        rows.append(f"{ARGUMENT} {{ ptr {unit.string(argument.name)}, ptr {sizes}, {fields} }}")
    table = f'@"{unit.name}.arguments"'
    unit.globals[table] = f"{table} = private unnamed_addr constant [{len(rows)} x {ARGUMENT}] [{', '.join(rows)}]"
    unit.context["TVMAPISetLastError"] = None
    unit.declarations[CHECK_FUNCTION] = f"declare hidden i32 @{CHECK_FUNCTION}(ptr, ptr, i32, ptr, ptr, i32)"
    return f"call i32 @{CHECK_FUNCTION}(ptr {unit.string(function)}, ptr {table}, i32 {len(rows)}"


_REPORTS = {REPORT_INDEX: "ptr, i64, i64, i64", REPORT_SHAPE: "ptr, ptr, i32, ptr, ptr, i32"}


def report(unit: Unit, name: str) -> str:
    """The symbol of a function that words a message, declared in the unit."""
    unit.context["TVMAPISetLastError"] = None
    symbol = SHARED_FUNCTIONS[name]
    unit.declarations[symbol] = f"declare hidden i32 @{symbol}({_REPORTS[name]})"
    return symbol


def weak_linkage(features: CpuFeatures) -> str:
    """Return the linkage of what every module brings: any one of them stays, where a system's linkers can choose."""
    return "" if operating_system(features.triple) == "windows" else "weak "


def names_ir(features: CpuFeatures, entry: str, context: Iterable[str], linked: bool = False) -> str:
    """IR of a module's own names: pointers that the loader fills, ``__tvm_main__``, the needed features.

    ``entry`` is the function that ``__tvm_main__`` names ("" for none); ``context`` the runtime's functions that the
    kernels call through pointers; ``linked`` says that the pointers begin with the functions' addresses, for code that
    is linked with the runtime.
    """
    lines, weak = [f'target triple = "{features.triple}"'], weak_linkage(features)
    for name in context:
        symbol, value = f"__{name}", "null"
        if name.startswith("__"):
            symbol = name
        elif linked:
            lines.append(f"@{name} = external global i8")
            value = f"@{name}"
        lines.append(f"@{symbol} = {weak}global ptr {value}, align 8")
    constants = {"__tilewright_cpu_features": ",".join(features.names)}
    if entry:
        constants["__tvm_main__"] = entry
    for name, text in constants.items():
        size, body = ty.string_constant(text)
        lines.append(f"@{name} = {weak}constant [{size} x i8] {body}, align 1")
    return "\n".join(lines) + "\n"


def registering_ir(features: CpuFeatures, symbols: Iterable[str]) -> str:
    """IR that registers symbols with the runtime's system library when the program that they are linked into starts."""
    record = "{ i32, ptr, ptr }"
    entry = f"@llvm.global_ctors = appending global [1 x {record}] [{record} {{ i32 65535, ptr @r, ptr null }}]"
    lines = [f'target triple = "{features.triple}"', entry, "declare i32 @TVMBackendRegisterSystemLibSymbol(ptr, ptr)"]
    calls = []
    for i, symbol in enumerate(symbols):
        size, body = ty.string_constant(symbol)
        lines.append(f'@"{symbol}" = external global i8')
        lines.append(f"@.name.{i} = private constant [{size} x i8] {body}")
        calls.append(f'  %r{i} = call i32 @TVMBackendRegisterSystemLibSymbol(ptr @.name.{i}, ptr @"{symbol}")')
    body_text = "\n".join(calls)
    lines.append(f"define internal void @r() {{\n{body_text}\n  ret void\n}}")
    return "\n".join(lines) + "\n"


def refusing_ir(host: CpuFeatures, names: Iterable[str], message: str) -> str:
    """IR of functions that report ``message`` after their name, and fail."""
    lines = [f'target triple = "{host.triple}"', "@__TVMAPISetLastError = weak global ptr null, align 8"]
    for name in names:
        size, body = ty.string_constant(f"{name} {message}")
        lines.append(f'@"{name}.why" = private constant [{size} x i8] {body}')
        lines.append(f'define i32 @"{name}"(ptr %a, ptr %b, i32 %c, ptr %d, ptr %e, ptr %f) {{')
        lines.append("  %set = load ptr, ptr @__TVMAPISetLastError")
        lines.append(f'  call void %set(ptr @"{name}.why")\n  ret i32 -1\n}}')
    return "\n".join(lines) + "\n"
