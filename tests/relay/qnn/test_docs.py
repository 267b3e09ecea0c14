"""The examples of QNN in docs/quantization.md run as they stand, and print what the document says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tilewright.ir.op import Op

MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[1, 4] x) => (float[1, 3] y) <float[4, 3] w = {1, 0, 2, 0, 1, 0, 3, 0, 1, 1, 1, 1}> { y = MatMul(x, w) }"""

PAGE = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs" / "quantization.md").read_text(), re.DOTALL
)


def test_the_example_of_a_model_quantizes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
    samples = np.random.default_rng(0).standard_normal((8, 1, 4)).astype("float32")
    exec(compile(PAGE[0], "docs/quantization.md", "exec"), {"samples": samples})
    assert "QuantizeLinear" in {node.op_type for node in onnx.load("model.int8.onnx").graph.node}


def test_examples_print_what_the_document_says() -> None:
    blocks = PAGE[1:]
    assert len(blocks) == 5
    namespace: dict[str, object] = {"__name__": "docs"}
    try:
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/quantization.md", "exec", dont_inherit=True), namespace)
            expected = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
            assert printed.getvalue().splitlines() == expected
    finally:
        Op.get("abs").reset_attr("FTVMFakeQuantizationToInteger")
