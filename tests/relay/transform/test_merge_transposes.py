"""Chains of reshapes and transpositions: what they become, and that they still move the same elements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.prim_expr import DimVar
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

CANCEL = "%0 = reshape(%x, newshape=[6, 4, 5]); %1 = transpose(%0, axes=[1, 0, 2]); %2 = transpose(%1, axes=[1, 0, 2]);"


def test_what_cancels_is_gone() -> None:
    check(
        transform.MergeTransposes(),
        f"def @main(%x: Tensor[(2, 3, 4, 5), float32]) {{ {CANCEL} reshape(%2, newshape=[24, 5]) }}",
        "def @main(%x: Tensor[(2, 3, 4, 5), float32]) { reshape(%x, newshape=[24, 5]) }",
    )


def test_moving_extents_of_one_is_a_reshape() -> None:
    check(
        transform.MergeTransposes(),
        "def @main(%x: Tensor[(1, 7, 1, 5), float32]) { transpose(%x, axes=[1, 2, 0, 3]) }",
        "def @main(%x: Tensor[(1, 7, 1, 5), float32]) { reshape(%x, newshape=[7, 1, 1, 5]) }",
    )


def test_two_transpositions_become_one() -> None:
    check(
        transform.MergeTransposes(),
        """
        def @main(%x: Tensor[(8, 12, 4), float32]) {
          %0 = transpose(%x, axes=[1, 0, 2]);
          %1 = expand_dims(%0, axis=0);
          transpose(%1, axes=[0, 1, 3, 2])
        }""",
        """
        def @main(%x: Tensor[(8, 12, 4), float32]) {
          %0 = reshape(%x, newshape=[8, 48]);
          %1 = transpose(%0, axes=[1, 0]);
          reshape(%1, newshape=[1, 12, 4, 8])
        }""",
    )


def named(result: relay.Expr, x: relay.Var) -> str:
    """The text after the pass of a function of named dimensions."""
    return str(transform.MergeTransposes()(tvm.IRModule.from_expr(relay.Function([x], result)))["main"])


def test_extents_with_names_cancel_too() -> None:
    x = relay.var("x", relay.TensorType((DimVar("b", 1, 8), DimVar("s", 1, 9), 6, 4), "float32"))
    heads = relay.reshape(relay.transpose(x, axes=[0, 2, 1, 3]), (-3, 0, 0))
    text = named(
        relay.reshape(relay.transpose(relay.reshape(heads, (-4, -1, 6, -2)), axes=[0, 2, 1, 3]), (0, 0, 24)), x
    )
    assert "transpose" not in text and "reshape(%x, newshape=[0, 0, 24])" in text


def test_transpositions_of_extents_with_names_become_one() -> None:
    x = relay.var("x", relay.TensorType((DimVar("b", 1, 8), DimVar("s", 1, 9), 24), "float32"))
    heads = relay.transpose(relay.reshape(x, (0, 0, 6, 4)), axes=[0, 2, 3, 1])
    text = named(relay.transpose(relay.reshape(heads, (-3, 0, 0)), axes=[0, 2, 1]), x)
    assert text.count("transpose(") == 1, text


@pytest.mark.parametrize(
    "body",
    [
        "transpose(%x, axes=[1, 0, 2, 3])",
        "%0 = reshape(%x, newshape=[6, 20]); transpose(%0, axes=[1, 0])",
        "%0 = transpose(%x, axes=[3, 2, 1, 0]); reshape(%0, newshape=[8, 15])",  # 8 is no product of 5, 4, 3 and 2
        "reshape(%x, newshape=[24, 5])",
    ],
)
def test_what_stays(body: str) -> None:
    text = f"def @main(%x: Tensor[(2, 3, 4, 5), float32]) {{ {body} }}"
    check(transform.MergeTransposes(), text, text)


def _random_chain(seed: int) -> tuple[str, tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    start = shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], size=4))
    lines, last = [], "%x"
    for k in range(6):
        if rng.integers(2):
            axes = [int(a) for a in rng.permutation(len(shape))]
            lines.append(f"%{k} = transpose({last}, axes={axes});")
            shape = tuple(shape[a] for a in axes)
        else:
            shape = _regrouped(rng, shape)
            lines.append(f"%{k} = reshape({last}, newshape={list(shape)});")
        last = f"%{k}"
    return " ".join(lines) + f" negative({last})", start


def _regrouped(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Random extents with as many elements."""
    left, found = int(np.prod(shape)), []
    while len(found) < 3:
        extent = int(rng.choice([d for d in range(1, left + 1) if left % d == 0]))
        found.append(extent)
        left //= extent
    return (*found, left)


@pytest.mark.parametrize("seed", range(20))
def test_random_chains_move_the_same_elements(seed: int) -> None:
    body, shape = _random_chain(seed)
    mod = parse(f"def @main(%x: Tensor[{shape}, float32]) {{ {body} }}")
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    with PassContext(opt_level=3):
        merged = transform.MergeTransposes()(mod)
    assert str(merged).count("transpose(") <= max(1, str(mod).count("transpose("))
    np.testing.assert_array_equal(interpret(merged, [x]), interpret(mod, [x]))
