"""Operators that reshape, move and index tensors.

reshape.py axes.py join.py layout.py slicing.py replicate.py   shapes and layouts
indexing.py scatter.py rows.py sorting.py matrix.py trees.py   elements by index, order, and position
data_dependent.py unique.py                                    results whose size depends on all elements
einsum.py sparse.py                                            sums of products, sparse tensors
checks.py shape_checks.py                                      checks of indices and sizes when a model runs
"""

from tilewright.relay.op.transform import (  # noqa: F401
    axes,
    data_dependent,
    einsum,
    indexing,
    join,
    layout,
    matrix,
    replicate,
    reshape,
    rows,
    scatter,
    slicing,
    sorting,
    sparse,
    trees,
    unique,
)
