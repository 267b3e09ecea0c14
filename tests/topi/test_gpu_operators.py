"""Every operator's kernels for graphics processors give what numpy gives, on the GPU of the tests."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.gpu import GPU, GPU_TARGET
from tests.relay.op.harness import Case, check_kernels, typed
from tests.relay.op.test_every_operator import TABLES
from tests.tiers import every

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.target import Target

pytestmark = pytest.mark.skipif(not GPU.exist, reason=f"there is no device {GPU}; `make system-packages` installs PoCL")
Array = np.ndarray


def of_each_operator(items: Sequence[Case]) -> list[Case]:
    """The first case of each operator that has a kernel."""
    found: dict[str, Case] = {}
    for item in items:
        _, expr = typed(item)
        call = expr.astuple().fields[0].tuple_value if isinstance(expr, relay.TupleWrapper) else expr
        name = call.op.name if isinstance(call, relay.Call) and isinstance(call.op, tvm.ir.Op) else item.name
        if item.kernel and all(e.size for e in item.results):
            found.setdefault(name, item)
    return list(found.values())


@pytest.mark.parametrize("table", every(2, TABLES.values()), ids=TABLES.keys())
def test_each_operator_on_a_device(table: list[Case]) -> None:
    check_kernels(of_each_operator(table), GPU_TARGET, GPU)


@pytest.mark.soak
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_every_case_on_a_device(table: list[Case]) -> None:
    check_kernels(table, GPU_TARGET, GPU)


def run(out: te.Tensor | list[te.Tensor], arguments: list[te.Tensor], arrays: list[Array]) -> list[Array]:
    """What the kernels of ``out`` give, by ``schedule_kernels``; under the target."""
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    s = topi.gpu.schedule_kernels(outs)
    func = tvm.build(s, [*arguments, *outs], GPU_TARGET)
    results = [tvm.nd.empty([int(d) for d in t.shape], t.dtype, GPU) for t in outs]
    func(*[tvm.nd.array(a, GPU) for a in arrays], *results)
    return [r.numpy() for r in results]


def placeholder_of(array: Array) -> te.Tensor:
    return te.placeholder(array.shape, str(array.dtype))


def values(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 50).astype(dtype)


REDUCED = [
    ((7, 1031), -1),  # a warp a row, the last step not full
    ((3, 5000), -1),  # a block a row
    ((100003,), 0),  # many blocks, in two steps
    ((513, 40), 0),  # columns, few of them
    ((37, 3000), 0),  # columns, a thread each
    pytest.param((2, 5, 7, 11), (1, 3), marks=pytest.mark.soak),
    pytest.param((4, 1), -1, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("shape", "axis"), REDUCED)
def test_reductions_of_all_sizes(shape: tuple[int, ...], axis: int | tuple[int, ...]) -> None:
    data = values(*shape)
    with Target(GPU_TARGET):
        x = placeholder_of(data)
        (total,) = run(topi.sum(x, axis), [x], [data])
        (mean,) = run(topi.mean(x, axis, keepdims=True), [x], [data])
        (last,) = run(topi.argmax(x, axis, select_last_index=True), [x], [data.round()])
    exact = data.astype("float64")
    np.testing.assert_allclose(total, exact.sum(axis), rtol=1e-5, atol=50 * 1e-6 * data.size)
    np.testing.assert_allclose(mean, exact.mean(axis, keepdims=True), rtol=1e-4, atol=1e-3)
    if isinstance(axis, int):
        turned = np.flip(data.round(), axis)
        np.testing.assert_array_equal(last, data.shape[axis] - 1 - turned.argmax(axis))


@pytest.mark.parametrize(("shape", "axis"), [((9, 33), -1), ((3, 4099), -1), ((2, 9, 6, 5), 1), ((5, 1), -1)])
def test_softmax_of_all_sizes_with_what_follows(shape: tuple[int, ...], axis: int) -> None:
    data = values(*shape) / 20
    with Target(GPU_TARGET):
        x = placeholder_of(data)
        out = topi.exp(topi.nn.softmax(topi.add(x, topi.full_like(x, 1.0)), axis))
        (found,) = run(out, [x], [data])
    powers = np.exp(data.astype("float64") - data.max(axis, keepdims=True))
    np.testing.assert_allclose(found, np.exp(powers / powers.sum(axis, keepdims=True)), rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 1), "float32"),
        ((300, 3), "float32"),
        ((2, 700), "int64"),
        *(pytest.param(s, "float32", marks=pytest.mark.soak) for s in ((5, 257), (2, 512), (1, 513), (2, 5000))),
    ],
)
def test_sorting_is_stable_whatever_the_length(shape: tuple[int, int], dtype: str) -> None:
    data = (values(*shape) / 10).round().astype(dtype)  # many equal elements
    with Target(GPU_TARGET):
        x = placeholder_of(data)
        (order,) = run(topi.argsort(x, None, -1, True, "int32"), [x], [data])
        best, places = run(topi.topk(x, 1 + shape[1] // 3, -1, "both", False, "int32"), [x], [data])
    np.testing.assert_array_equal(order, np.argsort(data, -1, kind="stable"))
    falling = np.argsort(-data, -1, kind="stable")[:, : 1 + shape[1] // 3]
    np.testing.assert_array_equal(places, falling)
    np.testing.assert_array_equal(best, np.take_along_axis(data, falling, -1))


@pytest.mark.parametrize(("shape", "axis"), [((1,), 0), ((30001,), 0), ((3, 700), 1), ((50, 9, 40), 1)])
@pytest.mark.parametrize("exclusive", [pytest.param(False, marks=pytest.mark.soak), True])
def test_running_sums_whatever_the_length(shape: tuple[int, ...], axis: int, exclusive: bool) -> None:
    data = values(*shape).astype("int32")
    with Target(GPU_TARGET):
        x = placeholder_of(data)
        (found,) = run(topi.cumsum(x, axis, exclusive=exclusive), [x], [data])
    want = np.cumsum(data, axis)
    np.testing.assert_array_equal(found, want - data if exclusive else want)


def test_updates_of_one_place_happen_in_their_order() -> None:
    data, updates = values(50), values(3000, seed=1)
    places = np.random.default_rng(2).integers(-50, 50, 3000).astype("int32")
    with Target(GPU_TARGET):
        x, i, u = map(placeholder_of, (data, places, updates))
        (last,) = run(topi.scatter(x, i, u), [x, i, u], [data, places, updates])
        (total,) = run(topi.scatter_add(x, i, u), [x, i, u], [data, places, updates])
    want = data.copy()
    want[places] = updates  # numpy: the last one stays
    np.testing.assert_array_equal(last, want)
    sums = data.astype("float64")
    np.add.at(sums, places, updates.astype("float64"))
    np.testing.assert_allclose(total, sums, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("target", ["llvm", GPU_TARGET])
def test_argwhere_lists_coordinates_in_order(target: str) -> None:
    data = np.random.default_rng(4).integers(0, 3, (7, 9, 11)).astype("int32")
    want = np.argwhere(data)
    device = GPU if target == GPU_TARGET else tvm.cpu()
    with Target(target):
        x = placeholder_of(data)
        out = topi.argwhere(want.shape, x)
        s = (topi.cuda if target == GPU_TARGET else topi.generic).schedule_argwhere(out)
        func = tvm.build(s, [x, out], target)
    found = tvm.nd.empty(want.shape, "int32", device)
    func(tvm.nd.array(data, device), found)
    np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("in_order", [pytest.param(True, marks=pytest.mark.soak), False])
def test_unique_elements_of_a_long_row(in_order: bool) -> None:
    data = np.random.default_rng(3).integers(0, 40, 700).astype("int32")
    with Target(GPU_TARGET):
        x = placeholder_of(data)
        found, first, which, number, counts = run(topi.unique(x, in_order, True), [x], [data])
    want, places, inverse, sizes = np.unique(data, return_index=True, return_inverse=True, return_counts=True)
    if not in_order:
        order = np.argsort(places)
        want, places, sizes = want[order], places[order], sizes[order]
        inverse = np.argsort(order)[inverse]
    assert number[0] == len(want)
    np.testing.assert_array_equal(found[: len(want)], want)
    np.testing.assert_array_equal(first[: len(want)], places)
    np.testing.assert_array_equal(which, inverse)
    np.testing.assert_array_equal(counts[: len(want)], sizes)
