"""Modules of ``tvm.contrib`` by attribute."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright as tvm


def test_modules_need_no_import() -> None:
    program = "import tilewright as tvm; print(tvm.contrib.graph_executor.create.__name__)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "create\n"


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"tilewright.contrib' has no attribute 'no_such'"):
        tvm.contrib.no_such  # noqa: B018
