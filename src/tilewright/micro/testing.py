"""Helpers of tests of archives and tuning on boards, with TVM 0.8's names."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path


def mlf_extract_workspace_size_bytes(mlf_tar_path: str | Path) -> int:
    """Return the bytes of workspace that a network needs, as its archive in the Model Library Format says."""
    with tarfile.open(mlf_tar_path) as tar:
        member = tar.extractfile("./metadata.json")
        assert member is not None
        memory = json.load(member)["memory"]
    return int(memory["functions"]["main"][0]["workspace_size_bytes"])


def check_tune_log(log_path: str | Path) -> None:
    """Raise AssertionError unless each record of a tuning log has a time below 1e9 seconds, which failures have."""
    for line in Path(log_path).read_text().splitlines():
        if line:
            assert json.loads(line)["result"][0][0] < 1e9, line
