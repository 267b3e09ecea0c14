"""Result type of the zoo's builders, and random weights that make a network well-conditioned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Workload:
    """A network in evaluation mode with the inputs to export and run it with.

    `inputs` are in the order of `network.forward`'s parameters; `output_names` in that of its results.
    """

    network: nn.Module
    inputs: dict[str, Tensor]
    output_names: tuple[str, ...]


def image_workload(network: nn.Module, image_size: int, output: str = "logits") -> Workload:
    """A workload of a network with one picture (1, 3, image_size, image_size) as its input ``data``."""
    return Workload(network, {"data": torch.randn(1, 3, image_size, image_size)}, (output,))


def initialize(workload: Workload) -> None:
    """Give the network random weights under which activations neither vanish nor explode.

    Convolutions and dense layers: He et al. 2015, normal with variance 2 / fan_in before a ReLU network's
    activations (networks that set their own weights are left alone). Batch norms: random scale and shift,
    running statistics measured on random inputs, so that they are neither trivial nor wrong for the data.
    """
    network = workload.network
    if getattr(network, "initializes_itself", False):
        network.eval()
        return
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.normal_(module.bias, std=0.1)
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.7, 1.3)
        nn.init.normal_(norm.bias, std=0.2)
    network.eval()
    if not norms:
        return
    for norm in norms:
        norm.momentum = None  # the plain average of what is seen, not a decaying one
        norm.train()
    with torch.no_grad():
        network(*(torch.randn(4, *value.shape[1:]) for value in workload.inputs.values()))
    network.eval()
