"""What all levels share: nodes, types, scalar expressions, attributes, operators, modules, passes.

node.py       immutable slotted nodes, hash-consing        prim_expr.py, prim_ops.py  scalar expressions
dtype.py      data types as strings                        type.py       types of Relay and TIR
expr.py       bases of expressions and functions           attrs.py      operator attributes
op.py         the operator registry                        module.py     IRModule
transform.py  passes and PassContext                       instrument.py code that runs around passes
structural.py structural equality and hash                 span.py, errors.py, diagnostics.py
"""
