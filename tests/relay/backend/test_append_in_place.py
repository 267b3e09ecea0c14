"""What a program appends to an input and gives back grows in that input's memory; numpy tells what it must be."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.ir.module import IRModule
from tilewright.ir.prim_expr import Any as AnyDim
from tilewright.ir.prim_expr import DimVar
from tilewright.runtime.vm import Executable, VirtualMachine, with_capacity

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def grower(dims: tuple[Any, ...], more: tuple[Any, ...], axis: int) -> Executable:
    """(past, new) -> (past and new along ``axis``, twice their values, the sum over the last axis)."""
    past, new = (relay.var(n, relay.TensorType(s, "float32")) for n, s in (("past", dims), ("new", more)))
    whole = relay.concatenate((past, new), axis=axis)
    results = relay.Tuple([whole, relay.add(whole, whole), relay.sum(relay.exp(past), axis=-1)])
    return relay.vm.compile(IRModule.from_expr(relay.Function([past, new], results)), "llvm")


def machine_of(exe: Executable) -> VirtualMachine:
    return VirtualMachine(Executable.load_exec(*exe.save()), tvm.cpu())


def address(tensor: Any) -> int:
    return int(tensor._tensor.data)


def check(machine: VirtualMachine, past: Any, new: Array, axis: int) -> Any:
    """The whole tensor of one step, to 1e-5."""
    before = past.numpy()
    whole, twice, sums = machine.run(past, new)
    wanted = np.concatenate([before, new], axis)
    np.testing.assert_array_equal(whole.numpy(), wanted)
    np.testing.assert_array_equal(twice.numpy(), 2 * wanted)
    np.testing.assert_allclose(sums.numpy(), np.exp(before).sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(past.numpy(), before)
    return whole


def shapes_along(axis: int, sizes: tuple[int, ...], unknown: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    return (*sizes[:axis], unknown, *sizes[axis + 1 :]), (*sizes[:axis], 1, *sizes[axis + 1 :])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("unknown", [DimVar("past", 0, 100), AnyDim()])
def test_results_grow_without_being_copied(axis: int, unknown: Any) -> None:
    sizes = (3, 5, 7)
    dims, more = shapes_along(axis, sizes, unknown)
    machine = machine_of(grower(dims, more, axis))
    start = [2 if i == axis else n for i, n in enumerate(sizes)]
    whole = check(machine, tvm.nd.array(floats(*start)), floats(*more), axis)
    addresses = [address(whole := check(machine, whole, floats(*more), axis)) for _ in range(40)]
    assert len(set(addresses)) <= 4  # each doubling of the memory copies


def test_memory_with_room_is_never_copied() -> None:
    dims, more = shapes_along(2, (1, 3, 1, 4), DimVar("past", 0, 100))
    machine = machine_of(grower(dims, more, 2))
    past = with_capacity(np.zeros((1, 3, 0, 4), "float32"), 2, 20)
    for _ in range(20):
        whole = check(machine, past, floats(*more), 2)
        assert address(whole) == address(past)
        past = whole
    assert past.shape == (1, 3, 20, 4) and not past.is_contiguous
    assert address(check(machine, past, floats(*more), 2)) != address(past)  # it is full


def test_caches_that_share_large_pages_do_not_see_each_other() -> None:
    def cache(number: int) -> Any:
        rows = 300 + 8000 * (number % 3)  # with and without a huge page of its own
        return with_capacity(np.full((2, 3, 8), number, "float32"), 1, 3 * rows)

    held = {number: cache(number) for number in range(60)}
    for number in range(0, 60, 2):
        del held[number]
    held.update({number: cache(number) for number in range(60, 100)})
    for number, found in held.items():
        assert address(found) % 64 == 0
        np.testing.assert_array_equal(found.numpy(), np.full((2, 3, 8), number, "float32"))
    spans = sorted((address(x), address(x) + 3 * (300 + 8000 * (n % 3)) * 64) for n, x in held.items())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_two_continuations_of_one_past_do_not_see_each_other() -> None:
    dims, more = shapes_along(1, (2, 1, 3), DimVar("past", 1, 100))
    machine = machine_of(grower(dims, more, 1))
    past = with_capacity(floats(2, 4, 3), 1, 16)
    one = check(machine, past, floats(*more), 1)
    kept = one.numpy()
    other = check(machine, past, floats(*more), 1)
    assert address(one) == address(past) != address(other)
    np.testing.assert_array_equal(one.numpy(), kept)
    check(machine, one, floats(*more), 1)
    check(machine, other, floats(*more), 1)


def test_an_input_and_several_others_are_no_cache() -> None:
    past, new = (relay.var(n, relay.TensorType((DimVar(n, 0, 9), 3), "float32")) for n in ("past", "new"))
    whole = relay.concatenate((past, new, relay.exp(new)), axis=0)
    with tvm.transform.PassContext(opt_level=3):
        exe = relay.vm.compile(IRModule.from_expr(relay.Function([past, new], whole)), "llvm")
    assert "tilewright.vm.append" not in exe.primitive_ops
    a, b = floats(2, 3), floats(4, 3)
    np.testing.assert_allclose(machine_of(exe).run(a, b).numpy(), np.concatenate([a, b, np.exp(b)]), rtol=1e-5)


def test_several_rows_and_none_at_a_time() -> None:
    rows, count = DimVar("past", 0, 100), DimVar("new", 0, 100)
    machine = machine_of(grower((2, rows, 3), (2, count, 3), 1))
    whole: Any = tvm.nd.array(floats(2, 0, 3))
    for more in (0, 1, 17, 0, 30):
        whole = check(machine, whole, floats(2, more, 3), 1)
    assert whole.shape == (2, 48, 3)


def test_what_is_not_given_back_or_not_alone_stays_a_concatenation() -> None:
    past = relay.var("past", relay.TensorType((2, DimVar("past"), 3), "float32"))
    new = relay.var("new", relay.TensorType((2, 1, 3), "float32"))
    whole = relay.concatenate((past, new), axis=1)
    for body in (relay.exp(whole), relay.Tuple([relay.stack([whole, whole], 0), whole])):
        exe = relay.vm.compile(IRModule.from_expr(relay.Function([past, new], body)), "llvm")
        assert "tilewright.vm.append" not in exe.primitive_ops


def test_an_array_with_room_elsewhere_is_copied_in() -> None:
    x = relay.var("x", relay.TensorType((2, DimVar("n"), 3), "float32"))
    exe = relay.vm.compile(IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm")
    given = with_capacity(floats(2, 5, 3), 1, 9)
    np.testing.assert_allclose(machine_of(exe).run(given).numpy(), np.exp(given.numpy()), rtol=1e-5)


def test_room_that_cannot_be() -> None:
    data = floats(2, 3)
    with pytest.raises(tvm.TVMError, match="a capacity of 2 for 3 rows"):
        with_capacity(data, 1, 2)
    with pytest.raises(tvm.TVMError, match="axis 2 of 2 dimensions"):
        with_capacity(data, 2, 9)
    with pytest.raises(tvm.TVMError, match="memory"):
        with_capacity(data, 1, 2**62)


DECODER = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 1, 32] x, float[1, 4, past, 8] keys, float[1, 4, past, 8] values)
    => (float[1, 1, 32] y, float[1, 4, now, 8] keys_now, float[1, 4, now, 8] values_now)
    <int64[4] split = {1, 1, 4, 8}, int64[3] join = {1, 1, 32}, float scale = {0.35},
     int64 axis = {2}, int64 one = {1}> {
  parts = Reshape(x, split)
  heads = Transpose <perm = [0, 2, 1, 3]> (parts)
  keys_now = Concat <axis = 2> (keys, heads)
  double = Add(heads, heads)
  values_now = Concat <axis = 2> (values, double)
  turned = Transpose <perm = [0, 1, 3, 2]> (keys_now)
  products = MatMul(heads, turned)
  scaled = Mul(products, scale)
  weights = Softmax <axis = -1> (scaled)
  mixed = MatMul(weights, values_now)
  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
  flat = Reshape(back, join)
  sizes = Shape(keys)
  past_size = Gather(sizes, axis)
  end = Add(past_size, one)
  places = Range(past_size, end, one)
  place = Cast <to = 1> (places)
  y = Add(flat, place)
}"""


@pytest.mark.parametrize("versions", ["", "past=5;past=16:24"])
def test_a_decoder_of_onnx_generates(versions: str) -> None:
    """Attention over a growing cache, 40 steps, beside ONNX's reference, to 1e-4."""
    model = onnx.parser.parse_model(DECODER)
    mod, params = relay.frontend.from_onnx(model, dims={"past": (0, 100)})
    with tvm.transform.PassContext(opt_level=3, config={"relay.vm.specialize": versions}):
        exe = relay.vm.compile(mod, "llvm", params=params)
    assert any("nn_attention" in name for name in exe.primitive_ops)
    assert "dyn" not in " ".join(exe.primitive_ops)  # the length of Range is known over the names
    machine, reference = machine_of(exe), ReferenceEvaluator(model)
    cache: list[Any] = [with_capacity(np.zeros((1, 4, 0, 8), "float32"), 2, 48) for _ in range(2)]
    wanted = [c.numpy() for c in cache]
    places = [address(c) for c in cache]
    x = floats(1, 1, 32)
    for _ in range(40):
        y, *cache = machine.run(x, *cache)
        expected, *wanted = reference.run(None, {"x": x, "keys": wanted[0], "values": wanted[1]})
        for found, want in zip((y, *cache), (expected, *wanted), strict=True):
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-4)
        x = np.tanh(expected)
    assert [address(c) for c in cache] == places
    assert isinstance(cache[0], runtime.NDArray)
