"""How the runtime drives CUDA, against a stand-in for ``libcuda.so.1`` (``cuda_double/driver.c``).

There is no NVIDIA GPU here: these tests show that our calls keep to the driver's interface, not that it takes them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.gpu_sources import compile_cuda_double
from tests.runtime.kernels import ROOT


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled."""
    return compile_cuda_double(tmp_path_factory.mktemp("cuda") / "libcuda.so.1", "-O1")


def run(driver: Path, log: Path, program: str, *args: str, **settings: str) -> tuple[str, list[str]]:
    """Run a function of cuda_programs; its output, and the log of the stand-in."""
    environment = os.environ | {"TILEWRIGHT_CUDA": str(driver), "FAKE_CUDA_LOG": str(log)} | settings
    command = [sys.executable, "-m", "tests.runtime.cuda_programs", program, *args]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(
    "program", ["attributes", "compute", "limits", "no_executor_of_ours", "no_image", "threads", "timing"]
)
def test_a_device_of_cuda(driver: Path, tmp_path: Path, program: str) -> None:
    run(driver, tmp_path / "log", program)


def test_memory_is_kept_for_the_next(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "pool")[1]
    assert log.count("alloc") == 1 + 14 + 1  # the one that lay idle went back before memory was told to lack


def test_pinned_memory_is_copied_without_the_hosts_help(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "arrays", FAKE_CUDA_DEVICES="2")[1]
    assert log.count("pin") == 1 and log.count("copy pinned to device") == 1 and log.count("copy to peer") == 1


def test_a_copy_to_a_peer_waits_for_both_devices(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "peers", FAKE_CUDA_DEVICES="2")[1]
    copies = [i for i, line in enumerate(log) if line.startswith("copy to peer")]
    assert [log[i : i + 3] for i in copies] == [["copy to peer", "copy on device", "wait"]] * 2


def test_streams_keep_their_order(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "streams")[1]
    assert log.count("launch count_threads (1, 1, 1) (1, 1, 1) 0") == 5


@pytest.mark.parametrize(
    ("device", "extra", "chosen"),
    [
        ("80", "sm_80", 80),
        ("86", "sm_80", 80),
        ("75", "sm_80", 75),
        ("72", "sm_80", 70),
        ("90", "sm_90a", 90),
        ("92", "sm_90a", 75),
    ],
)
def test_a_device_gets_the_code_of_the_highest_architecture_it_can_run(
    driver: Path, tmp_path: Path, device: str, extra: str, chosen: int
) -> None:
    log = run(driver, tmp_path / "log", "several_architectures", extra, FAKE_CUDA_ARCHITECTURE=device)[1]
    assert [line for line in log if line.startswith("load")] == [f"load sm_{chosen}"]


def test_a_library_holds_the_kernels(driver: Path, tmp_path: Path) -> None:
    run(driver, tmp_path / "log", "library", str(tmp_path / "kernels.so"))


def test_a_network_is_launched_as_one_graph(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "cuda_graph")[1]
    kernels = [line.split()[0] for line in log if "scaled_add" in line or line == "launch graph"]
    # a run that loads the code and one that is recorded; three launches; both again for the input that moved
    once = ["launch", "launch", "capture", "capture", "launch"]
    assert kernels == [*once, "launch", "launch", *once]
    assert log.count("launch graph") == 4


def test_what_a_kernel_finds_wrong_ends_the_run_of_either_executor(driver: Path, tmp_path: Path) -> None:
    assert run(driver, tmp_path / "log", "findings")[1].count("launch graph") == 7


def test_a_graph_is_launched_where_the_threads_work_goes(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "cuda_graph_on_a_stream")[1]
    assert [line for line in log if line.startswith("launch graph")] == ["launch graph on stream 1"]


def test_a_compiled_network_launches_its_kernels_in_order(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "network")[1]
    kernels = [line.split()[:2] for line in log if "_kernel" in line]
    once = [name for what, name in kernels if what == "capture"]
    assert "max_pool2d" in once[-2] and "dense" in once[-1]
    # the executor's run, the recorder's run that loads the code, and the one that is recorded
    assert [name for _, name in kernels] == once * 3
    assert log.count("launch graph") == 2


def test_what_cannot_be_recorded_runs_operator_by_operator(driver: Path, tmp_path: Path) -> None:
    log = run(driver, tmp_path / "log", "no_cuda_graph")[1]
    assert "launch graph" not in log


def test_without_a_driver_there_is_no_device_and_the_reason_is_told(tmp_path: Path) -> None:
    said = run(Path("/no/such/libcuda.so.1"), tmp_path / "log", "no_driver")[0]
    assert "there is no device cuda(0): there is no CUDA here: the driver's library cannot be loaded" in said


def test_a_driver_without_a_device_is_told(driver: Path, tmp_path: Path) -> None:
    said = run(driver, tmp_path / "log", "no_driver", FAKE_CUDA_DEVICES="0")[0]
    assert (
        "there is no CUDA here: cuInit failed: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE, status 100)"
        in said
    )
