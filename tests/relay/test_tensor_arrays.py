"""Tensor arrays: lists of tensors that programs write and read; numpy says what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.prelude import Prelude, StaticTensorArrayOps, TensorArrayOps, get_tensor_array_shape

RNG = np.random.default_rng(0)


def _evaluate(prelude: Prelude, expr: relay.RelayExpr, kind: str = "debug") -> Any:
    mod = prelude.mod.copy()
    mod["main"] = relay.Function([], expr)
    return relay.create_executor(kind, mod).evaluate()()


def _arrays(value: Any) -> list[np.ndarray | None]:
    """The elements of a list of values that are tensors, or None."""
    found = []
    while value.fields:
        element, value = value.fields
        found.append(element.fields[0].numpy() if element.fields else None)
    return found


def _data(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal(shape) * 8).astype(dtype)


def _filled(p: Prelude, dtype: str, rank: int, values: list[np.ndarray]) -> relay.RelayExpr:
    """An array of tensors of unknown dimensions."""
    array = p.get_global_var("tensor_array", dtype)(relay.const(len(values)))
    for i, value in enumerate(values):
        wrapped = p.get_tensor_ctor(f"tensor{rank}", dtype)(relay.const(value))
        array = p.get_global_var("tensor_array_write", dtype)(array, relay.const(i), wrapped)
    return array


def _equal(found: list[np.ndarray | None], wanted: list[np.ndarray | None]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_arrays_begin_with_nothing_and_keep_what_is_written(dtype: str) -> None:
    p = Prelude()
    array = p.get_global_var("tensor_array", dtype)(relay.const(3))
    _equal(_arrays(_evaluate(p, array)), [None] * 3)
    value = _data((2, 5), dtype)
    wrapped = p.get_tensor_ctor("tensor2", dtype)(relay.const(value))
    written = p.get_global_var("tensor_array_write", dtype)(array, relay.const(1), wrapped)
    _equal(_arrays(_evaluate(p, written)), [None, value, None])
    read = p.get_global_var("tensor_array_read", dtype)(written, relay.const(1))
    np.testing.assert_array_equal(_evaluate(p, read).fields[0].numpy(), value)


def test_a_module_gets_the_arrays_that_are_asked_for() -> None:
    p = Prelude()
    before = len(p.mod)
    assert not any("tensor" in v.name_hint for v in p.mod.get_global_type_vars())
    p.get_type("tensor_t", "float64")
    once = len(p.mod)
    TensorArrayOps(p, "float64").register()
    assert before < once == len(p.mod)
    relay.transform.InferType()(p.mod)


@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 1, 3), (2, 3, 1, 2), (2, 1, 1, 1, 3), (3, 1, 2, 1, 1, 1)])
def test_tensors_are_taken_apart_and_stacked(shape: tuple[int, ...]) -> None:
    p, value = Prelude(), _data(shape)
    unstack = p.get_global_var(f"tensor_array_unstack_tensor{len(shape)}", "float32")
    parts = unstack(relay.const(value))
    _equal(_arrays(_evaluate(p, parts)), list(value))
    whole = p.get_global_var("tensor_array_stack", "float32")(parts)
    np.testing.assert_array_equal(_evaluate(p, whole).fields[0].numpy(), value)


@pytest.mark.parametrize("rank", [1, 2, 6])
def test_arrays_are_joined_gathered_scattered_and_split(rank: int) -> None:
    p = Prelude()
    inner = (2,) * (rank - 1)
    values = [_data((n, *inner)) for n in (1, 3, 2)]
    array = _filled(p, "float32", rank, values)
    joined = p.get_global_var("tensor_array_concat", "float32")(array)
    np.testing.assert_array_equal(_evaluate(p, joined).fields[0].numpy(), np.concatenate(values))

    lengths = relay.const(np.array([1, 3, 2], "int32"))
    empty = p.get_global_var("tensor_array", "float32")(relay.const(3))
    split = p.get_global_var("tensor_array_split", "float32")(empty, joined, lengths)
    _equal(_arrays(_evaluate(p, split)), values)

    indices = relay.const(np.array([2, 0], "int32"))
    scattered = p.get_global_var("tensor_array_scatter", "float32")(empty, indices, array)
    _equal(_arrays(_evaluate(p, scattered)), [values[1], None, values[0]])

    if rank < 6:
        same = _filled(p, "float32", rank, [_data((2, *inner)) for _ in range(3)])
        gathered = p.get_global_var("tensor_array_gather", "float32")(same, indices)
        wanted = [_arrays(_evaluate(p, same))[i] for i in (2, 0)]
        np.testing.assert_array_equal(_evaluate(p, gathered).fields[0].numpy(), np.stack(wanted))


def _static(p: Prelude, shape: tuple[Any, ...], values: list[np.ndarray], **kwargs: Any) -> tuple[Any, relay.RelayExpr]:
    """The functions for tensors of a shape, and an array of such tensors."""
    ops = StaticTensorArrayOps(p, "float32", shape, **kwargs)
    ops.register()
    array = ops.get_global_var("tensor_array")(relay.const(len(values)))
    for i, value in enumerate(values):
        wrapped = ops.get_ctor("tensor_constructor")(relay.const(value))
        array = ops.get_global_var("tensor_array_write")(array, relay.const(i), wrapped)
    return ops, array


@pytest.mark.parametrize("shape", [(), (5,), (1, 3), (2, relay.Any(), 3)])
def test_tensors_of_one_shape(shape: tuple[Any, ...]) -> None:
    p = Prelude()
    concrete = tuple(4 if isinstance(d, tvm.tir.Any) else d for d in shape)
    values = [_data(concrete) for _ in range(3)]
    ops, array = _static(p, shape, values)
    assert get_tensor_array_shape(array, "float32", p) is not None
    _equal(_arrays(_evaluate(p, array)), values)
    indices = relay.const(np.array([2, 0], "int32"))
    gathered = ops.get_global_var("tensor_array_gather")(array, indices)
    np.testing.assert_array_equal(_evaluate(p, gathered).fields[0].numpy(), np.stack([values[2], values[0]]))
    stacked = ops.get_global_var("tensor_array_stack")(array)
    np.testing.assert_array_equal(_evaluate(p, stacked).fields[0].numpy(), np.stack(values))
    first = ops.get_global_var("tensor_array_read")(array, relay.const(0))
    data = ops.get_global_var("tensor_get_data")(first)
    np.testing.assert_array_equal(_evaluate(p, data).numpy(), values[0])
    scattered = ops.get_global_var("tensor_array_scatter")(array, indices, array)
    _equal(_arrays(_evaluate(p, scattered)), [values[1], values[1], values[0]])
    if shape:
        parts = ops.get_global_var("tensor_array_unstack")(relay.const(values[0]))
        _equal(_arrays(_evaluate(p, parts)), list(values[0]))
        taken = ops.get_global_var("tensor_take")(first, relay.const(0), relay.const(1))
        np.testing.assert_array_equal(_evaluate(p, taken).fields[0].numpy(), values[0][:1])


def test_names_say_type_and_shape() -> None:
    p = Prelude()
    assert p.get_name_static("tensor_t", "int8", (2, relay.Any())) == "static_tensor_int8_2_any_t"
    assert p.get_name_static("tensor_nil", "int8", ()) == "tensor_nil_int8_scalar"
    assert p.get_name_static("tensor_array_stack", "int8", (3,), 1) == "tensor_array_stack_int8_batch1_3"
    _, array = _static(p, (2, relay.Any()), [])
    shape = get_tensor_array_shape(array, "float32", p)
    assert shape is not None and shape[0] == 2 and isinstance(shape[1], tvm.tir.Any)
    assert get_tensor_array_shape(p.get_global_var("tensor_array", "float32")(relay.const(1)), "float32", p) is None


def test_splitting_and_joining_tensors_of_one_shape() -> None:
    p, value = Prelude(), _data((6, 2))
    ops, _ = _static(p, (6, 2), [])
    pieces = StaticTensorArrayOps(p, "float32", (relay.Any(), 2))
    pieces.register()
    empty = pieces.get_global_var("tensor_array")(relay.const(3))
    lengths = relay.const(np.array([1, 3, 2], "int32"))
    wrapped = ops.get_ctor("tensor_constructor")(relay.const(value))
    split = ops.get_global_var("tensor_array_split")(empty, wrapped, lengths)
    _equal(_arrays(_evaluate(p, split)), [value[:1], value[1:4], value[4:]])
    joined = ops.get_global_var("tensor_array_concat")(split)
    np.testing.assert_array_equal(_evaluate(p, joined).fields[0].numpy(), value)


def test_definitions_for_indices_of_a_known_number_replace_the_general_ones() -> None:
    p = Prelude()
    ops, array = _static(p, (2,), [_data((2,)) for _ in range(3)])
    ops.define_tensor_array_scatter((2,), force_update=True)
    scatter = ops.get_global_var("tensor_array_scatter")
    assert "Tensor[(2), int32]" in str(p.mod[scatter].params[1].type_annotation)
    before = _arrays(_evaluate(p, array))
    scattered = scatter(array, relay.const(np.array([1, 0], "int32")), array)
    _equal(_arrays(_evaluate(p, scattered)), [before[1], before[0], before[2]])


def test_one_element_stacks_to_the_dimension_1() -> None:
    p, value = Prelude(), _data((3,))
    ops, array = _static(p, (3,), [value], batch_dim=1)
    stacked = ops.get_global_var("tensor_array_stack")(array)
    np.testing.assert_array_equal(_evaluate(p, stacked).fields[0].numpy(), value[None])
    assert p.get_type_static("tensor_t", "float32", (1, 3)).name_hint == "static_tensor_float32_1_3_t"


def test_the_virtual_machine_runs_them() -> None:
    p = Prelude()
    values = [_data((n, 2)) for n in (2, 1)]
    joined = p.get_global_var("tensor_array_concat", "float32")(_filled(p, "float32", 2, values))
    found = _evaluate(p, joined, "vm")
    np.testing.assert_array_equal(found[0].numpy(), np.concatenate(values))


def test_a_constructor_that_is_not_there() -> None:
    with pytest.raises(
        ValueError, match=r"no constructor tensor7_float32; there is tensor_nil_float32, tensor0_float32"
    ):
        Prelude().get_tensor_ctor("tensor7", "float32")


def test_a_module_with_a_prelude_knows_the_types_of_tensor_arrays() -> None:
    mod = Prelude().mod
    assert mod.get_type("tensor_float32_t")[1].name_hint == "tensor_nil_float32"
    for name in ("tensor_float_t", "tensor_x32_t"):
        with pytest.raises(tvm.TVMError, match="defines no type"):
            mod.get_type(name)
