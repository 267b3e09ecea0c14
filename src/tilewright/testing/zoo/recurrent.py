"""Recurrent networks: a two-layer bidirectional LSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .workload import Workload


class BidirectionalLstm(nn.Module):
    """Stacked bidirectional LSTM (Graves and Schmidhuber 2005) that starts from zero states."""

    initializes_itself = True

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, num_layers=layers, bidirectional=True)
        for parameter in self.lstm.parameters():
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1)

    def forward(self, data: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map (steps, n, inputs) to all outputs (steps, n, 2 * hidden) and the last states (2 * layers, n, hidden)."""
        output, (hidden, cell) = self.lstm(data)
        return output, hidden, cell


def bilstm(steps: int = 32, inputs: int = 256, hidden: int = 256, layers: int = 2) -> Workload:
    """A bidirectional LSTM over `steps` steps of `inputs` features."""
    network = BidirectionalLstm(inputs, hidden, layers)
    return Workload(network, {"data": torch.randn(steps, 1, inputs)}, ("output", "hidden", "cell"))
