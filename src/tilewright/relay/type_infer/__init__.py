"""Type inference.

infer.py   the checker of programs          record.py                 rebuilds programs with their types
unify.py   unification of types             describe.py programs.py   types and calls as text for messages
solver.py  unification and relations of types that are in no program
dimensions.py  assumptions about dimensions that are variables

``infer_module`` types a module, ``infer_expr`` an expression; ``relay.transform.InferType`` is the pass.
``type_problems`` checks the types that a module has.
"""

from tilewright.relay.type_infer import _ffi_api as _ffi_api
from tilewright.relay.type_infer.infer import infer_expr, infer_module, type_problems
from tilewright.relay.type_infer.solver import TypeSolver
from tilewright.relay.type_infer.unify import Unifier, instantiate, same_type, substitute_type_vars

__all__ = [
    "TypeSolver",
    "Unifier",
    "infer_expr",
    "infer_module",
    "instantiate",
    "same_type",
    "substitute_type_vars",
    "type_problems",
]
