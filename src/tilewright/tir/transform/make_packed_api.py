"""MakePackedAPI: give a function the packed C signature.

Before::

    primfn(A_1: handle, n: int32)  buffer_map {A_1: A[n]}   body

After::

    primfn(args, arg_type_ids, num_args, out_ret_value, out_ret_tcode, resource_handle) -> int32
      tir.tvm_check_arguments(args, arg_type_ids, num_args, "f", tir.tvm_argument("A", "float32", ...), ...)
      let A_1 = tir.tvm_struct_get(args, 0, 12)
      let A = tir.tvm_struct_get(A_1, 0, 1)           the data
      let n = int32(shape of A_1)[0]
      tir.tvm_call_packed("__tvm_set_device", device type, device id)    where the device is none of the host's
      attr compute_scope "f_compute_"  body
      tir.ret(0)

``tvm_check_arguments`` compares every argument with its description: number of arguments, type codes, null, shape
(a symbol has one value wherever it stands), dtype, device, strides, byte offset, alignment. When one does not fit it
reports that and the function returns -1 before it touches memory. Code generators expand the call.
"""

from __future__ import annotations

import functools

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.ir.errors import TilewrightError
from tilewright.ir.function_attributes import DEVICE_TYPE, GLOBAL_SYMBOL, TARGET
from tilewright.ir.memory import Buffer
from tilewright.ir.module import IRModule
from tilewright.ir.op import register_intrin
from tilewright.ir.transform import Pass, PassContext, function_pass
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import op as tir_op
from tilewright.tir.expr import Call, IntImm, Load, PrimExpr, StringImm, Var
from tilewright.tir.function import PrimFunc
from tilewright.tir.function_attributes import CALLING_CONV
from tilewright.tir.stmt import AssertStmt, AttrStmt, Evaluate, LetStmt, Stmt, Store, seq
from tilewright.tir.visitor import StmtExprMutator

register_intrin("tir.tvm_check_arguments", "opaque")
register_intrin("tir.tvm_argument", "pure")

ARRAY_DATA, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_BYTE_OFFSET, ARRAY_DEVICE_ID, VALUE_CONTENT = 1, 2, 3, 8, 9, 12
"""Fields of ``tvm_struct_get`` (TVMStructFieldKind)."""

IS_TENSOR, ANY_STRIDES, ANY_OFFSET = 1, 2, 4
"""Flags of ``tvm_argument``. Its arguments are name, dtype, device type, alignment, flags, dimensions; a dimension is a
size, -1 for any, or -2 - k for the k-th symbol."""

CPU = 1
"""DLPack's device type of the host, which needs not be made the current device."""

_MAX_SYMBOLS = 32
_MAX_ALIGNMENT = 64  # what the runtime gives its arrays


class _Binder:
    """Collects the unpacking of arguments: descriptions, definitions, and further assertions."""

    def __init__(self, func: PrimFunc, name: str, device_type: int) -> None:
        self.func, self.name, self.device_type = func, name, device_type
        self.args = Var("args", "handle")
        self.symbols: dict[Var, int] = {}
        self.descriptions: list[PrimExpr] = []
        self.definitions: list[tuple[Var, PrimExpr]] = []
        self.defined: set[Var] = set()
        self.aligned: list[tuple[Var, int]] = []
        self.strided: list[tuple[Var, Buffer]] = []
        self.assertions: list[tuple[PrimExpr, str]] = []
        self.device_id: PrimExpr = ops.const(0, "int32")
        used_in_shapes = [d for b in func.buffer_map.values() for d in b.shape if isinstance(d, Var)]
        for var in dict.fromkeys(used_in_shapes):
            if len(self.symbols) < _MAX_SYMBOLS:
                self.symbols[var] = len(self.symbols)

    def define(self, var: Var, value: PrimExpr) -> None:
        """Define ``var`` at the head of the function."""
        self.definitions.append((var, value))
        self.defined.add(var)

    def bind(self, index: int, param: Var) -> None:
        """Describe and unpack argument ``index``."""
        buffer = self.func.buffer_map.get(param)
        content: PrimExpr = tir_op.tvm_struct_get(self.args, index, VALUE_CONTENT, param.dtype)
        if buffer is not None:
            self.define(param, content)
            self._bind_buffer(param, buffer)
            return
        is_symbol = param in self.symbols
        dims = [-2 - self.symbols[param]] if is_symbol else []
        self._describe(param.name, param.dtype, 0, 0, dims)
        if is_symbol:
            content = ops.maximum(content, ops.const(0, param.dtype))
        self.define(param, content)

    def _describe(self, name: str, dtype: str, alignment: int, flags: int, dims: list[int]) -> None:
        numbers = [self.device_type, alignment, flags]
        args: list[PrimExpr] = [StringImm(name), StringImm(dtype), *(IntImm("int32", n) for n in numbers)]
        args += [IntImm("int64", d) for d in dims]
        self.descriptions.append(Call("handle", "tir.tvm_argument", args))

    def _bind_buffer(self, param: Var, buffer: Buffer) -> None:
        flags, dims = IS_TENSOR, []
        for d in buffer.shape:
            if isinstance(d, IntImm):
                dims.append(d.value)
            else:
                dims.append(-2 - self.symbols[d] if isinstance(d, Var) and d in self.symbols else -1)
        if buffer.strides:
            flags |= ANY_STRIDES
        if not ops.is_const_int(buffer.elem_offset, 0):
            flags |= ANY_OFFSET
        alignment = max(min(buffer.data_alignment, _MAX_ALIGNMENT), 1)
        self._describe(buffer.name, buffer.dtype, alignment, flags, dims)
        self.define(buffer.data, tir_op.tvm_struct_get(param, 0, ARRAY_DATA, "handle"))
        self.aligned.append((buffer.data, alignment))
        if isinstance(self.device_id, IntImm):
            self.device_id = tir_op.tvm_struct_get(param, 0, ARRAY_DEVICE_ID, "int32")
        self._bind_shape(param, buffer)
        if buffer.strides:
            self.strided.append((param, buffer))
        if not ops.is_const_int(buffer.elem_offset, 0):
            self._bind_offset(param, buffer)

    def _pointer(self, param: Var, buffer: Buffer, field: int, what: str) -> Var:
        pointer = Var(f"{buffer.name}.{what}", PointerType(PrimType("int64")))
        self.define(pointer, tir_op.tvm_struct_get(param, 0, field, "handle"))
        return pointer

    def _bind_shape(self, param: Var, buffer: Buffer) -> None:
        unknown = [i for i, d in enumerate(buffer.shape) if not isinstance(d, IntImm) and d not in self.defined]
        if not unknown:
            return
        shape = self._pointer(param, buffer, ARRAY_SHAPE, "shape")
        for i in unknown:
            dim = buffer.shape[i]
            found = ops.cast(dim.dtype, Load("int64", shape, ops.const(i, "int32")))
            if dim in self.defined:  # by an axis before: a square
                continue
            if isinstance(dim, Var):
                # the check has seen that it is not negative; the maximum tells the simplification of indices so
                self.define(dim, ops.maximum(found, ops.const(0, dim.dtype)))
            else:
                self._expect(buffer, f"shape[{i}]", dim, found)

    def finish(self) -> None:
        """Define the variables that need the dimensions of all arguments."""
        for param, buffer in self.strided:
            self._bind_strides(param, buffer)

    def _bind_strides(self, param: Var, buffer: Buffer) -> None:
        """Bind strides: a tensor without strides is compact; with ``auto_broadcast``, dimensions of size 1 have stride
        0.
        """
        strides = self._pointer(param, buffer, ARRAY_STRIDES, "strides")
        compact: PrimExpr = ops.const(1, "int32")
        for i in reversed(range(len(buffer.strides))):
            stride, dim = buffer.strides[i], buffer.shape[i]
            given = ops.cast(stride.dtype, Load("int64", strides, ops.const(i, "int32")))
            found = tir_op.if_then_else(tir_op.isnullptr(strides), ops.cast(stride.dtype, compact), given)
            if buffer.buffer_type == "auto_broadcast":
                found = tir_op.if_then_else(ops.equal(dim, ops.const(1, dim.dtype)), ops.const(0, stride.dtype), found)
            if isinstance(stride, Var) and stride not in self.defined:
                self.define(stride, found)
            else:
                self._expect(buffer, f"strides[{i}]", stride, found)
            compact = ops.mul(compact, dim)

    def _bind_offset(self, param: Var, buffer: Buffer) -> None:
        offset = buffer.elem_offset
        size = ops.const(dt.nbytes(buffer.dtype) * dt.lanes(buffer.dtype), "int64")
        taken = tir_op.tvm_struct_get(param, 0, ARRAY_BYTE_OFFSET, "int64")
        found = ops.cast(offset.dtype, ops.truncdiv(taken, size))
        if isinstance(offset, Var) and offset not in self.defined:
            self.define(offset, found)
        else:
            self._expect(buffer, "elem_offset", offset, found)
        if buffer.offset_factor > 1 and isinstance(offset, Var):
            factor = ops.const(buffer.offset_factor, offset.dtype)
            whole = ops.equal(ops.truncmod(offset, factor), ops.const(0, offset.dtype))
            self.assertions.append(
                (
                    whole,
                    f"{self.name}: argument {buffer.name}: elem_offset must be a multiple of {buffer.offset_factor}",
                )
            )

    def _expect(self, buffer: Buffer, what: str, expected: PrimExpr, found: PrimExpr) -> None:
        message = f"{self.name}: argument {buffer.name}: expected {what} to be {expected}"
        self.assertions.append((ops.equal(expected, found), message))


class _ReturnValue(StmtExprMutator):
    """Replaces ``tir.ret(value)`` by writing the result and returning 0."""

    def __init__(self, value: Var, code: Var) -> None:
        super().__init__()
        self.value, self.code = value, code

    def visit_evaluate(self, s: Evaluate) -> Stmt:
        """Expand ``tir.ret``."""
        call = s.value
        if not (isinstance(call, Call) and call.op.name == "tir.ret"):
            return s
        result = call.args[0]
        code = type_code(result)
        return seq(
            Evaluate(tir_op.tvm_struct_set(self.value, 0, VALUE_CONTENT, result)),
            Store(self.code, ops.const(code, "int32"), ops.const(0, "int32")),
            Evaluate(tir_op.ret(ops.const(0, "int32"))),
        )


def type_code(value: PrimExpr) -> int:
    """The C API's type code of a value passed to, or returned from, a packed function."""
    if isinstance(value, StringImm):
        return 11
    if isinstance(value, Call) and value.op.name == "tir.tvm_stack_make_array":
        return 7
    kind = dt.parse(value.dtype).kind
    return {"int": 0, "uint": 0, "bool": 0, "float": 2, "bfloat": 2}.get(kind, 3)


def make_packed_api(func: PrimFunc, device_type: int = 1) -> PrimFunc:
    """Give ``func`` the packed C signature; one that has it is unchanged."""
    if CALLING_CONV.get(func) == 1:
        return func
    symbol = GLOBAL_SYMBOL.get(func)
    if symbol is None:
        raise TilewrightError("MakePackedAPI needs the attribute global_symbol: the function's exported name")
    name = str(symbol)
    target = TARGET.get(func)
    binder = _Binder(func, name, int(DEVICE_TYPE.get(func, getattr(target, "device_type", device_type))))
    for index, param in enumerate(func.params):
        binder.bind(index, param)
    binder.finish()
    pointer = PointerType(PrimType("int32"))
    codes, num_args = Var("arg_type_ids", pointer), Var("num_args", "int32")
    out_value, out_code = Var("out_ret_value", "handle"), Var("out_ret_tcode", pointer)
    check = Call(
        "int32", "tir.tvm_check_arguments", (binder.args, codes, num_args, StringImm(name), *binder.descriptions)
    )
    body = _ReturnValue(out_value, out_code).visit_stmt(func.body)
    body = AttrStmt(ops.const(0, "int32"), "compute_scope", StringImm(f"{name}_compute_"), body)
    device_id = Var("dev_id", "int32")
    if binder.device_type != CPU and not isinstance(binder.device_id, IntImm):
        body = seq(Evaluate(tir_op.call_packed("__tvm_set_device", binder.device_type, device_id)), body)
    body = AttrStmt(StringImm("default"), "device_type", ops.const(binder.device_type, "int32"), body)
    body = AttrStmt(StringImm("default"), "device_id", device_id, body)
    for condition, message in reversed(binder.assertions):
        body = AssertStmt(condition, message, body)
    body = LetStmt(device_id, binder.device_id, body)
    for var, alignment in reversed(binder.aligned):
        body = AttrStmt(var, "storage_alignment", ops.const(alignment, "int32"), body)
    for var, value in reversed(binder.definitions):
        body = LetStmt(var, value, body)
    body = seq(Evaluate(check), body, Evaluate(tir_op.ret(ops.const(0, "int32"))))
    params = (binder.args, codes, num_args, out_value, out_code, Var("resource_handle", "handle"))
    attrs = {**func.attrs, CALLING_CONV.key: 1}
    return PrimFunc(params, body, PrimType("int32"), {}, attrs)


def MakePackedAPI(num_unpacked_params: int = 0) -> Pass:
    """The pass of :func:`make_packed_api`. ``num_unpacked_params`` is accepted for TVM's sake."""

    @functools.partial(function_pass, opt_level=0, name="tir.MakePackedAPI", func_type=PrimFunc)
    def run(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return make_packed_api(func)

    made: Pass = run
    return made
