"""Lesson 13: a model from PyTorch.

A small convolutional network, compiled for any batch from 1 to 64, and compared with PyTorch; a library that runs it
without PyTorch; a program of torch.export in a file; and a module whose buffers are state.
"""

import tempfile
from pathlib import Path

import torch
from torch import nn

import tilewright


def classifier() -> nn.Module:
    """Return a network for pictures of 28 x 28 pixels."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10), nn.Softmax(dim=-1),
    ).eval()  # fmt: skip


class RunningMean(nn.Module):
    """The mean of all that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        self.count.add_(1)
        return self.total / self.count


network, pictures = classifier(), torch.rand(2, 1, 28, 28)

# A dimension of torch.export.Dim is known when the model runs; all others are those of the example inputs.
batch = torch.export.Dim("batch", min=1, max=64)
model = tilewright.compile(network, (pictures,), dynamic_shapes=({0: batch},))
print(model.report())
for count in (1, 2, 17):
    x = torch.rand(count, 1, 28, 28)
    with torch.no_grad():
        error = (model(x) - network(x)).abs().max().item()
    print(f"batch {count:2}: largest error {error:.1e}")
    assert error < 1e-5

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "classifier.so")
    alone = tilewright.load(Path(folder) / "classifier.so")  # needs neither torch nor a compiler
    print("from the library:", alone(pictures.numpy()).argmax(1))

    torch.export.save(torch.export.export(network, (pictures,)), Path(folder) / "classifier.pt2")
    again = tilewright.compile(
        Path(folder) / "classifier.pt2"
    )  # or: tilewright compile classifier.pt2 -o classifier.so
    print("from the file:   ", again(pictures).argmax(1).numpy())

mean = tilewright.compile(RunningMean().eval(), (torch.zeros(3),))
for value in (1.0, 2.0, 6.0):
    print("mean", mean(torch.full((3,), value)).tolist(), "of", int(mean.state["count"]))
