"""Steps of training: a compiled step changes the parameters as eager PyTorch's does."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.torch_compile.compiler import CompileWarning, compile_graph
from tilewright.torch_compile.decompositions import decompositions
from tilewright.torch_compile.options import Options
from tilewright.torch_compile.partition import PREFIX, refusals, split

F = torch.nn.functional
Step = Any  # of the data and the parameters; returns the loss and the new parameters


class Decoder(torch.nn.Module):
    """One layer of causal attention over embedded words, whose embedding is the output's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.qkv = torch.nn.Embedding(11, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 24)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        logits = x @ self.embed.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


def step_of(module: torch.nn.Module) -> Step:
    """Return a step of gradient descent as a function without effects."""
    names = [name for name, _ in module.named_parameters()]

    def step(data: torch.Tensor, *parameters: torch.Tensor) -> list[torch.Tensor]:
        given = [p.detach().requires_grad_() for p in parameters]
        loss = torch.func.functional_call(module, dict(zip(names, given, strict=True)), (data,))
        gradients = torch.autograd.grad(loss, given)
        return [loss.detach(), *(p.detach() - 0.1 * g for p, g in zip(given, gradients, strict=True))]

    return step


def check(module: torch.nn.Module, *data: torch.Tensor) -> torch.fx.GraphModule:
    """Compare a step for each of ``data``, and return the graph of a step."""
    step, eager = step_of(module), [p.detach() for p in module.parameters()]
    graph = make_fx(step, decompositions(), tracing_mode="fake")(data[0], *eager)
    run, own = compile_graph(Options(), graph, [data[0], *eager]), eager
    for seed, given in enumerate(data):
        torch.manual_seed(seed)
        expected, *eager = step(given, *eager)
        torch.manual_seed(seed)
        found, *own = run([given, *own])
        for a, b in zip([found, *own], [expected, *eager], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    return graph


@pytest.mark.full  # 4 s of processor time: some forty kernels
def test_a_decoder_learns_as_in_pytorch() -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)  # nothing of a step is left to PyTorch
        check(Decoder(), torch.randint(0, 11, (2, 5)), torch.randint(0, 11, (2, 5)))


class Dropping(torch.nn.Module):
    """Dropout between two products."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.first, self.second = p, torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropped, _ = torch.native_dropout(self.first(x), self.p, True)  # what AOTAutograd makes of F.dropout
        return self.second(dropped).square().mean()


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_dropout_drops_what_pytorch_drops(p: float) -> None:
    torch.manual_seed(0)
    with pytest.warns(CompileWarning, match=r"1 of \d+ operators run in PyTorch"):
        graph = check(Dropping(p), torch.randn(4, 5), torch.randn(4, 5))
    parts = split(graph, refusals(graph)).graph.find_nodes(op="call_module")
    assert [str(node.target).startswith(PREFIX) for node in parts] == [True]  # the mask is drawn before all else
