"""The onnx package's nine real graphs: stored outputs reproduced, random weights well-conditioned."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto
from tests.models import light
from tests.tiers import full


def run(model: ModelProto, value: np.ndarray) -> np.ndarray:
    """ONNX Runtime's output for the graph's input `value`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {light.input_name(model): value})
    return np.asarray(output)


def test_there_are_nine_graphs() -> None:
    assert light.names() == [
        "bvlc_alexnet",
        "densenet121",
        "inception_v1",
        "inception_v2",
        "resnet50",
        "shufflenet",
        "squeezenet",
        "vgg19",
        "zfnet512",
    ]


@pytest.mark.parametrize("name", ["densenet121", "shufflenet"])
def test_stored_input_gives_the_stored_output(name: str) -> None:
    model = light.load(name)
    np.testing.assert_allclose(run(model, light.stored_input(model)), light.stored_output(name), rtol=1e-5)


@pytest.mark.parametrize("name", ["squeezenet", *full("densenet121", "inception_v1", "inception_v2", "resnet50")])
def test_random_weights_give_answers_that_are_neither_uniform_nor_saturated(name: str) -> None:
    model = light.with_random_weights(name)
    onnx.checker.check_model(model)
    assert all(node.op_type != "ConstantOfShape" for node in model.graph.node)
    logits = run(model, light.random_input(model)).ravel()
    if name != "densenet121":  # the others end in a softmax
        assert logits.sum() == pytest.approx(1, rel=1e-4)
        logits = np.log(logits)
    # squeezenet's last convolution is followed by ReLU and the mean over the picture
    assert 0.3 < float(np.std(logits)) < 4


def test_random_weights_are_the_same_every_time() -> None:
    first, second = (light.with_random_weights("shufflenet").SerializeToString() for _ in range(2))
    assert first == second
