"""Expressions under TVM's name ``tir.expr``; defined in ``ir.prim_expr``, ``ir.memory`` and ``ir.iter_var``."""

from tilewright.ir import container as container  # which tells tvm.runtime.convert how literals are made
from tilewright.ir.iter_var import CommReducer, IterVar, IterVarType, Range, Reduce
from tilewright.ir.memory import Buffer, BufferLoad, Load, ProducerLoad
from tilewright.ir.prim_expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Any,
    ArithExpr,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    ConstExpr,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    LogicalExpr,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
)  # fmt: skip

__all__ = [
    "EQ", "GE", "GT", "LE", "LT", "NE", "Add", "And", "Any", "ArithExpr", "BinaryExpr", "Broadcast", "Buffer",
    "BufferLoad", "Call", "Cast", "CommReducer", "CompareExpr", "ConstExpr", "Div", "FloatImm", "FloorDiv", "FloorMod",
    "IntImm", "IterVar", "IterVarType", "Let", "Load", "LogicalExpr", "Max", "Min", "Mod", "Mul", "Not", "Or",
    "PrimExpr", "ProducerLoad", "Ramp", "Range", "Reduce", "Select", "Shuffle", "SizeVar", "StringImm", "Sub", "Var",
]  # fmt: skip

# TVM's names of base classes
BinaryOpExpr, CmpExpr, PrimExprWithOp, ExprOp = BinaryExpr, CompareExpr, PrimExpr, PrimExpr
