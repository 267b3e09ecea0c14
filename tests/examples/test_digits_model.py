"""The committed digit classifier and the pictures it is judged by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from sklearn.datasets import load_digits

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.fixture(scope="module")
def heldout() -> tuple[np.ndarray, np.ndarray]:
    """The held-out pictures (450, 8, 8) and their labels."""
    with np.load(DIGITS / "heldout.npz") as stored:
        return stored["pictures"], stored["labels"]


def test_model_is_small_and_passes_the_checker() -> None:
    path = DIGITS / "digits.onnx"
    assert path.stat().st_size < 300_000
    onnx.checker.check_model(str(path), full_check=True)


def test_heldout_pictures_are_a_quarter_of_the_published_ones(heldout: tuple[np.ndarray, np.ndarray]) -> None:
    pictures, labels = heldout
    digits = load_digits()
    published = {
        (picture.astype(np.uint8).tobytes(), int(label))
        for picture, label in zip(digits.images, digits.target, strict=True)
    }
    assert pictures.shape == (450, 8, 8)
    assert {(picture.tobytes(), int(label)) for picture, label in zip(pictures, labels, strict=True)} <= published
    # stratified: every digit about a tenth
    assert np.all(np.abs(np.bincount(labels, minlength=10) - 45) <= 3)


def test_onnx_runtime_gets_more_than_98_5_percent_right(heldout: tuple[np.ndarray, np.ndarray]) -> None:
    pictures, labels = heldout
    session = onnxruntime.InferenceSession(str(DIGITS / "digits.onnx"), providers=["CPUExecutionProvider"])
    pixels = pictures[:, None, None].astype(np.float32) / 16
    probabilities = np.concatenate([session.run(["probabilities"], {"pixels": one})[0] for one in pixels])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert np.mean(probabilities.argmax(axis=1) == labels) > 0.985
