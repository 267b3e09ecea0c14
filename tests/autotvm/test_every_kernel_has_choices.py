"""Every operator with a schedule has choices on CPUs: each kernel is a task with several configurations.

Hand-written loops, such as those of cumsum, have no schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay import nn
from tilewright.tuning.extraction import kernel_tasks


def given(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def known(*shape: int) -> relay.Constant:
    return relay.const(np.random.default_rng(0).standard_normal(shape).astype("float32"))


OPERATORS: dict[str, Callable[[], Any]] = {
    "conv1d NCW": lambda: nn.conv1d(given("x", 1, 7, 53), known(9, 7, 3), channels=9, kernel_size=3),
    "conv1d NWC": lambda: nn.conv1d(
        given("x", 1, 53, 7), known(3, 7, 9), channels=9, kernel_size=3, data_layout="NWC", kernel_layout="WIO"
    ),
    "conv1d grouped": lambda: nn.conv1d(given("x", 1, 8, 53), known(8, 2, 3), channels=8, kernel_size=3, groups=4),
    "conv1d depthwise": lambda: nn.conv1d(given("x", 1, 8, 53), known(8, 1, 3), channels=8, kernel_size=3, groups=8),
    "conv1d_transpose": lambda: nn.conv1d_transpose(
        given("x", 1, 7, 23), known(7, 9, 3), channels=9, kernel_size=3, strides=2
    ),
    "conv2d NCHW": lambda: nn.conv2d(given("x", 1, 16, 11, 13), known(32, 16, 3, 3), channels=32, kernel_size=(3, 3)),
    "conv2d NCHW odd": lambda: nn.conv2d(given("x", 1, 5, 11, 13), known(7, 5, 3, 3), channels=7, kernel_size=(3, 3)),
    "conv2d NHWC": lambda: nn.conv2d(
        given("x", 1, 13, 11, 6),
        known(3, 3, 6, 10),
        channels=10,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "conv2d NHWC grouped": lambda: nn.conv2d(
        given("x", 1, 13, 11, 8),
        known(3, 3, 4, 10),
        channels=10,
        kernel_size=(3, 3),
        data_layout="NHWC",
        kernel_layout="HWIO",
        groups=2,
    ),
    "conv2d HWCN": lambda: nn.conv2d(
        given("x", 13, 11, 6, 4),
        known(3, 3, 6, 10),
        channels=10,
        kernel_size=(3, 3),
        data_layout="HWCN",
        kernel_layout="HWIO",
    ),
    "conv2d CHWN any": lambda: nn.conv2d(
        given("x", 6, 13, 11, 4),
        known(10, 6, 3, 3),
        channels=10,
        kernel_size=(3, 3),
        data_layout="CHWN",
        kernel_layout="OIHW",
    ),
    "conv2d grouped": lambda: nn.conv2d(
        given("x", 1, 16, 11, 13), known(32, 4, 3, 3), channels=32, kernel_size=(3, 3), groups=4
    ),
    "conv2d grouped odd": lambda: nn.conv2d(
        given("x", 1, 15, 11, 13), known(9, 5, 3, 3), channels=9, kernel_size=(3, 3), groups=3
    ),
    "depthwise NCHW": lambda: nn.conv2d(
        given("x", 1, 32, 15, 15), known(32, 1, 3, 3), channels=32, kernel_size=(3, 3), groups=32
    ),
    "depthwise NCHW odd": lambda: nn.conv2d(
        given("x", 1, 7, 15, 15), known(7, 1, 3, 3), channels=7, kernel_size=(3, 3), groups=7
    ),
    "depthwise NHWC": lambda: nn.conv2d(
        given("x", 1, 15, 15, 32),
        known(3, 3, 32, 1),
        channels=32,
        kernel_size=(3, 3),
        groups=32,
        data_layout="NHWC",
        kernel_layout="HWOI",
    ),
    "depthwise mult NCHW": lambda: nn.conv2d(
        given("x", 1, 8, 15, 15), known(16, 1, 3, 3), channels=16, kernel_size=(3, 3), groups=8
    ),
    "conv2d_transpose": lambda: nn.conv2d_transpose(
        given("x", 1, 6, 7, 9), known(6, 4, 3, 3), channels=4, kernel_size=(3, 3), strides=(2, 2)
    ),
    "conv2d_transpose NHWC": lambda: nn.conv2d_transpose(
        given("x", 1, 7, 9, 6),
        known(3, 3, 6, 4),
        channels=4,
        kernel_size=(3, 3),
        strides=(2, 2),
        data_layout="NHWC",
        kernel_layout="HWIO",
    ),
    "conv3d NCDHW": lambda: nn.conv3d(
        given("x", 1, 3, 7, 9, 11), known(5, 3, 3, 3, 3), channels=5, kernel_size=(3, 3, 3)
    ),
    "conv3d NDHWC": lambda: nn.conv3d(
        given("x", 1, 7, 9, 11, 3),
        known(3, 3, 3, 3, 5),
        channels=5,
        kernel_size=(3, 3, 3),
        data_layout="NDHWC",
        kernel_layout="DHWIO",
    ),
    "conv3d grouped": lambda: nn.conv3d(
        given("x", 1, 4, 7, 9, 11), known(6, 2, 3, 3, 3), channels=6, kernel_size=(3, 3, 3), groups=2
    ),
    "conv3d_transpose": lambda: nn.conv3d_transpose(
        given("x", 1, 3, 5, 6, 7), known(3, 5, 3, 3, 3), channels=5, kernel_size=(3, 3, 3), strides=(2, 2, 2)
    ),
    "deformable": lambda: nn.deformable_conv2d(
        given("x", 1, 4, 7, 19), known(1, 18, 7, 19), known(6, 4, 3, 3), padding=(1, 1), channels=6, kernel_size=(3, 3)
    ),
    "dense": lambda: nn.dense(given("x", 17, 64), known(48, 64)),
    "dense rows1": lambda: nn.dense(given("x", 1, 64), known(48, 64)),
    "dense few columns": lambda: nn.dense(given("x", 17, 640), known(3, 640)),
    "dense var weight": lambda: nn.dense(given("x", 17, 64), given("w", 48, 64)),
    "dense 67": lambda: nn.dense(given("x", 17, 64), known(67, 64)),
    "dense 1x1": lambda: nn.dense(given("x", 1, 640), given("w", 1, 640)),
    "matmul": lambda: nn.matmul(given("x", 17, 64), given("w", 64, 48)),
    "matmul tt": lambda: nn.matmul(given("x", 64, 17), given("w", 48, 64), transpose_a=True, transpose_b=True),
    "batch_matmul": lambda: nn.batch_matmul(given("x", 3, 17, 20), given("w", 3, 67, 20)),
    "batch_matmul row": lambda: nn.batch_matmul(given("x", 3, 1, 20), given("w", 3, 67, 20)),
    "batch_matmul col": lambda: nn.batch_matmul(given("x", 3, 37, 20), given("w", 3, 1, 20)),
    "max_pool1d": lambda: nn.max_pool1d(given("x", 1, 5, 65), (3,), (2,)),
    "max_pool2d": lambda: nn.max_pool2d(given("x", 1, 5, 33, 41), (3, 3), (2, 2), padding=(1, 1)),
    "max_pool2d NHWC": lambda: nn.max_pool2d(given("x", 1, 33, 41, 5), (3, 3), (2, 2), padding=(1, 1), layout="NHWC"),
    "avg_pool2d": lambda: nn.avg_pool2d(given("x", 1, 5, 33, 41), (3, 3), (2, 2), padding=(1, 1)),
    "avg_pool3d": lambda: nn.avg_pool3d(given("x", 1, 5, 9, 9, 9), (3, 3, 3), (2, 2, 2)),
    "global_avg_pool2d": lambda: nn.global_avg_pool2d(given("x", 1, 37, 7, 9)),
    "global_max_pool2d": lambda: nn.global_max_pool2d(given("x", 1, 37, 7, 9)),
    "adaptive_avg_pool2d": lambda: nn.adaptive_avg_pool2d(given("x", 1, 37, 17, 19), (5, 5)),
    "softmax": lambda: nn.softmax(given("x", 37, 67)),
    "softmax axis0": lambda: nn.softmax(given("x", 37, 67), axis=0),
    "log_softmax": lambda: nn.log_softmax(given("x", 37, 67)),
    "fast_softmax": lambda: nn.fast_softmax(given("x", 37, 67)),
    "layer_norm": lambda: nn.layer_norm(given("x", 19, 100), known(100), known(100)),
    "group_norm": lambda: nn.group_norm(given("x", 2, 12, 9, 9), known(12), known(12), 3),
    "instance_norm": lambda: nn.instance_norm(given("x", 2, 12, 9, 9), known(12), known(12)),
    "l2_normalize": lambda: nn.l2_normalize(given("x", 2, 12, 9, 9), 1e-5, axis=[1]),
    "lrn": lambda: nn.lrn(given("x", 2, 12, 9, 9)),
    "attention": lambda: relay.nn.batch_matmul(
        nn.softmax(nn.batch_matmul(given("q", 4, 31, 16), given("k", 4, 31, 16))), given("v", 4, 16, 31)
    ),
    "resize1d": lambda: relay.image.resize1d(given("x", 1, 3, 21), size=(40,)),
    "resize2d": lambda: relay.image.resize2d(given("x", 1, 3, 21, 17), size=(40, 33)),
    "resize2d NHWC": lambda: relay.image.resize2d(given("x", 1, 21, 17, 3), size=(40, 33), layout="NHWC"),
    "resize2d nearest": lambda: relay.image.resize2d(
        given("x", 1, 3, 21, 17), size=(42, 34), method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
    ),
    "resize2d cubic": lambda: relay.image.resize2d(given("x", 1, 3, 21, 17), size=(42, 34), method="cubic"),
    "resize3d": lambda: relay.image.resize3d(given("x", 1, 3, 5, 9, 11), size=(10, 18, 22)),
    "upsampling": lambda: nn.upsampling(given("x", 1, 3, 21, 17), 2.0, 2.0),
    "grid_sample": lambda: relay.image.grid_sample(given("x", 1, 3, 21, 17), given("g", 1, 2, 9, 9)),
    "sum rows": lambda: relay.sum(given("x", 13, 1021), axis=(1,)),
    "sum columns": lambda: relay.sum(given("x", 41, 90, 7), axis=(0,)),
    "sum all": lambda: relay.sum(given("x", 41, 90, 7)),
    "mean middle": lambda: relay.mean(given("x", 41, 90, 7), axis=(1,)),
    "max": lambda: relay.max(given("x", 13, 1021), axis=(1,)),
    "argmax": lambda: relay.argmax(given("x", 13, 1021), axis=(1,)),
    "argmax columns": lambda: relay.argmax(given("x", 13, 1021), axis=(0,)),
    "all": lambda: relay.all(relay.greater(given("x", 13, 1021), relay.const(0.5)), axis=(1,)),
    "variance": lambda: relay.variance(given("x", 13, 1021), axis=(1,)),
    "add relu": lambda: nn.relu(relay.add(given("x", 13, 1021), given("y", 13, 1021))),
    "broadcast": lambda: relay.add(given("x", 13, 64, 9), given("y", 64, 1)),
    "gelu": lambda: relay.erf(given("x", 13, 1021)),
    "transpose": lambda: relay.transpose(given("x", 67, 3, 129), (2, 1, 0)),
    "concatenate": lambda: relay.concatenate([given("x", 5, 7), given("y", 5, 9)], axis=1),
    "strided_slice": lambda: relay.strided_slice(given("x", 35, 70), [1, 2], [30, 60]),
    "pad": lambda: nn.pad(given("x", 35, 70), ((1, 1), (2, 2))),
    "take": lambda: relay.take(given("x", 35, 70), relay.const(np.arange(9, dtype="int32")), axis=0),
    "cast": lambda: relay.cast(given("x", 35, 70), "float16"),
    "depth_to_space": lambda: nn.depth_to_space(given("x", 1, 16, 7, 7), 2),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_have_several_configurations(name: str) -> None:
    tasks = kernel_tasks(tvm.IRModule.from_expr(OPERATORS[name]()), {}, "llvm")
    assert tasks
    spaces = [task.config_space for task, _ in tasks if task.config_space is not None]
    assert len(spaces) == len(tasks)
    assert min(len(space) for space in spaces) > 1
    # Whether to share work out among threads is no choice of loops: some kernel has others.
    assert any(list(space.space_map) != ["threads"] for space in spaces)
