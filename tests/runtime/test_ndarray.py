"""Arrays, and the memory that they share with numpy and PyTorch."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch

from tilewright import runtime
from tilewright.runtime.ndarray import numpy_view

SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5)]
DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint8", "bool", "bfloat16"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_values_come_back(shape: tuple[int, ...], dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2, shape).astype(runtime.numpy_dtype(dtype))
    array = runtime.array(values)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.device == runtime.cpu(0)
    assert array.nbytes == values.nbytes
    assert array.numpy().dtype == values.dtype
    np.testing.assert_array_equal(array.numpy(), values)
    np.testing.assert_array_equal(array.asnumpy(), values)


def test_lists_and_strided_arrays_are_copied_compactly() -> None:
    np.testing.assert_array_equal(runtime.array([[1, 2], [3, 4]]).numpy(), [[1, 2], [3, 4]])
    values = np.arange(24.0).reshape(4, 6)[::2, ::-3]
    np.testing.assert_array_equal(runtime.array(values).numpy(), values)


def test_copyfrom_converts_and_checks_the_shape() -> None:
    array = runtime.empty((2, 2), "int32")
    array.copyfrom([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(array.numpy(), [[1, 2], [3, 4]])
    array[:] = np.zeros((2, 2))
    assert not array.numpy().any()
    with pytest.raises(ValueError, match=r"\(4,\) vs \(2, 2\)"):
        array.copyfrom(np.zeros(4))
    with pytest.raises(ValueError, match="a\\[:\\]"):
        array[0] = 1


def test_copyto_array_and_device() -> None:
    source, target = runtime.array(np.arange(3)), runtime.empty((3,), "int64")
    assert source.copyto(target) is target
    np.testing.assert_array_equal(target.numpy(), [0, 1, 2])
    fresh = source.copyto(runtime.cpu())
    assert not fresh.same_as(source)
    with pytest.raises(ValueError, match="cannot copy an array of shape"):
        source.copyto(runtime.empty((4,), "int64"))


def test_vector_types_have_their_lanes_last_in_numpy() -> None:
    array = runtime.empty((3,), "float32x4")
    array.copyfrom(np.arange(12, dtype="float32").reshape(3, 4))
    assert array.shape == (3,)
    assert array.numpy().shape == (3, 4)


def test_numpy_shares_memory_both_ways() -> None:
    values = np.arange(6, dtype="float32").reshape(2, 3)
    array = runtime.numpyasarray(values)
    values[1, 2] = 50
    assert array.numpy()[1, 2] == 50
    owner = runtime.array(values)
    view = np.from_dlpack(owner)
    owner.copyfrom(np.zeros((2, 3)))
    assert view.sum() == 0


def test_shared_numpy_memory_lives_as_long_as_the_array() -> None:
    class Watched(np.ndarray):
        """An array that can be watched."""

    values = np.arange(5.0).view(Watched)
    gone = weakref.ref(values)
    array = runtime.from_dlpack(values)
    del values
    gc.collect()
    assert array.numpy().sum() == 10
    del array
    gc.collect()
    assert gone() is None


def test_bfloat16_numpy_memory_is_shared() -> None:
    values = np.ones(4, ml_dtypes.bfloat16)
    array = runtime.numpyasarray(values)
    values[0] = 3
    assert array.dtype == "bfloat16"
    assert float(array.numpy()[0]) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.uint8])
def test_torch_shares_memory_both_ways(dtype: torch.dtype) -> None:
    tensor = torch.ones(2, 3).to(dtype)
    array = runtime.from_dlpack(tensor)
    tensor[0, 1] = 0
    assert float(array.numpy()[0, 1]) == 0
    back = torch.from_dlpack(array)
    assert back.dtype == dtype
    assert back.data_ptr() == tensor.data_ptr()
    capsule = torch.utils.dlpack.from_dlpack(array.to_dlpack())
    assert torch.equal(capsule, tensor)


def test_transposed_torch_tensor_keeps_its_order() -> None:
    tensor = torch.arange(6).reshape(2, 3).t()
    array = runtime.from_dlpack(tensor)
    assert not array.is_contiguous
    np.testing.assert_array_equal(array.numpy(), tensor.numpy())
    assert runtime.array(array).is_contiguous


def test_array_outlives_what_it_was_taken_from() -> None:
    array = runtime.from_dlpack(torch.full((100,), 7.0))
    tensor = torch.from_dlpack(array)
    del array
    gc.collect()
    assert tensor.sum() == 700


def test_capsule_is_consumed_once() -> None:
    capsule = runtime.array([1, 2]).to_dlpack()
    runtime.from_dlpack(capsule)
    with pytest.raises(ValueError, match="nobody has consumed"):
        runtime.from_dlpack(capsule)
    with pytest.raises(ValueError, match="nobody has consumed"):
        runtime.from_dlpack("not a capsule")


def test_unconsumed_capsule_frees_its_array() -> None:
    class Watched(np.ndarray):
        """An array that can be watched."""

    values = np.arange(5.0).view(Watched)
    gone = weakref.ref(values)
    capsule = runtime.from_dlpack(values).to_dlpack()
    del values
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


def test_copies_are_made_when_asked_for() -> None:
    owner = runtime.array(np.zeros(3))
    taken = np.from_dlpack(owner, copy=True)
    owner.copyfrom(np.ones(3))
    assert taken.sum() == 0


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(runtime.TVMError, match="out of memory"):
        runtime.empty((1 << 60,), "int8")
    with pytest.raises(runtime.TVMError, match="negative"):
        runtime.empty((-1,))


def test_a_numpy_view_shares_the_memory_and_keeps_it_alive() -> None:
    array = runtime.array(np.arange(6, dtype="float32").reshape(2, 3))
    view = numpy_view(array, writable=True)
    view[1, 2] = 9
    assert array.numpy()[1, 2] == 9
    del array
    np.testing.assert_array_equal(view, [[0, 1, 2], [3, 4, 9]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_numpy_view_has_shape_and_dtype_and_is_read_only(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(runtime.numpy_dtype(dtype))
    view = numpy_view(runtime.array(values))
    assert (view.shape, view.dtype) == (values.shape, values.dtype)
    np.testing.assert_array_equal(view, values)
    if view.size:
        assert not view.flags.writeable
