"""The examples in guides that register operators or print results: they run as they stand."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.op import Op

DOCS = Path(__file__).parents[2] / "docs"


def test_examples_run_in_order() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "operators.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            exec(compile(block, "docs/operators.md", "exec", dont_inherit=True), namespace)
    finally:
        Op.registry.pop("demo.threshold", None)


def test_the_operator_of_the_architecture_guide_is_complete() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "architecture.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "tilewright.relay.op.demo.threshold"}
    try:
        exec(compile(block, "docs/architecture.md", "exec", dont_inherit=True), namespace)
        x = relay.var("x", shape=(2, 3))
        func = relay.Function([x], relay.exp(namespace["threshold"](x, minimum=0.25)))
        assert "demo.threshold(%x, minimum=0.25f)" in str(func)
        data = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], "float32")
        expected = np.exp(np.where(data >= 0.25, data, 0))
        for kind in ("debug", "graph"):
            run = relay.create_executor(kind, tvm.IRModule.from_expr(func), tvm.cpu(), "llvm").evaluate()
            np.testing.assert_allclose(run(data).numpy(), expected, rtol=1e-6)
        step = tvm.IRModule.from_expr(relay.transform.gradient(func))
        _, (by_x,) = relay.create_executor("debug", step).evaluate()(data)
        np.testing.assert_allclose(by_x.numpy(), np.where(data >= 0.25, expected, 0), rtol=1e-6)
    finally:
        Op.registry.pop("demo.threshold", None)


def test_examples_of_gradients_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "gradients.md").read_text(), re.DOTALL)
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            exec(compile(block, "docs/gradients.md", "exec", dont_inherit=True), namespace)
    finally:
        Op.get("nn.lrn").reset_attr("FPrimalGradient")
    assert capsys.readouterr().out == "3.0 [[0.5 0.5 0.5]\n [0.5 0.5 0.5]]\n[4]\n"


def test_examples_of_devices_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "devices-in-relay.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, "docs/devices-in-relay.md", "exec", dont_inherit=True), namespace)
    told = capsys.readouterr().out
    assert "device_copy(%4, src_dev_type=3, dst_dev_type=1)" in text and told.count("device_copy(") == 2
    assert told.startswith("4.0") and "%x is to be on cpu (1), by on_device(%x, device_type=1), and on cuda (2)" in told
    assert "'__copy'" in told
