"""Integer analysis: bounds, modular sets, affine forms, the simplifier, sets of values.

analyzer.py    Analyzer: facts about variables, and queries          context.py  the facts, and memo tables
simplifier.py  normal forms of index arithmetic, then rules          rules/      the rule tables
affine.py      sums of coefficient * atom                            pattern.py  compiles the tables
division.py    floordiv and floormod of sums by a literal            bounds.py   constant bounds
modular.py     remainders modulo a number                            int_set.py  intervals with symbolic ends
rewriting.py   ``rewrite_simplify``: one rule after the other, bottom up
linear.py      linear equations, clip bounds, solving for a variable
iter_map.py    indices as sums, splits and fusions of loop variables
reduction.py   reductions without unread parts
subspace.py    indices divided between a block and the loops around it
int_solver.py  systems of linear equations      inequalities.py  of linear inequalities
"""

from tilewright.arith.analyzer import Analyzer, simplify
from tilewright.arith.bounds import NEG_INF, POS_INF, ConstIntBound
from tilewright.arith.inequalities import IntGroupBounds, solve_linear_inequalities
from tilewright.arith.int_set import IntervalSet, IntSet, eval_set, intersect, union, union_lower_bound
from tilewright.arith.int_solver import IntConstraints, IntConstraintsTransform, solve_linear_equations
from tilewright.arith.iter_map import (
    IterMapExpr,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
    estimate_region_lower_bound,
    inverse_affine_iter_map,
    normalize_iter_map_to_expr,
)
from tilewright.arith.linear import deduce_bound, detect_clip_bound, detect_linear_equation
from tilewright.arith.modular import ModularSet
from tilewright.arith.subspace import subspace_divide
from tilewright.ir.load_on_use import load_on_use

__all__ = [
    "NEG_INF", "POS_INF", "Analyzer", "ConstIntBound", "IntConstraints", "IntConstraintsTransform", "IntGroupBounds",
    "IntSet", "IntervalSet", "IterMapExpr", "IterMark", "IterSplitExpr", "IterSumExpr", "ModularSet", "deduce_bound",
    "detect_clip_bound", "detect_iter_map", "detect_linear_equation", "estimate_region_lower_bound", "eval_set",
    "intersect", "inverse_affine_iter_map", "normalize_iter_map_to_expr", "simplify", "solve_linear_equations",
    "solve_linear_inequalities", "subspace_divide", "union", "union_lower_bound",
]  # fmt: skip


__getattr__, __dir__ = load_on_use(__name__, ["._ffi_api"])
