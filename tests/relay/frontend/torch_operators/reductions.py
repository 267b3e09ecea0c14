"""Operators that reduce, and products of matrices."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from tests.relay.frontend.torch_operators.case import b, case, i, x

for _f in ("sum", "mean", "amax", "amin", "logsumexp", "var", "std"):
    _reduce = getattr(torch, _f)
    case("reductions", _f, lambda a, f=_reduce: (f(a, dim=1), f(a, dim=(0, 2), keepdim=True), f(a, dim=-1)), x(3, 5, 4))
for _f in ("sum", "mean", "max", "min", "prod", "var", "std", "argmax", "argmin", "median"):
    case("reductions", _f + " of all", getattr(torch, _f), x(3, 5))
case("reductions", "max and min", lambda a: (*a.max(1), *a.min(0, keepdim=True)), x(3, 5))
case("reductions", "argmax", lambda a: (a.argmax(1), a.argmin(0, keepdim=True)), x(3, 5))
case("reductions", "any and all", lambda a: (a.any(), a.any(1), a.all(), a.all(0, keepdim=True)), b(3, 5))
case(
    "reductions",
    "norms",
    lambda a: (
        a.norm(dim=1),
        torch.linalg.vector_norm(a, 1, 0),
        torch.linalg.vector_norm(a, float("inf"), 1),
        torch.linalg.vector_norm(a, 3.0),
    ),
    x(3, 5),
)
case("reductions", "running", lambda a: (a.cumsum(1), a.cumprod(0), a.cumsum(-1, dtype=torch.float64)), x(3, 5))
case("reductions", "running of integers", lambda a: (a.cumsum(0), a.cumprod(0)), i(4, 3, dtype=torch.int32))
case(
    "reductions",
    "var with corrections",
    lambda a: (a.var(1, correction=0), torch.var_mean(a, 0), a.std(1, unbiased=False)),
    x(4, 5),
)
case(
    "reductions",
    "count_nonzero and aminmax",
    lambda a: (torch.count_nonzero(a, 1), *torch.aminmax(a.float())),
    i(3, 4, high=2),
)
case("reductions", "of a scalar", lambda a: (a.sum(), a.mean(), a.amax(), a.sum(0)), x(1).reshape(()))
case("reductions", "of nothing", lambda a: (a.sum(), a.sum(1), a.prod(), a.sum(0), a.mean(1)), x(3, 0))

case(
    "products",
    "mm bmm mv dot",
    lambda a, c, d, e: (a @ c, d @ d.mT, a @ e, torch.dot(e, e), torch.outer(e, e)),
    x(3, 5),
    x(5, 2),
    x(2, 3, 4),
    x(5),
)
case("products", "broadcast", lambda a, c: a @ c, x(2, 1, 3, 5), x(4, 5, 2))
case(
    "products",
    "linear",
    lambda a, w, c: (F.linear(a, w, c), F.linear(a, w), F.linear(a[0], w, c)),
    x(2, 3, 5),
    x(4, 5),
    x(4),
)
case("products", "linear of a vector", F.linear, x(5), x(4, 5), x(4))
case(
    "products",
    "addmm",
    lambda a, c, d: (torch.addmm(d, a, c), torch.addmm(d, a, c, beta=0.5, alpha=2), torch.addmm(d[0], a, c)),
    x(3, 5),
    x(5, 2),
    x(3, 2),
)
case("products", "baddbmm", torch.baddbmm, x(2, 3, 4), x(2, 3, 5), x(2, 5, 4))
case(
    "products",
    "einsum",
    lambda a, c: (
        torch.einsum("bik,bkj->bij", a, c),
        torch.einsum("bik,bkj->ij", a, c),
        torch.einsum("bii->bi", a[:, :, :3]),
    ),
    x(2, 3, 5),
    x(2, 5, 4),
)
case("products", "bilinear", F.bilinear, x(3, 4), x(3, 5), x(2, 4, 5), x(2))
case("products", "of integers", lambda a, c: a @ c, i(3, 4), i(4, 2))
case("products", "of nothing", lambda a, c: (a @ c, c.T @ a.T), x(3, 0), x(0, 2))
case("products", "cdist", lambda a, c: torch.cdist(a, c), x(3, 4), x(5, 4))
case(
    "products",
    "inverse and determinant",
    lambda a: (torch.linalg.inv(a), torch.linalg.det(a)),
    x(2, 3, 3) + 3 * torch.eye(3),
)
case(
    "products",
    "einsum of three",
    lambda a, c, d: (
        torch.einsum("ab,bc,cd->ad", a, c, d),
        torch.einsum("ab,bc,cd->b", a, c, d),
        torch.einsum("ab,bc,cd", a, c, d),
        torch.einsum("ab,bc,cd,ae->de", a, c, d, a),
        torch.einsum("b,ab,bc->abc", c[:, 0], a, c),
        torch.einsum("...b,bc,...b->...c", a, c, a),
    ),
    x(3, 5),
    x(5, 2),
    x(2, 4),
)
