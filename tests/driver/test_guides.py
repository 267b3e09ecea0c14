"""docs/from_tvm.md: its table of TVM's releases says of each what is here."""

from __future__ import annotations

import pytest

import tilewright as tvm


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("relay.backend.Executor", True),
        ("nd.NDArray.asnumpy", True),
        ("nd.NDArray.numpy", True),
        ("autotvm", True),
        ("auto_scheduler", True),
        ("te.create_schedule", True),
        ("script", True),
        ("relax", False),
        ("tir.Schedule", False),
    ],
)
def test_what_the_table_of_releases_says_is_here_is_here(name: str, here: bool) -> None:
    found: object = tvm
    for part in name.split("."):
        found = getattr(found, part, None)
    assert (found is not None) == here, name
