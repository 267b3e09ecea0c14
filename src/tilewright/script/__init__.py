"""TVMScript: functions of loops written down as Python functions, which are read, never run.

parser.py   from a function's source text to a ``PrimFunc``      tir.py   what may be said in it (``T.serial``, ...)

>>> from tilewright.script import tir as T
>>> @T.prim_func
... def double(a: T.handle, b: T.handle) -> None:
...     A = T.match_buffer(a, [16], dtype="float32")
...     B = T.match_buffer(b, [16], dtype="float32")
...     for i in T.serial(0, 16):
...         B[i] = A[i] * 2.0
"""

from __future__ import annotations

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import BaseFunc, GlobalVar
from tilewright.ir.module import IRModule
from tilewright.script import tir
from tilewright.tir.function import PrimFunc


def ir_module(input_module: type) -> IRModule:
    """The module of the functions in a class, by their names: a decorator.

    Raises TilewrightError when the class has none that is decorated with ``T.prim_func``.
    """
    functions: dict[GlobalVar, BaseFunc] = {
        GlobalVar(name): value for name, value in vars(input_module).items() if isinstance(value, PrimFunc)
    }
    if not functions:
        raise TilewrightError(f"the class {input_module.__name__} has no function that is decorated with T.prim_func")
    return IRModule(functions)


__all__ = ["ir_module", "tir"]
