"""Samples: arrays, iterables, files and folders; what does not fit is refused with what was expected and found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.quantization.networks import network

import tilewright
from tilewright.quantization.samples import SampleError, inputs_of, make_samples
from tilewright.runtime.interface import TensorInfo

ONE = {"x": TensorInfo((1, 2, 3), "float32")}
OPEN = {"ids": TensorInfo(("batch", 4), "int64")}


def shapes(data: Any, inputs: dict[str, TensorInfo] = ONE) -> list[tuple[int, ...]]:
    name = next(iter(inputs))
    return [sample[name].shape for sample in make_samples(data, inputs)]


@pytest.mark.parametrize(
    ("shape", "count"), [((1, 2, 3), 1), ((5, 2, 3), 5), ((5, 1, 2, 3), 5)], ids=["one", "rows", "stacked"]
)
def test_an_array_is_as_many_samples_as_it_holds(shape: tuple[int, ...], count: int) -> None:
    assert shapes({"x": np.zeros(shape, "float32")}) == [(1, 2, 3)] * count
    assert shapes(np.zeros(shape, "float32")) == [(1, 2, 3)] * count


def test_a_named_batch_takes_some_samples_at_once() -> None:
    assert shapes({"ids": np.zeros((40, 4), "int64")}, OPEN) == [(16, 4), (16, 4), (8, 4)]


def test_an_iterable_has_a_sample_an_item() -> None:
    assert shapes({"x": np.zeros((1, 2, 3), "float32")} for _ in range(3)) == [(1, 2, 3)] * 3


def test_a_folder_has_samples_in_its_files_in_order(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.full((1, 2, 3), 2, "float32"))
    np.savez(tmp_path / "a.npz", x=np.full((2, 2, 3), 1, "float32"))
    assert [s["x"].max() for s in make_samples(tmp_path, ONE)] == [1, 1, 2]


def test_labels_come_with_an_npz_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2, 3), "float32"), labels=np.array([3, 4]))
    found = make_samples(tmp_path / "a.npz", ONE)
    assert found.labels is not None and found.labels.tolist() == [3, 4] and len(list(found)) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"no samples to calibrate with; give some values of the inputs: x \(float32 of shape \(1, 2, 3\)\)"),
        ({"y": np.zeros(3)}, r"no values for the input 'x'; found y, expected x"),
        ({"x": np.zeros((1, 2, 3), "float32"), "z": np.zeros(1)}, "the model has no input 'z'"),
        ({"x": np.zeros((1, 2, 3), "int32")}, r"expected float32 of shape \(1, 2, 3\), found int32 of shape"),
        (
            {"x": np.zeros((1, 3, 2), "float32")},
            r"expected float32 of shape \(1, 2, 3\), found float32 of",
        ),
        ({"x": np.full((1, 2, 3), np.nan, "float32")}, "'x' have elements that are not finite"),
        ("nowhere.npz", "nowhere.npz: no such file or folder"),
        (3, "samples are arrays by input name, an iterable of them, or a path, not int"),
    ],
)
def test_what_does_not_fit_is_refused(data: Any, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        list(make_samples(data, ONE))


def test_an_empty_folder_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="there are no samples"):
        make_samples(tmp_path, ONE)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SampleError, match=r"notes.txt: neither an .npz file nor an .npy array"):
        list(make_samples(tmp_path, ONE))


def test_inputs_with_different_numbers_of_samples_are_refused() -> None:
    inputs = {**ONE, "k": TensorInfo((1,), "float32")}
    with pytest.raises(SampleError, match="'x' has 5 samples, another one 7"):
        list(make_samples({"x": np.zeros((5, 2, 3), "float32"), "k": np.zeros(7, "float32")}, inputs))


def test_a_cache_that_is_empty_in_a_sample_is_a_dimension_from_0_on() -> None:
    model = network(
        "f (float[1, 2, 32] x, float[1, past, 32] cache) => (float[1, all, 16] y) {"
        " rows = Concat<axis=1>(cache, x) y = MatMul(rows, w) }",
        w=(32, 16),
    )
    data = [{"x": np.ones((1, 2, 32), "float32"), "cache": np.ones((1, n, 32), "float32")} for n in (3, 0)]
    samples = make_samples(data, inputs_of(model))
    assert samples.dims == {"past": (0, None)}
    assert make_samples(data[:1], inputs_of(model)).dims == {}
    made = tilewright.quantize(model, data)
    assert [node.op_type for node in made.model.graph.node].count("QuantizeLinear") == 1
