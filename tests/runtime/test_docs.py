"""The examples in docs/runtime.md, docs/gpu.md and docs/security.md run as they stand."""

from __future__ import annotations

import re

import pytest
from tests.runtime.gpu_sources import need_opencl
from tests.runtime.kernels import ROOT


@pytest.mark.parametrize(("page", "least"), [("runtime.md", 5), ("gpu.md", 3), ("security.md", 1)])
def test_examples_run_in_order(page: str, least: int) -> None:
    if page == "gpu.md":
        need_opencl()
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= least
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, f"docs/{page}", "exec"), namespace)
