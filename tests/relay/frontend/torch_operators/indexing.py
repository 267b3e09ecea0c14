"""Operators that look elements up, put them in places, and sort."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import b, case, i, x

case(
    "indexing", "slices", lambda a: (a[1:3], a[:, ::2], a[-2:], a[..., 0], a[1], a[-1], a[2:1], a[:, -3:-1]), x(5, 6, 2)
)
case("indexing", "select", lambda a, n: (a.select(1, 2), a.index_select(0, n), torch.take(a, n)), x(5, 6), i(4))
case("indexing", "gather", lambda a, n: (a.gather(0, n), torch.take_along_dim(a, n, 0)), x(5, 3), i(2, 3))
case("indexing", "gather of a part", lambda a, n: a.gather(1, n), x(5, 6), i(2, 7))
case("indexing", "positions", lambda a, n: (a[n], a[:, n], a[n, 0], a[-n]), x(5, 6), i(4, low=1))
case(
    "indexing",
    "several positions",
    lambda a, n, m: (a[n, m], a[:, n, m], a[n, :, m], a[n[:, None], m], a[..., n, m]),
    x(5, 5, 5),
    i(3),
    i(3),
)
case("indexing", "mask", lambda a, m: (a[m], a.masked_select(m)), x(5, 3), b(5, 3))
case("indexing", "mask of rows", lambda a, m: (a[m], a[:, m[:3]]), x(5, 3), b(5))
case(
    "indexing",
    "bincount",
    lambda a, w: (torch.bincount(a), torch.bincount(a, w, 20), torch.bincount(a[:0], minlength=3)),
    torch.tensor([3, 0, 3, 7, 1]),
    x(5),
)
case("indexing", "nonzero", lambda a: (a.nonzero(), torch.where(a)[0]), b(4, 3))
case("indexing", "embedding", F.embedding, i(2, 3), x(5, 4))
case(
    "indexing",
    "embedding bags",
    lambda n, w, o: (
        F.embedding_bag(n, w, o, mode="sum"),
        F.embedding_bag(n, w, o, mode="mean"),
        F.embedding_bag(n, w, o, mode="max"),
        F.embedding_bag(n, w, o, mode="mean", padding_idx=2),
    ),
    i(7),
    x(5, 4),
    torch.tensor([0, 2, 2, 5]),
)
case("indexing", "one_hot", lambda n: F.one_hot(n, 6), i(2, 3))
case("indexing", "isin", lambda n: torch.isin(n, torch.tensor([1, 3])), i(2, 3))


def _puts(a, n, v, m):
    a, c, d, e = a.clone(), a.clone(), a.clone(), a.clone()
    a[n] = v
    c[1:3] = 0
    d[m] = 7.5
    e[:, 1] = v[0, 0]
    return a, c, d, e


case("scatters", "assignments", _puts, x(5, 3), torch.tensor([3, 1]), x(2, 3), b(5, 3))
case(
    "scatters",
    "index_put",
    lambda a, n, m, v: (
        a.index_put((n, m), v),
        a.index_put((n, m), v, accumulate=True),
        a.index_put((n,), v[0], accumulate=True),
    ),
    x(5, 5),
    torch.tensor([0, 3, 1]),
    torch.tensor([2, 2, 4]),
    x(3),
)
case(
    "scatters",
    "index_put of a middle dimension",
    lambda a, n, v: a.index_put((torch.arange(2)[:, None], n), v),
    x(2, 5, 3),
    torch.tensor([[0, 3], [1, 2]]),
    x(2, 2, 3),
)
case(
    "scatters",
    "scatter",
    lambda a, n, v: (a.scatter(0, n, v), a.scatter(0, n, 3.5), a.scatter_add(0, n, v)),
    x(5, 3),
    torch.tensor([[0, 1, 2], [3, 4, 0]]),
    x(2, 3),
)
case(
    "scatters",
    "scatter of a part",
    lambda a, n, v: (a.scatter(1, n, v), a.scatter_add(1, n, v)),
    x(5, 6),
    torch.tensor([[0, 1], [3, 4]]),
    x(3, 3),
)
for _f in ("sum", "prod", "mean", "amax", "amin"):
    case(
        "scatters",
        f"scatter_reduce {_f}",
        lambda a, n, v, f=_f: (a.scatter_reduce(0, n, v, f), a.scatter_reduce(0, n, v, f, include_self=False)),
        x(4, 3),
        i(5, 3, high=4),
        x(5, 3),
    )
case(
    "scatters",
    "index_add copy fill",
    lambda a, n, v: (
        a.index_add(0, n, v),
        a.index_copy(0, n, v),
        a.index_fill(0, n, 2.5),
        a.index_add(1, n, v.T, alpha=2),
    ),
    x(5, 5),
    torch.tensor([0, 3]),
    x(2, 5),
)
case(
    "scatters",
    "slices",
    lambda a, v: (
        torch.slice_scatter(a, v, 0, 1, 3),
        torch.select_scatter(a, v[0], 0, 2),
        torch.slice_scatter(a, v, 0, 0, 4, 2),
        torch.diagonal_scatter(a, v[0, :4]),
    ),
    x(4, 5),
    x(2, 5),
)
case("scatters", "masked_scatter", lambda a, m, v: a.masked_scatter(m, v), x(3, 4), b(3, 4), x(12))

case("sorting", "sort", lambda a: (*a.sort(), *a.sort(0, descending=True), a.argsort(1), a.msort()), x(4, 5))
case("sorting", "topk", lambda a: (*a.topk(3), *a.topk(2, 0, largest=False), *a.kthvalue(2)), x(4, 5))
case("sorting", "median", lambda a: (*a.median(1), *a.median(0, keepdim=True)), x(4, 5))
case(
    "sorting",
    "searches",
    lambda a, c: (torch.searchsorted(a, c), torch.bucketize(c, a, right=True)),
    torch.arange(5.0),
    x(3, 2) * 3,
)
case("sorting", "unique", lambda a: torch.unique(a), i(9))


case(
    "sorting",
    "histc",
    lambda a, n: (
        torch.histc(a, 7, -1, 1.5),
        torch.histc(a, 5),
        torch.histc(a * 0 + 2, 3),
        torch.histc(n.float(), 5, 0, 4),
        torch.histc(a, 4, 3, 3),
    ),
    x(4, 9),
    i(20),
)
