"""The examples in docs/topi.md run as they stand."""

import re
from pathlib import Path


def test_examples_run_in_order() -> None:
    path = Path(__file__).parents[2] / "docs" / "topi.md"
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    assert len(blocks) >= 4
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)
