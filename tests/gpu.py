"""The GPU that tests run kernels on: OpenCL's, or what the environment variable ``TILEWRIGHT_TEST_GPU`` names.

``TILEWRIGHT_TEST_GPU="cuda -arch=sm_90"`` (``make test-gpu``) takes the same tests to an NVIDIA GPU.
"""

from __future__ import annotations

import os
import re
import time

import pytest

from tilewright import runtime

GPU_TARGET = os.environ.get("TILEWRIGHT_TEST_GPU", "opencl")
GPU_KIND = GPU_TARGET.split()[0]
GPU = runtime.device(GPU_KIND, 0)

# What only an NVIDIA GPU can show: no machine of continuous integration has one.
only_on_nvidia = [
    pytest.mark.soak,
    pytest.mark.skipif(not runtime.cuda(0).exist, reason="there is no NVIDIA GPU"),
]


def need_gpu(device: runtime.Device = GPU) -> None:
    """Skip a test where its GPU is absent; in CI, where PoCL is installed, it goes on and fails."""
    if not device.exist and "CI" not in os.environ:
        pytest.skip(f"there is no device {device}; `make system-packages` installs PoCL, a device of OpenCL")


_LOST = re.compile("CUDA_ERROR_(ILLEGAL|MISALIGNED|LAUNCH_FAILED|LAUNCH_TIMEOUT|INVALID_PC|HARDWARE|ASSERT)")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End a worker of pytest-xdist after a test by whose error its context is lost; xdist starts another."""
    if report.failed and "PYTEST_XDIST_WORKER" in os.environ and _LOST.search(str(report.longrepr)):
        time.sleep(0.5)  # until the report is sent
        os._exit(1)
