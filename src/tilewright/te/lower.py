"""``tvm.lower``: conversion of a schedule to a TIR function, and the passes that prepare it for code generation.

>>> mod = tvm.lower(s, [A, B, C], name="add", simple_mode=True)
>>> print(mod)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import GLOBAL_SYMBOL
from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Var
from tilewright.ir.transform import Pass, PassContext
from tilewright.te.operation import ExternOp
from tilewright.te.reads import warn_of_reads_outside
from tilewright.te.schedule import Schedule
from tilewright.te.schedule.lower import lower_schedule
from tilewright.te.tensor import Tensor
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import FROM_SCHEDULE, NOALIAS


def schedule_to_primfunc(
    sch: Schedule, args: Sequence[Any], name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> PrimFunc:
    """Convert a schedule to a function of its loops, before any pass.

    Parameters
    ----------
    sch : the schedule
    args : tensors, buffers and scalar variables, in the order of the function's parameters
    name : the function's name
    binds : buffers of tensors; other tensors of ``args`` get compact buffers, those with a variable in their shape
        buffers with symbolic strides
    """
    bound = dict(binds or {})
    compact = any(isinstance(stage.op, ExternOp) for stage in sch.stages)
    params: list[Var] = []
    buffer_map: dict[Var, Buffer] = {}
    for position, arg in enumerate(args):
        if isinstance(arg, Var):
            params.append(arg)
            continue
        if isinstance(arg, Tensor):
            if arg not in bound:
                bound[arg] = argument_buffer(arg, compact)
            buffer = bound[arg]
        elif isinstance(arg, Buffer):
            buffer = arg
        else:
            raise TilewrightError(
                f"argument {position} of {name} is a {type(arg).__name__}; arguments are tensors, buffers and variables"
            )
        param = Var(buffer.name, "handle")
        params.append(param)
        buffer_map[param] = buffer
    body = lower_schedule(sch, bound)
    attrs: dict[str, Any] = {FROM_SCHEDULE.key: True, GLOBAL_SYMBOL.key: name}
    if PassContext.current().option("tir.noalias"):
        attrs[NOALIAS.key] = True
    return PrimFunc(params, body, None, buffer_map, attrs)


def argument_buffer(tensor: Tensor, compact: bool) -> Buffer:
    """Create the buffer of a tensor that is a function's argument."""
    if compact or not any(isinstance(d, Var) for d in tensor.shape):
        return decl_buffer(tensor.shape, tensor.dtype, tensor.name)
    return decl_buffer(tensor.shape, tensor.dtype, tensor.name, buffer_type="auto_broadcast")


def lower(
    inp: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Buffer] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower to TIR that code generators accept.

    Parameters
    ----------
    inp : a schedule (with ``args``), a function, or a module of functions
    args : tensors, buffers and scalar variables, in the order of the function's parameters
    name : the function's name
    binds : buffers of tensors
    simple_mode : leave loops with boundary tests in one piece, which reads better

    Returns
    -------
    The module of the lowered functions.

    Warns
    -----
    RuntimeWarning : a computation of the schedule surely reads outside of a tensor
    """
    if isinstance(inp, Schedule):
        warn_of_reads_outside(inp)
    return lowered(inp, args, name, binds, simple_mode)


def lowered(
    inp: Schedule | PrimFunc | IRModule,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Buffer] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower as ``lower`` does, of computations that Tilewright wrote: what they read is not looked at."""
    mod = _as_module(inp, args, name, binds)
    for step in lower_passes(simple_mode):
        mod = step(mod)
    return mod


def _as_module(inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Tensor, Buffer] | None) -> IRModule:
    if isinstance(inp, IRModule):
        return inp
    if isinstance(inp, Schedule):
        if args is None:
            raise TilewrightError("lower of a schedule needs args: the tensors that are the function's parameters")
        func = schedule_to_primfunc(inp, args, name, binds)
    elif isinstance(inp, PrimFunc):
        func = inp if GLOBAL_SYMBOL.has(inp) else inp.with_attr({GLOBAL_SYMBOL.key: name, NOALIAS.key: True})
    else:
        raise TilewrightError(f"lower takes a Schedule, PrimFunc or IRModule, got {type(inp).__name__}")
    mod = IRModule()
    mod[GLOBAL_SYMBOL.of(func)] = func
    return mod


def lower_passes(simple_mode: bool = False) -> list[Pass]:
    """Return the passes of ``lower``, in order, for the PassContext in force."""
    from tilewright.tir import transform as tir

    ctx = PassContext.current()
    extra: list[list[Pass]] = [[], [], [], []]
    for phase, step in ctx.option("tir.add_lower_pass"):
        extra[min(int(phase), 3)].append(step)
    return [
        *extra[0],
        tir.UnifyThreadBinding(),
        *([tir.InstrumentBoundCheckers()] if ctx.option("tir.instrument_bound_checkers") else []),
        tir.InjectPrefetch(),
        tir.StorageFlatten(64),
        tir.BF16Legalize(),
        tir.SmallTypes(),
        tir.NarrowDataType(32),
        tir.Simplify(),
        *extra[1],
        *([] if simple_mode else [tir.LoopPartition(), tir.SpecializeTails()]),
        tir.VectorizeLoop(not ctx.option("tir.disable_vectorize")),
        tir.InjectVirtualThread(),
        tir.InjectDoubleBuffer(),
        *([] if ctx.option("tir.disable_storage_rewrite") else [tir.StorageRewrite()]),
        tir.UnrollLoop(),
        *extra[2],
        tir.Simplify(),
        tir.RemoveNoOp(),
        tir.RewriteUnsafeSelect(),
        tir.HoistIfThenElse(),
        *extra[3],
        *([tir.SkipAssert()] if ctx.option("tir.disable_assert") else []),
    ]
