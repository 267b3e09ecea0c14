"""MakeUnpackedAPI: give a function the plain C signature, of pointers to data and scalars.

Before::

    primfn(A_1: handle, n: int32)  buffer_map {A_1: A[16]}   body

After::

    primfn(arg0: handle, arg1: int32) -> int32
      attr "default" device_id = 0
      attr "default" device_type = 1
      let n = arg1, A = arg0
      attr A storage_alignment = 4  body
      tir.ret(0)

Nothing is checked: a caller that the compiler wrote, such as the main function of an ahead-of-time program, passes
what the function expects. Shapes must be known, since no argument tells them. Pointers are aligned to their elements,
no further: some are the user's.
"""

from __future__ import annotations

import functools

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.ir.expr import CallingConv
from tilewright.ir.function_attributes import DEVICE_TYPE, GLOBAL_SYMBOL, TARGET
from tilewright.ir.memory import Buffer
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import EQ
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.ir.type import PrimType
from tilewright.tir import op as tir_op
from tilewright.tir.expr import IntImm, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import CALLING_CONV
from tilewright.tir.stmt import AssertStmt, AttrStmt, Evaluate, LetStmt, Stmt, seq
from tilewright.tir.transform.make_packed_api import CPU


def make_unpacked_api(func: PrimFunc) -> PrimFunc:
    """Give ``func`` the plain C signature; one that has a signature of its own is unchanged.

    Raises
    ------
    TilewrightError : it lacks ``global_symbol`` or ``target``
    UnsupportedError : a buffer's shape is not known
    """
    if CALLING_CONV.get(func):
        return func
    name = GLOBAL_SYMBOL.get(func)
    if name is None:
        raise TilewrightError("MakeUnpackedAPI: Expect PrimFunc to have the global_symbol attribute, its exported name")
    target = TARGET.get(func)
    if target is None:
        raise TilewrightError(f"MakeUnpackedAPI: Require the target attribute of {name}")
    args = tuple(Var(f"arg{i}", param.dtype) for i, param in enumerate(func.params))
    plain = [(p, a) for p, a in zip(func.params, args, strict=True) if p not in func.buffer_map]
    buffers = [(func.buffer_map[p], a) for p, a in zip(func.params, args, strict=True) if p in func.buffer_map]
    for buffer, _ in buffers:
        _check_shape(str(name), buffer)
    body = _bound(seq(func.body, Evaluate(tir_op.ret(ops.const(0, "int32")))), plain, buffers)
    if buffers:
        device = DEVICE_TYPE.get(func, getattr(target, "device_type", CPU))
        body = AttrStmt(StringImm("default"), "device_type", ops.const(int(device), "int32"), body)
        body = AttrStmt(StringImm("default"), "device_id", ops.const(0, "int32"), body)
    return PrimFunc(args, body, PrimType("int32"), {}, {**func.attrs, CALLING_CONV.key: int(CallingConv.UNPACKED)})


def _bound(body: Stmt, plain: list[tuple[Var, Var]], buffers: list[tuple[Buffer, Var]]) -> Stmt:
    """Return ``body`` with the definitions of the function's variables; a pointer that comes twice is compared."""
    defined: dict[Var, Var] = {}
    repeated = []
    for var, arg in (*plain, *((buffer.data, arg) for buffer, arg in buffers)):
        if var in defined:
            repeated.append((var, arg))
        else:
            defined[var] = arg
    for buffer, _ in reversed(buffers):
        alignment = dt.nbytes(buffer.dtype) * dt.lanes(buffer.dtype)
        body = AttrStmt(buffer.data, "storage_alignment", ops.const(alignment, "int32"), body)
    for var, arg in reversed(repeated):
        body = AssertStmt(EQ(var, arg), f"{var.name} and {arg.name} are one buffer", body)
    for var, arg in reversed(defined.items()):
        body = LetStmt(var, arg, body)
    return body


def _check_shape(name: str, buffer: Buffer) -> None:
    if not all(isinstance(d, IntImm) for d in buffer.shape):
        shape = ", ".join(map(str, buffer.shape))
        raise UnsupportedError(
            f"{name}: argument {buffer.name} has the shape ({shape}), and functions of the unpacked interface "
            "(-unpacked-api) take pointers alone: give numbers, or use the packed interface"
        )


def MakeUnpackedAPI() -> Pass:
    """The pass of :func:`make_unpacked_api`."""

    @functools.partial(function_pass, opt_level=0, name="tir.MakeUnpackedAPI", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return make_unpacked_api(func)

    made: Pass = run
    return made
