"""Every configuration of a template of topi computes what the default one does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tiers import every

import tilewright as tvm
from tilewright import autotvm, topi
from tilewright.autotvm.task.task import TASK_TABLE, Task
from tilewright.target import Target


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, "float32")


SAME, ANY_LAYOUT = ((1, 1), (1, 1, 1, 1), (1, 1)), ("", "", "float32")  # a 3x3 window's strides, padding and dilation
HALVED = ((2, 2), (2, 2, 2, 2), (1, 1))

assert topi.cpu  # loaded, it registers the templates

# By template: the arguments, as a workload has them.
WORKLOADS = [
    ("conv2d_NCHWc.x86", (tensor(1, 2, 9, 11, 8), tensor(4, 2, 3, 3, 8, 8), *SAME, *ANY_LAYOUT)),
    ("conv2d_NCHWc.x86", (tensor(1, 2, 9, 11, 8), tensor(2, 1, 3, 3, 4, 8), *SAME, *ANY_LAYOUT)),
    ("conv2d_NCHWc_winograd.x86", (tensor(1, 2, 9, 11, 8), tensor(4, 6, 6, 2, 8, 8), (1, 1, 1, 1), 4, (1, 1))),
    ("conv2d_NCHWc_winograd.x86", (tensor(1, 2, 9, 11, 8), tensor(4, 4, 4, 2, 8, 8), (2, 2, 2, 2), 2, (2, 2))),
    ("depthwise_conv2d_NCHWc.x86", (tensor(2, 3, 12, 13, 8), tensor(3, 1, 3, 3, 1, 8), *SAME, *ANY_LAYOUT)),
    ("depthwise_conv2d_NCHWc.x86", (tensor(1, 2, 15, 10, 8), tensor(2, 1, 5, 5, 1, 8), *HALVED, *ANY_LAYOUT)),
    ("dense_pack.x86", (tensor(37, 1024), tensor(5, 1024, 16), None, "float32")),
    ("dense_strassen.x86", (tensor(97, 64), tensor(2, 3, 4, 16, 8))),
    ("batch_matmul.x86", (tensor(3, 13, 20), tensor(3, 29, 20), (3, 13, 29), "float32", False, True)),
    ("attention.x86", (tensor(1, 3, 19, 16), tensor(1, 3, 37, 16), tensor(1, 3, 37, 24), tensor(1, 1, 1, 37), 0.25)),
]


def outcome(task: Task, config: autotvm.ConfigSpace, arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    with Target("llvm") as target:
        schedule, tensors = task.instantiate(config)
        func = tvm.build(schedule, tensors, target)
    out = tvm.nd.array(np.zeros(shape, "float32"))
    func(*(tvm.nd.array(a) for a in arrays), out)
    return out.numpy()


@pytest.mark.parametrize(("name", "arguments"), every(2, WORKLOADS, several=True), ids=[w[0] for w in WORKLOADS])
def test_configurations(name: str, arguments: tuple) -> None:
    task = autotvm.create(name, arguments, "llvm")
    assert task.config_space is not None
    assert len(task.config_space) > 1
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(a[1], "float32") for a in arguments if isinstance(a, tuple) and a[0] == "TENSOR"]
    with Target("llvm") as target:
        default = autotvm.FallbackContext().query(target, task.workload)
        _, tensors = task.instantiate(default)
    shape = tuple(int(d) for d in tensors[-1].shape)
    want = outcome(task, default, arrays, shape)
    for index in rng.choice(len(task.config_space), min(6, len(task.config_space)), replace=False):
        found = outcome(task, task.config_space.get(int(index)), arrays, shape)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_every_template_is_tested() -> None:
    elsewhere = {"conv2d_NCHWc_int8.x86"}  # on integers: tests/topi/cpu/test_conv2d_int8.py
    assert {name for name in TASK_TABLE if name.endswith(".x86")} == {name for name, _ in WORKLOADS} | elsewhere
