"""Transposition of dense layers' weights once instead of in every run."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.transform.simplify.sparse_weights import SimplifyFCTranspose, transposed_weight
from tilewright.relay.visitor import post_order
from tilewright.runtime.ndarray import NDArray, array


def convert(func: Function, params: Mapping[str, NDArray]) -> tuple[Function, dict[str, NDArray]]:
    """Replace ``nn.dense(x, transpose(w))`` in ``func`` by ``nn.dense(x, w.T)``; return it with new parameters.

    A weight with other uses stays beside its transpose.
    """
    found = [transposed_weight(e) for e in post_order(func)]
    names = list(dict.fromkeys(v.name_hint for v in found if v is not None and v.name_hint in params))
    made = SimplifyFCTranspose(names)(IRModule.from_expr(func))["main"]
    assert isinstance(made, Function)
    used = {p.name_hint for p in made.params}
    kept = {name: value for name, value in params.items() if name not in names or name in used}
    return made, kept | {f"{name}.T": array(params[name].numpy().T.copy()) for name in names}
