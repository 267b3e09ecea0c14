"""Dense layers whose weights are mostly blocks of zeros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.module import IRModule
from tilewright.relay.data_dep_optimization.blocks import in_blocks, shape_of
from tilewright.relay.expr import Function
from tilewright.relay.transform.simplify.sparse_weights import DenseToSparse, dense_weight
from tilewright.relay.visitor import post_order
from tilewright.runtime.ndarray import NDArray


def convert(
    func: Function, params: Mapping[str, NDArray], blocksize: Sequence[int], sparsity_threshold: float
) -> tuple[Function, dict[str, NDArray]]:
    """Replace dense layers with sparse weights in ``func`` by ``nn.sparse_dense``; return it with new parameters.

    Args:
        blocksize: rows and columns of a block.
        sparsity_threshold: the least share of a weight in blocks of zeros, from 0 to 1, for the layer to be changed.
    """
    found = [dense_weight(e) for e in post_order(func)]
    sparse: dict[str, dict[str, NDArray]] = {}
    for name in dict.fromkeys(v.name_hint for v in found if v is not None and v.name_hint in params):
        parts = in_blocks(name, params[name].numpy(), blocksize, sparsity_threshold)
        if parts is not None:
            sparse[name] = parts
    made = DenseToSparse(list(sparse), [shape_of(n, p) for n, p in sparse.items()])(IRModule.from_expr(func))["main"]
    assert isinstance(made, Function)
    used = {p.name_hint for p in made.params}
    kept = {name: value for name, value in params.items() if name not in sparse or name in used}
    return made, kept | {n: value for parts in sparse.values() for n, value in parts.items()}
