"""Outputs that are views of each other share memory, and lie in it, as PyTorch's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.torch_compile.test_torch_compile import close, compiled
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.torch_compile.aliases import bases


def in_places(values: Sequence[torch.Tensor]) -> list[tuple[int, tuple[int, ...], int]]:
    """The first output in the same memory, the strides and the place of the first element."""
    memory = [value.untyped_storage().data_ptr() for value in values]
    return [(memory.index(m), v.stride(), v.storage_offset()) for m, v in zip(memory, values, strict=True)]


def doubled(x: torch.Tensor) -> list[torch.Tensor]:
    y = x * 2
    return [y.view(-1), y, y.t(), y[1:, ::2], y[1], y.unsqueeze(0).expand(2, *y.shape), y + 1]


def turned(x: torch.Tensor) -> list[torch.Tensor]:
    y = torch.exp(x).t()
    return [y[1:], y.reshape(-1), y, y + 1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [doubled, turned])
def test_views_of_one_tensor(function: Callable[..., Any], dynamic: bool) -> None:
    run = compiled(function, torch.randn(3, 4), dynamic=dynamic)
    for shape in [(3, 4), (5, 7)] if dynamic else [(3, 4)]:
        x = torch.randn(shape)
        found, expected = run(x), function(x)
        close(found, expected)
        assert in_places(found) == in_places(expected)


def test_a_write_to_one_is_seen_in_the_other() -> None:
    x = torch.randn(2, 3)
    whole, row, other = compiled(lambda x: [x + 1, (x + 1)[0], x - 1], x)(x)
    assert torch.equal(whole[0], row)
    viewed, flat = compiled(lambda x: [(y := x + 1), y.view(-1)], x)(x)
    flat.zero_()
    assert not viewed.any()
    close(other, x - 1)


def test_one_view_alone_is_no_reason_to_keep_the_whole() -> None:
    graph = make_fx(lambda x: [(x + 1)[:1], x - 1], tracing_mode="fake")(torch.randn(3, 4)).graph
    assert bases(graph, graph.find_nodes(op="output")[0].args[0]) == {}
