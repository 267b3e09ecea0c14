"""C99 that needs no runtime: functions of plain signatures, for the target ``c -runtime=c -unpacked-api``.

What such code lacks, and what takes its place:

==========================  =======================================================================================
a pool of threads           loops run in order
memory on request           the caller passes a buffer (``tir.transform.pool_allocations``)
the last error's text       a function returns -1; ``TW_REPORT_INDEX``, a macro of the program, gets the index
packed functions by name    nothing: they are refused
==========================  =======================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.ir.errors import UnsupportedError
from tilewright.ir.prim_expr import PrimExpr
from tilewright.target.codegen.c.function import Source, UnpackedPrinter, print_function
from tilewright.target.codegen.c.parts import part
from tilewright.target.codegen.common.host import PackedCall
from tilewright.target.codegen.source.names import string_literal
from tilewright.target.codegen.source.statements import Uses
from tilewright.target.target import Target
from tilewright.tir.expr import Call, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import IS_ENTRY

_REPORT = """\
/* The program may define it, to learn which index of an input is out of range; the run then ends with -1. */
#ifndef TW_REPORT_INDEX
#define TW_REPORT_INDEX(what, index, low, high) ((void)(index))
#endif
"""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MATH = re.compile(
    r"\b(tw_sigmoid|tw_normal_tail|INFINITY|NAN|isnan|isinf|isfinite|signbit"
    r"|(a?(sin|cos|tan)h?|atan2|exp2?|expm1|log(2|10|1p)?|sqrt|cbrt|pow|erfc?|tgamma|lgamma|fabs|fmod|fmin|fmax|fma"
    r"|floor|ceil|round|trunc|rint|nearbyint|copysign|ldexp|hypot|nextafter|l?lrint|l?lround)f?)\b"
)


class FreestandingPrinter(UnpackedPrinter):
    """Prints functions that call nothing of the runtime; where one is the entry, other files see that one alone."""

    def __init__(self, source: Source, name: str, uses: Uses, alignments: dict[Var, int], restrict: bool) -> None:
        super().__init__(source, name, uses, alignments, restrict)
        self.in_task = True  # loops run in order

    def signature(self, func: PrimFunc) -> str:
        """A function of pointers and scalars."""
        private = self.source.has_entry and not IS_ENTRY.on(func)
        return f"{'static ' if private else ''}{super().signature(func)}"

    def finish(self, head: str) -> None:
        """Declare the function, and add it to the source."""
        self.source.declarations[self.name] = f"{head};"
        self.source.functions.append("\n".join([f"{head} {{", *self.lines, "}\n"]))

    def check(self, condition: PrimExpr, message: str) -> None:
        """Leave unless the condition holds."""
        self.put(f"if (!{self.value(condition)}) {{  /* {message.replace('*/', '* /')} */")
        self._fail_block()

    def report_index(self, what: str, index: PrimExpr, low: PrimExpr, high: PrimExpr) -> None:
        """Tell the program, if it wants to know."""
        numbers = ", ".join(self.value(e) for e in (index, low, high))
        self.put(f"TW_REPORT_INDEX({string_literal(what)}, {numbers});")

    def report_shape(self, what: str, shape: Sequence[PrimExpr], why: str, like: Sequence[PrimExpr]) -> None:
        """Nothing: the function leaves next."""

    def find_function(self, name: str) -> str:
        """Refuse."""
        raise _needs_runtime(self.name, f"the packed function {name}")

    def call_symbol(self, call: PackedCall) -> str:
        """Refuse."""
        raise _needs_runtime(self.name, f"the packed function {call.name}")

    def _call_TVMBackendAllocWorkspace(self, e: Call) -> str:
        raise _needs_runtime(self.name, "memory of a size that is known when it runs")


def _needs_runtime(name: str, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{name} needs {what}, and code for -runtime=c -unpacked-api has no runtime behind it; leave one option out"
    )


def emit_freestanding(funcs: Sequence[PrimFunc], target: Target) -> tuple[str, list[str]]:
    """The C text of ``funcs``, which MakeUnpackedAPI and the passes after it have been through, and their names."""
    source = Source()
    source.has_entry = any(map(IS_ENTRY.on, funcs))
    names = [print_function(func, source, FreestandingPrinter) for func in funcs]
    text = "\n".join([*source.declarations.values(), "", *source.functions])
    math = bool(_MATH.search(_COMMENT.sub("", text)))
    parts = [f"/* tvm target: {str(target).replace('*/', '* /')} */"]
    parts += ["#include <stdint.h>\n#include <string.h>", *(["#include <math.h>"] if math else []), part("compiler.h")]
    parts += [part("scalars.h"), *([part("scalars_math.h")] if math else []), _REPORT, text]
    return "\n".join(parts), names
