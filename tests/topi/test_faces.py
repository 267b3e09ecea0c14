"""topi.x86 and topi.arm_cpu are TVM's names of what topi.cpu has."""

from __future__ import annotations

import inspect
from functools import partial
from types import ModuleType

import numpy as np
import pytest
from tests.topi.harness import evaluate, random

from tilewright import topi
from tilewright.target import Target


@pytest.mark.parametrize("face", [topi.x86, topi.arm_cpu, topi.generic])
def test_every_name_of_a_face_is_there(face: ModuleType) -> None:
    assert all(callable(getattr(face, name)) for name in face.__all__)


@pytest.mark.parametrize("face", [topi.x86, topi.arm_cpu])
def test_a_face_computes_what_the_cpu_does(face: ModuleType) -> None:
    x, w = random(1, 3, 7, 6), random(5, 3, 3, 2, seed=1)
    found = evaluate(lambda a, b: face.conv2d_nchw(a, b, 1, 0, 1, "float32"), x, w, schedule=face.schedule_conv2d_nchw)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
    np.testing.assert_allclose(found, np.einsum("nchwij,ocij->nohw", windows, w), rtol=1e-5, atol=1e-5)


def test_what_callers_of_a_template_give() -> None:
    assert list(inspect.signature(topi.x86.dense_pack).parameters)[:4] == ["data", "weight", "bias", "out_dtype"]
    assert list(inspect.signature(topi.x86.schedule_dense_pack).parameters) == ["outs"]


def test_what_a_processor_can_do_by_its_name() -> None:
    newer = [topi.x86.utils.target_has_avx512(name) for name in ("skylake-avx512", "haswell", None)]
    assert newer == [True, False, False]
    assert topi.x86.utils.target_has_vnni("cascadelake") and not topi.x86.utils.target_has_vnni("skylake-avx512")
    assert topi.x86.utils.target_has_avx2("haswell") and not topi.x86.utils.target_has_avx2("sandybridge")
    with Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"):
        assert topi.x86.utils.get_simd_32bit_lanes() == 8


def test_convolutions_with_channels_last_of_one_and_three_dimensions() -> None:
    x, w = random(2, 9, 3), random(2, 3, 5, seed=1)
    direct = partial(evaluate, schedule=topi.x86.schedule_conv1d_nwc)
    found = direct(lambda a, b: topi.x86.conv1d_nwc(a, b, 1, 0, 1, "float32"), x, w)
    windows = np.lib.stride_tricks.sliding_window_view(x, 2, axis=1)
    np.testing.assert_allclose(found, np.einsum("nwci,ico->nwo", windows, w), rtol=1e-5, atol=1e-5)

    x, w = random(1, 3, 4, 5, 2), random(2, 1, 3, 2, 17, seed=1)
    direct = partial(evaluate, schedule=topi.x86.schedule_conv3d_ndhwc)
    found = direct(lambda a, b: topi.x86.conv3d_ndhwc(a, b, 1, 0, 1, "float32"), x, w)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 1, 3), axis=(1, 2, 3))
    np.testing.assert_allclose(found, np.einsum("ndhwcijk,ijkco->ndhwo", windows, w), rtol=1e-5, atol=1e-5)


def test_tiles_of_winograd_s_volumes_are_larger_where_rows_are_groups_of_eight() -> None:
    from tilewright.topi.cuda.conv3d_winograd import _infer_tile_size

    kernel = np.zeros((2, 3, 3, 3, 3))
    sizes = {rows: _infer_tile_size(np.zeros((1, 3, 4, rows, 5)), kernel) for rows in (1, 4, 8, 12, 16)}
    assert sizes == {1: 2, 4: 2, 8: 4, 12: 2, 16: 4}
