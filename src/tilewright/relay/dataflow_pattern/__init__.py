"""Patterns of dataflow graphs: matching, rewriting and partitioning. ``tvm.relay.dataflow_pattern``.

language.py        the patterns and their constructors
products.py        products as a number times factors
matcher.py         matching of expressions
screen.py          quick tests before matching
indexed_graph.py   order, users and dominators of an expression
groups.py          the matches in an expression that can be replaced
rewriter.py        replacement of matches by a callback's results
partitioner.py     replacement of matches by calls of functions
"""

from tilewright.relay.dataflow_pattern.language import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FilledPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ProductPattern,
    ScalarPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_filled,
    is_if,
    is_let,
    is_op,
    is_product,
    is_scalar,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from tilewright.relay.dataflow_pattern.matcher import match
from tilewright.relay.dataflow_pattern.partitioner import partition
from tilewright.relay.dataflow_pattern.rewriter import DFPatternCallback, rewrite

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DFPatternCallback", "DataTypePattern",
    "DominatorPattern", "ExprPattern", "FilledPattern", "FunctionPattern", "IfPattern", "LetPattern", "ProductPattern",
    "ScalarPattern", "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern", "VarPattern",
    "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape", "has_type", "is_constant", "is_expr",
    "is_filled", "is_if", "is_let", "is_op", "is_product", "is_scalar", "is_tuple", "is_tuple_get_item", "is_var",
    "match", "partition", "rewrite", "wildcard",
]  # fmt: skip
