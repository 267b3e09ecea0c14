"""``tvm.target.datatype``: custom element types, computed by functions of a user's library.

>>> datatype.register("posit", 131)
>>> datatype.register_op(datatype.create_lower_func({(32, 32): "FloatToPosit"}), "Cast", "llvm", "float", "posit")
>>> datatype.register_op(datatype.create_lower_func({32: "PositAdd"}), "Add", "llvm", "posit")
>>> te.compute((n,), lambda i: a[i].astype("custom[posit]32") + b[i])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir.errors import TilewrightError
from tilewright.ir.prim_expr import Call, Cast, FloatImm, PrimExpr
from tilewright.runtime.dtype import CUSTOM_TYPES, custom_type_code, register_custom_type
from tilewright.tir.op import call_pure_extern
from tilewright.tir.transform.lower_custom_datatypes import LOWERING, SMALLEST, as_bits


def register(type_name: str, type_code: int) -> None:
    """Make ``custom[type_name]bits`` a data type.

    Args:
        type_name: its name.
        type_code: its number in arrays (DLDataType's code): 129 to 255, and no other type's.

    Raises:
        TVMError: the code is taken, or no such number.
    """
    register_custom_type(type_name, type_code)


def get_type_name(type_code: int) -> str:
    """Return the name of the type with a code; raises ValueError if there is none."""
    for name, code in CUSTOM_TYPES.items():
        if code == type_code:
            return name
    raise ValueError(f"no data type is registered with the code {type_code}")


def get_type_code(type_name: str) -> int:
    """Return the code of a type; raises ValueError if it is not registered."""
    return custom_type_code(type_name)


def get_type_registered(type_code: int) -> bool:
    """Return whether a type has the code."""
    return type_code in CUSTOM_TYPES.values()


def register_op(
    lower_func: Callable[[Any], PrimExpr],
    op_name: str,
    target: str,
    src_type_name: str,
    dest_type_name: str | None = None,
    intrinsic_name: str | None = None,
) -> None:
    """Register the lowering of an operation on a custom type.

    Args:
        lower_func: from the operation, whose operands are unsigned integers already, to what computes it.
        op_name: ``Cast``, ``FloatImm``, ``Call``, or the class of a binary operation such as ``Add`` and ``LT``.
        target: the kind of target.
        src_type_name: the type, or what a Cast converts from: the name without ``custom[]``, or ``float``, ``int``.
        dest_type_name: what a Cast converts to.
        intrinsic_name: the intrinsic of a Call, such as ``tir.exp``.
    """
    if op_name == "Cast" and dest_type_name is None:
        raise TilewrightError("register_op: a Cast needs dest_type_name")
    other = dest_type_name if op_name == "Cast" else intrinsic_name if op_name == "Call" else None
    LOWERING[target, op_name, src_type_name, other or ""] = lower_func


def register_min_func(func: Callable[[int], PrimExpr], type_name: str) -> None:
    """Register the smallest value of a type, as a function of the number of bits."""
    SMALLEST[type_name] = func


def create_min_lower_func(extern_func_map: Mapping[int, str], type_name: str) -> Callable[[int], PrimExpr]:
    """Create a function for ``register_min_func`` that calls a library's function, chosen by the number of bits."""

    def smallest(num_bits: int) -> PrimExpr:
        if num_bits not in extern_func_map:
            raise TilewrightError(f"the smallest value of {type_name} with {num_bits} bits has no function")
        return call_pure_extern(f"custom[{type_name}]{num_bits}", extern_func_map[num_bits])

    return smallest


def create_lower_func(extern_func_map: Mapping[Any, str]) -> Callable[[Any], PrimExpr]:
    """Create a function for ``register_op`` that calls a library's function.

    Args:
        extern_func_map: the function by the number of bits; of a Cast by those before and after.
    """

    def lower(op: PrimExpr) -> PrimExpr:
        key: Any
        args: tuple[PrimExpr, ...]
        if isinstance(op, Cast):
            key, args = (dt.bits(op.value.dtype), dt.bits(op.dtype)), (op.value,)
        elif isinstance(op, FloatImm):
            key, args = dt.bits(op.dtype), (FloatImm("float32", op.value),)
        elif isinstance(op, Call):
            key, args = dt.bits(op.dtype), op.args
        else:
            key, args = dt.bits(op.a.dtype), (op.a, op.b)  # type: ignore[attr-defined]
        if key not in extern_func_map:
            raise TilewrightError(
                f"{type(op).__name__} of {key} bits has no function; there are {dict(extern_func_map)}"
            )
        return call_pure_extern(as_bits(op.dtype), extern_func_map[key], *args)

    return lower


def lower_ite(ite_op: Call) -> PrimExpr:
    """Lower ``tir.if_then_else`` (for ``register_op``) to a choice between the bits."""
    return Call(as_bits(ite_op.dtype), ite_op.op, ite_op.args)


def lower_call_pure_extern(op: Call) -> PrimExpr:
    """Lower ``tir.call_pure_extern`` (for ``register_op``) to a call whose result is bits."""
    return Call(as_bits(op.dtype), op.op, op.args)
