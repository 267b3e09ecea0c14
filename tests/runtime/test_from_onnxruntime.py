"""docs/from_onnxruntime.md: both programs of each pair run, and give the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from tilewright import runtime

GUIDE = Path(__file__).parents[2] / "docs" / "from_onnxruntime.md"
MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[batch, 4] x) => (float[batch, 3] probabilities, int64[batch] label)
<float[4, 3] weight = {1, 0, 2,  0, 1, 0,  3, 0, 1,  1, 1, 1}> {
    scores = MatMul(x, weight)
    probabilities = Softmax(scores)
    label = ArgMax<axis = 1, keepdims = 0>(probabilities)
}"""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The number of threads as it was: a pair of the guide sets it."""
    yield
    runtime.set_num_threads(0)


def test_each_pair_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(MODEL), "model.onnx")
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    sections = GUIDE.read_text().split("\n## ")[1:-1]
    assert len(sections) == 10
    for section in sections:
        title, _, text = section.partition("\n")
        first, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        exec(compile(first, f"{title}, ONNX Runtime", "exec"), theirs)
        exec(compile(second, title, "exec"), ours)
        assert type(ours["result"]) is type(theirs["result"]), title
        if isinstance(ours["result"], (list, bool)):
            assert ours["result"] == theirs["result"], title
        else:
            np.testing.assert_allclose(ours["result"], theirs["result"], rtol=1e-5, err_msg=title)
