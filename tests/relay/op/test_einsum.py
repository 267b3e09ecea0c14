"""einsum, tensordot and matmul against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, random
from tests.topi.harness import compiled

from tilewright import relay, topi
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError
from tilewright.relay.type_infer import infer_expr

EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk", [(3, 4), (4, 7)]),
    ("ij,jk->ki", [(3, 4), (4, 7)]),
    ("i,i->", [(17,), (17,)]),
    ("ij->", [(3, 5)]),
    ("ji", [(3, 5)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("bij,bkj->bik", [(2, 3, 5), (2, 4, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 6)]),
    ("...,...", [(2, 3), (3,)]),
    ("i...->...", [(3, 2, 2)]),
    ("a,b,c->cab", [(2,), (3,), (4,)]),
    ("ij,ij->ij", [(1, 5), (3, 5)]),
    ("bhqd,bhkd->bhqk", [(1, 2, 3, 8), (1, 2, 5, 8)]),
]
CASES = [
    case(
        f"einsum {equation}",
        lambda *x, e=equation: relay.einsum(list(x), e),
        [random(*shape, seed=k) for k, shape in enumerate(shapes)],
        np.asarray(np.einsum(equation, *(random(*shape, seed=k) for k, shape in enumerate(shapes)))),
    )
    for equation, shapes in EQUATIONS
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ([(2, 3), (3, 5)], 1),
        ([(2, 2, 3, 4), (2, 3, 4, 5)], 3),
        ([(3,), (5,)], 0),
        ([(4, 3, 2), (2, 5, 4)], ((0, 2), (2, 0))),
        ([(3, 7), (7, 3)], ((-1,), (0,))),
    ],
)
def test_products_over_dimensions_of_both(shapes: list[tuple[int, ...]], axes: object) -> None:
    a, b = (random(*s, seed=k) for k, s in enumerate(shapes))
    found = compiled(lambda x, y: topi.tensordot(x, y, axes), a, b, schedule=topi.cpu.schedule_reduce)
    np.testing.assert_allclose(found, np.tensordot(a, b, axes), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True), (True, True)])
def test_products_of_matrices(flags: tuple[bool, bool]) -> None:
    a, b = random(*((5, 3) if flags[0] else (3, 5))), random(*((7, 5) if flags[1] else (5, 7)), seed=1)
    found = compiled(lambda x, y: topi.matmul(x, y, *flags), a, b, schedule=topi.cpu.schedule_matmul)
    expected = (a.T if flags[0] else a) @ (b.T if flags[1] else b)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij", "names 1 operands, found 2"),
        ("ijk,jk", "an operand of rank 2 has 3 subscripts"),
        ("ij,jk->iz", "are the operands', once each"),
        ("ij,jk->ii", "are the operands', once each"),
        ("i1,jk", "subscripts are letters"),
        ("ij,ik", "'i' stands for extents 3 and 4"),
    ],
)
def test_subscripts_that_fit_nothing_are_refused(equation: str, message: str) -> None:
    a, b = relay.var("a", shape=(3, 4)), relay.var("b", shape=(4, 5))
    with pytest.raises(TypeInferenceError, match=message):
        infer_expr(relay.einsum([a, b], equation))


def test_dimensions_that_meet_are_of_one_extent() -> None:
    with pytest.raises(InvalidShapeError, match="dimension 1 of extent 3 meets 0 of 4"):
        compiled(lambda x, y: topi.tensordot(x, y, 1), random(2, 3), random(4, 5))
