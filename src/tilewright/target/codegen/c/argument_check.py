"""The check of arguments in C, for the head of every source."""

from __future__ import annotations

from functools import cache

from tilewright.ir import dtype as dt
from tilewright.target.codegen.c.function import FunctionPrinter, Source
from tilewright.target.codegen.common import argument_check as checks
from tilewright.target.codegen.common.emitter import exported_name
from tilewright.target.codegen.source.statements import prepare
from tilewright.tir.expr import Call, Cast, StringImm
from tilewright.tir.function import PrimFunc

_TYPES = {
    checks.CHECK: ("const char*", "const TwArgument*", "int32_t", "const TVMValue*", "const int*", "int32_t"),
    checks.REPORT_INDEX: ("const char*", "int64_t", "int64_t", "int64_t"),
    checks.REPORT_SHAPE: ("const char*", "const int64_t*", "int32_t", "const char*", "const int64_t*", "int32_t"),
}


class _CheckPrinter(FunctionPrinter):
    """Prints functions of the check, which read rows of the functions' tables."""

    def signature(self, func: PrimFunc) -> str:
        """Print a signature with untyped pointers."""
        name = exported_name(func)
        types = _TYPES.get(name) or [self.type_name(p.dtype) for p in func.params]
        params = [f"{kind} {self.names.of(p)}" for kind, p in zip(types, func.params, strict=True)]
        return f"{'TW_CHECK' if name in checks.HOT else 'TW_MESSAGE'} int32_t {name}({', '.join(params)})"

    def finish(self, head: str) -> None:
        """Add the function to the source."""
        self.source.functions.append("\n".join([f"{head} {{", *self.lines, "}"]))

    def declare_extern(self, name: str, result: str, args: list[str]) -> None:
        """Declare nothing: the functions follow one another."""

    def visit_cast(self, e: Cast) -> str:
        """A conversion; of a pointer, to a number of its size first."""
        value = self.value(e.value)
        if dt.parse(e.value.dtype).kind == "handle":
            value = f"(intptr_t){value}"
        return self.cast(value, e.value.dtype, e.dtype)

    def _call_tvm_struct_get(self, e: Call) -> str:
        kind = int(e.args[2])  # type: ignore[call-overload]
        struct, row = self.value(e.args[0]), self.value(e.args[1])
        if kind == checks.TENSOR_DTYPE:
            dtype = f"((DLTensor*){struct})[{row}].dtype"
            return f"((int32_t)({dtype}.code | (uint32_t){dtype}.bits << 8 | (uint32_t){dtype}.lanes << 16))"
        if kind in checks.FIELDS:
            text = f"((const TwArgument*){struct})[{row}].{checks.FIELDS[kind]}"
            return f"((void*){text})" if e.dtype == "handle" else text
        return super()._call_tvm_struct_get(e)

    def _call_call_extern(self, e: Call) -> str:
        assert isinstance(e.args[0], StringImm)
        name, args = e.args[0].value, [f"{'(void*)' * (a.dtype == 'handle')}{self.value(a)}" for a in e.args[1:]]
        if name == "TVMAPISetLastError":
            return f"TVMAPISetLastError((const char*){args[0]})"
        return f"{name}({', '.join(args)})"


@cache
def check_source() -> str:
    """The text of the functions."""
    source = Source()
    for func in checks.functions():
        func, uses, alignments = prepare(func)
        _CheckPrinter(source, exported_name(func), uses, alignments, False).function(func)
    return "\n\n".join(source.functions) + "\n"
