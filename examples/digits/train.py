"""Train the demo's digit classifier and write ``digits.onnx`` and ``heldout.npz`` beside this file.

Data: the 1,797 handwritten digits of 8x8 pixels (values 0 to 16) that ship with scikit-learn (E. Alpaydin and
C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI 1998), so nothing is downloaded. The split is
fixed: one stratified shuffle with seed 0 keeps 450 pictures (25 %) out of training; they are the accuracy
that the demo prints.

Run with ``python examples/digits/train.py``: under two minutes on two cores. Needs torch, scikit-learn, onnx
and onnxruntime (the project's ``dev`` dependencies); the demo itself needs none of them but onnx.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

HERE = Path(__file__).resolve().parent
INPUT_NAME = "pixels"
OUTPUT_NAME = "probabilities"
PIXEL_MAX = 16.0
HELDOUT_FRACTION = 0.25
SPLIT_SEED = 0
LEAST_ACCURACY = 0.97


class DigitNet(nn.Module):
    """Three convolutions with batch norm, two poolings and two dense layers: about 41 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.hidden = nn.Linear(64 * 2 * 2, 64)
        self.classifier = nn.Linear(64, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits (n, 10) of pictures (n, 1, 8, 8) with values 0 to 1."""
        flat = torch.flatten(self.features(pixels), 1)
        flat = functional.dropout(functional.relu(self.hidden(flat)), 0.3, self.training)
        logits: Tensor = self.classifier(flat)
        return logits


class WithSoftmax(nn.Module):
    """What is exported: the classifier followed by softmax, so that its outputs read as confidence."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Class probabilities (n, 10) of pictures (n, 1, 8, 8) with values 0 to 1."""
        return torch.softmax(self.network(pixels), dim=1)


def split_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The fixed split: training pictures, held-out pictures (uint8, n x 8 x 8), and the labels of each
    (uint8).
    """
    digits = load_digits()
    parts = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.uint8),
        test_size=HELDOUT_FRACTION,
        random_state=SPLIT_SEED,
        stratify=digits.target,
    )
    return tuple(parts)


def to_input(pictures: np.ndarray) -> Tensor:
    """Network input (n, 1, 8, 8) float32 in 0..1 from pictures (n, 8, 8) uint8 in 0..16."""
    return torch.from_numpy(pictures[:, None].astype(np.float32) / PIXEL_MAX)


def jitter(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Each picture turned by up to 10 degrees, scaled by up to 8 %, shifted by up to a pixel, at random."""
    count = pixels.shape[0]

    def uniform(extent: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * extent

    angle, scale = uniform(math.radians(10)), 1 + uniform(0.08)
    cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
    # affine_grid measures shifts in half-widths: a pixel of 8 is 0.25
    rows = [torch.stack([cosine, -sine, uniform(0.25)], 1), torch.stack([sine, cosine, uniform(0.25)], 1)]
    grid = functional.affine_grid(torch.stack(rows, 1), list(pixels.shape), align_corners=False)
    return functional.grid_sample(pixels, grid, align_corners=False)


def train(network: nn.Module, pictures: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Fit `network` in place: AdamW, one-cycle learning rate, cross entropy with smoothed labels."""
    generator = torch.Generator().manual_seed(0)
    pixels, answers = to_input(pictures), torch.from_numpy(labels.astype(np.int64))
    batch = 64
    steps = math.ceil(len(pixels) / batch)
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, epochs=epochs, steps_per_epoch=steps)
    network.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(pixels), generator=generator).split(batch):
            logits = network(jitter(pixels[chosen], generator))
            loss = functional.cross_entropy(logits, answers[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def export(network: nn.Module, path: Path) -> None:
    """Write the classifier for one picture; batch norm stays an operator, so that the compiler has it to
    fold.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            WithSoftmax(network).eval(),
            (torch.zeros(1, 1, 8, 8),),
            str(path),
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            opset_version=17,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            dynamo=False,
        )
    onnx.checker.check_model(str(path), full_check=True)


def accuracy(path: Path, pictures: np.ndarray, labels: np.ndarray) -> float:
    """Share of right answers that ONNX Runtime gives with the exported file."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    pixels = to_input(pictures).numpy()
    answers = [int(np.argmax(session.run(None, {INPUT_NAME: one[None]})[0])) for one in pixels]
    return float(np.mean(np.array(answers) == labels))


def main() -> None:
    """Train, export, check, and write the held-out pictures."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--epochs", type=int, default=60)
    options.add_argument("--out", type=Path, default=HERE, help="folder for digits.onnx and heldout.npz")
    arguments = options.parse_args()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the sums' order, and so the weights, would depend on the thread count

    train_pictures, heldout_pictures, train_labels, heldout_labels = split_digits()
    network = DigitNet()
    start = time.perf_counter()
    train(network, train_pictures, train_labels, arguments.epochs)
    seconds = time.perf_counter() - start

    path = arguments.out / "digits.onnx"
    export(network, path)
    np.savez_compressed(arguments.out / "heldout.npz", pictures=heldout_pictures, labels=heldout_labels)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    found = accuracy(path, heldout_pictures, heldout_labels)
    right = f"{100 * found:.2f} % of {len(heldout_labels)} held-out pictures right"
    print(f"{parameters} parameters, trained on {len(train_labels)} pictures in {seconds:.0f} s")
    print(f"{path}: {path.stat().st_size} bytes, {right}")
    if found < LEAST_ACCURACY:
        raise SystemExit(f"accuracy {found:.4f} is below {LEAST_ACCURACY}: nothing to commit")


if __name__ == "__main__":
    main()
