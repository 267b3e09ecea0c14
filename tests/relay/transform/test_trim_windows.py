"""TrimWindows: what a convolution's window reads of padding alone is cut off, and results stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform import InferType, TrimWindows


def trimmed(data: tuple[Any, ...], weight: tuple[int, ...], **attrs: Any) -> tuple[tvm.IRModule, tvm.IRModule]:
    """Return a convolution's module before and after the pass."""
    rank = len(data) - 2
    x, w = relay.var("x", shape=data), relay.var("w", shape=weight)
    call = getattr(relay.nn, f"conv{rank}d")(x, w, **attrs)
    before = InferType()(tvm.IRModule.from_expr(relay.Function([x, w], call)))
    return before, InferType()(TrimWindows()(before))


# (data, weight, attributes, kernel and padding after)
CASES: list[Any] = [
    ((1, 3, 1, 5, 4), (2, 3, 3, 3, 3), {"padding": 1}, (1, 3, 3), (0, 1, 1, 0, 1, 1)),
    ((1, 3, 2, 5, 4), (2, 3, 3, 3, 3), {"padding": 1, "strides": 2}, (2, 3, 3), (0, 1, 1, 1, 1, 1)),
    ((1, 4, 5, 7), (6, 4, 3, 3), {"padding": 6, "dilation": 6}, (1, 3), (0, 6, 0, 6)),
    ((2, 4, 3, 3), (6, 4, 3, 3), {"padding": 9, "dilation": 9}, (1, 1), (0, 0, 0, 0)),
    ((1, 4, 2, 1), (4, 1, 5, 5), {"padding": 2, "groups": 4}, (3, 1), (1, 0, 1, 0)),
    ((1, 2, 1), (3, 2, 7), {"padding": (3, 3)}, (1,), (0, 0)),
    ((1, 2, 4), (3, 2, 3), {"padding": (7, 0), "dilation": 4}, (2,), (3, 0)),
]


@pytest.mark.parametrize(("data", "weight", "attrs", "kernel", "padding"), CASES)
def test_what_meets_padding_alone_is_cut_off(
    data: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any], kernel: tuple[int, ...], padding: Any
) -> None:
    before, after = trimmed(data, weight, **attrs)
    assert tuple(after["main"].body.attrs.kernel_size) == kernel
    assert tuple(after["main"].body.attrs.padding) == padding
    assert after["main"].body.checked_type == before["main"].body.checked_type
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype("float32") for shape in (data, weight)]
    want, have = (relay.create_executor("debug", mod=mod).evaluate()(*values).numpy() for mod in (before, after))
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "weight", "attrs"),
    [
        ((1, 3, 2, 2), (4, 3, 3, 3), {"padding": 1}),  # every tap meets data
        ((1, 3, relay.Any(), 9), (4, 3, 3, 3), {"padding": 1}),  # how much is padding is not known
        ((1, 3, 3, 9), (4, 3, 3, 1), {"padding": (4, 0), "dilation": (5, 1)}),  # less padding than a step
        ((1, 3, 0, 9), (4, 3, 1, 3), {"padding": (1, 1)}),  # nothing but padding: one tap stays
    ],
)
def test_other_windows_stay(data: tuple[Any, ...], weight: tuple[int, ...], attrs: dict[str, Any]) -> None:
    before, after = trimmed(data, weight, **attrs)
    assert tvm.ir.structural_equal(before, after)


def test_the_kernel_is_cut_along_the_axes_of_its_layout() -> None:
    attrs = {"padding": 2, "data_layout": "NHWC", "kernel_layout": "HWIO", "dilation": 2}
    before, after = trimmed((1, 2, 3, 4), (3, 3, 4, 5), **attrs)
    assert tuple(after["main"].body.args[1].checked_type.concrete_shape) == (1, 3, 4, 5)
    values = [np.random.default_rng(1).random(shape, "float32") for shape in ((1, 2, 3, 4), (3, 3, 4, 5))]
    want, have = (relay.create_executor("debug", mod=mod).evaluate()(*values).numpy() for mod in (before, after))
    np.testing.assert_allclose(have, want, rtol=1e-5)
