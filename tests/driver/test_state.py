"""What a model keeps from run to run: in libraries, from Python and from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.driver.command import fails, tilewright
from torch import nn

import tilewright as tvm


class Running(nn.Module):
    """The sum of what it was given, and how often; begins at 10."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((1, 3), 10.0))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum so far."""
        self.total.add_(x.sum(0, keepdim=True))
        self.count.add_(1)
        return self.total.clone()


def _program(dynamic: bool) -> torch.export.ExportedProgram:
    sizes = ({0: torch.export.Dim("rows", min=1, max=8)},) if dynamic else None
    return torch.export.export(Running().eval(), (torch.ones(2, 3),), dynamic_shapes=sizes)


ONES = np.ones((2, 3), "float32")


@pytest.mark.parametrize("dynamic", [False, True], ids=["graph", "program"])
def test_a_loaded_library_goes_on_from_its_first_values(dynamic: bool, tmp_path: Path) -> None:
    compiled = tvm.compile(_program(dynamic))
    compiled(ONES)
    compiled.save(tmp_path / "model.so")
    model = tvm.load(tmp_path / "model.so")
    assert (list(model.inputs), len(model.outputs)) == (["x"], 1)
    assert [float(model(ONES)[0, 0]) for _ in range(3)] == [12, 14, 16]
    assert model.state["count"] == 3
    model.reset()
    assert model(ONES).tolist() == [[12, 12, 12]]
    assert compiled.state["count"] == 1


def test_a_state_that_was_kept_is_resumed(tmp_path: Path) -> None:
    model = tvm.compile(_program(False))
    model(ONES)
    kept = model.state
    model(ONES)
    model.resume(kept)
    assert model(ONES).tolist() == [[14, 14, 14]]
    model.resume({"total": np.zeros((1, 3), "float32")})
    assert model(ONES).tolist() == [[2, 2, 2]]
    with pytest.raises(tvm.error.TVMError, match="keeps no 'sum' from call to call; it keeps"):
        model.resume({"sum": kept["total"]})
    with pytest.raises(tvm.error.TVMError, match="shape"):
        model.resume({"total": np.zeros((2, 3), "float32")})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    torch.export.save(_program(False), folder / "model.pt2")
    assert tilewright("compile", folder / "model.pt2", "-o", folder / "model.so").returncode == 0
    np.save(folder / "x.npy", ONES)
    return folder / "model.so"


def _total(library: Path, *options: object) -> float:
    result = library.with_name("y.npy")
    made = tilewright("run", library, "--inputs", library.with_name("x.npy"), "-o", result, *options)
    assert made.returncode == 0, made.stderr
    return float(np.load(result)[0, 0])


def test_a_run_begins_with_the_first_values(library: Path) -> None:
    assert [_total(library), _total(library)] == [12, 12]


def test_runs_go_on_from_a_file_of_states(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.npz"
    assert [_total(library, "--state", file) for _ in range(3)] == [12, 14, 16]
    with np.load(file) as state:
        assert sorted(state.files) == ["count", "total"] and state["count"] == 3


def test_wrong_files_of_states_are_named(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "state.npz"
    command = ("run", library, "--inputs", library.with_name("x.npy"), "--state", file)
    np.savez(file, total=np.zeros((1, 3), "float32"))
    fails(tilewright(*command), "it has total", "model.so keeps total, count")
    file.write_bytes(b"PK\x03\x04 no more")
    fails(tilewright(*command), "cut off")
    fails(tilewright(*command[:-1], tmp_path / "state.txt"), "called *.npz")
