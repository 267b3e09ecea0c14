"""Foundations of all levels: nodes, types, scalar expressions, attributes, operators, modules, passes.

node.py       immutable slotted nodes, hash-consing        prim_expr.py, prim_ops.py  scalar expressions
memory.py     buffers and loads                            iter_var.py   ranges, iteration variables, reductions
prim_functor.py  visitors of expressions                   prim_vars.py  their variables, substitution
intrinsics.py the intrinsics and their effects
dtype.py      data types as strings                        type.py       types of Relay and TIR
affine_type.py  what quantized tensors stand for
expr.py       bases of expressions and functions           attrs.py      operator attributes
op.py         the operator registry                        module.py     IRModule
env_func.py   functions by name
transform.py  passes and PassContext                       instrument.py code that runs around passes
structural.py structural equality and hash                 span.py, errors.py, diagnostics.py
json.py       nodes as JSON                                json_schema.py  the encoding of each field
trampoline.py, walk.py   walks without recursion           function_attributes.py  attributes of functions
budget.py     limits of compiling                          collection.py fewer collections of garbage
load_on_use.py  packages whose names load their modules
op_table.py   operators by name                            notebook.py progress_bar.py  what Jupyter shows
adt.py container.py  names of ``tvm.ir``

The names of ``tvm.ir`` are here too (``tvm.ir.IRModule``, ``tvm.ir.assert_structural_equal``, ...), loaded on use.
"""

from __future__ import annotations

from tilewright.ir.load_on_use import load_on_use

__getattr__, __dir__ = load_on_use(
    __name__,
    [".adt", ".affine_type", ".container", ".diagnostics", ".instrument", ".transform"],
    {
        ".adt": ("Constructor", "TypeData"),
        ".affine_type": ("AffineType", "TensorAffineType", "TupleAffineType"),
        ".attrs": ("Attrs", "DictAttrs"),
        ".container": ("Array", "Map"),
        ".diagnostics": ("Diagnostic", "DiagnosticContext", "DiagnosticError", "DiagnosticLevel"),
        ".env_func": ("EnvFunc",),
        ".expr": ("BaseFunc", "CallingConv", "GlobalVar", "RelayExpr"),
        ".iter_var": ("Range",),
        ".json": ("load_json", "save_json"),
        ".json_schema": ("make_node",),
        ".module": ("IRModule",),
        ".node": ("BaseExpr", "Node"),
        ".op": ("CallEffectKind", "Op", "register_intrin", "register_intrin_lowering", "register_op_attr"),
        ".prim_expr": ("PrimExpr",),
        ".span": ("SourceName", "Span"),
        ".structural": ("assert_structural_equal", "structural_equal", "structural_hash"),
        ".type": (
            "FuncType", "GlobalTypeVar", "IncompleteType", "PointerType", "PrimType", "RelayRefType", "TensorType",
            "TupleType", "Type", "TypeCall", "TypeConstraint", "TypeKind", "TypeRelation", "TypeVar",
        ),
    },
)  # fmt: skip
