"""TIR: the loop-level IR, close to C, between schedules and machine code.

stmt.py function.py   the nodes (expressions are in ``ir``)    functor.py visitor.py   visitors, mutators, substitute
op.py           intrinsics and helpers (tir.exp, tir.sum)      printer.py    text form (``primfn``)
ir_builder.py   build loops imperatively                       verify.py     well-formedness
analysis.py     questions about expressions and functions      transform/    the passes, one a file
domain_touched.py  the part of a buffer that a statement touches   layout.py  layouts such as ``NCHW16c``
parallel_work.py   how a kernel's work is shared among cores       verify_gpu_code.py  limits of GPUs
function_attributes.py options.py   attributes of PrimFuncs, options of passes
expr.py generic.py stmt_functor.py  TVM's names of what is elsewhere
"""

from tilewright.ir.memory import Buffer, decl_buffer
from tilewright.ir.op import CallEffectKind as CallEffectKind
from tilewright.ir.prim_expr import ExprLike
from tilewright.ir.type import PointerType, PrimType
from tilewright.tir import analysis, expr, ir_builder, op, printer, stmt_functor, transform
from tilewright.tir import generic as generic
from tilewright.tir.domain_touched import domain_touched as domain_touched
from tilewright.tir.expr import *  # noqa: F403
from tilewright.tir.function import PrimFunc
from tilewright.tir.layout import BijectiveLayout, Layout, bijective_layout, layout
from tilewright.tir.op import *  # noqa: F403
from tilewright.tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    SeqStmt,
    Stmt,
    Store,
    While,
    is_no_op,
    seq,
    stmt_list,
    stmt_seq,
)
from tilewright.tir.visitor import free_vars, post_order_visit, stmt_vars, substitute

__all__ = [
    *expr.__all__,
    *op.__all__,
    "Allocate",
    "AssertStmt",
    "AttrStmt",
    "BijectiveLayout",
    "Buffer",
    "BufferRealize",
    "BufferStore",
    "Evaluate",
    "ExprLike",
    "For",
    "ForKind",
    "IfThenElse",
    "Layout",
    "LetStmt",
    "PointerType",
    "Prefetch",
    "PrimFunc",
    "PrimType",
    "SeqStmt",
    "Stmt",
    "Store",
    "While",
    "analysis",
    "bijective_layout",
    "decl_buffer",
    "free_vars",
    "ir_builder",
    "is_no_op",
    "layout",
    "post_order_visit",
    "printer",
    "seq",
    "stmt_functor",
    "stmt_list",
    "stmt_seq",
    "stmt_vars",
    "substitute",
    "transform",
]
