"""PTX of schedules with shared memory, barriers and shuffles: answers of its LLVM IR on this processor, and ptxas."""

from __future__ import annotations

import numpy as np
import pytest
from tests.target.ptx_on_host import OnHost
from tests.target.test_codegen_ptx import ARCHITECTURES, assemble

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.relay.testing import mobilenet, resnet
from tilewright.topi import cuda


def check(s: te.Schedule, args: list[te.Tensor], *arrays: np.ndarray) -> np.ndarray:
    """The last array as the kernel leaves it. Its PTX assembles for all architectures without spills."""
    with tvm.target.Target("cuda -arch=sm_75"):
        kernel = tvm.lower(s, args, name="f")["f"]
    given = [tvm.nd.array(x) for x in arrays]
    OnHost([kernel])(*given)
    built = tvm.build(s, args, f"cuda -arch={','.join(ARCHITECTURES)}", name="f")
    said = assemble(built.imported_modules[0].get_source("ptx"))
    assert said.count(" 0 bytes spill stores") == said.count("spill stores") >= len(ARCHITECTURES)
    return given[-1].numpy()


@pytest.mark.parametrize("size", [32, 48, 64, 1000])
def test_threads_reduce_together(size: int) -> None:
    a = te.placeholder((5, size), name="A")
    k = te.reduce_axis((0, size))
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(b.op.reduce_axis[0], nparts=min(size, 64))
    part = s.rfactor(b, outer)
    lane = te.thread_axis("threadIdx.x")
    s[b].bind(s[b].op.axis[0], te.thread_axis("blockIdx.x"))
    s[b].bind(s[b].op.reduce_axis[0], lane)
    s[part].compute_at(s[b], s[b].op.reduce_axis[0])
    s[b].set_store_predicate(lane.var.equal(0))
    x = np.random.default_rng(size).random((5, size), "float32")
    np.testing.assert_allclose(check(s, [a, b], x, np.zeros(5, "float32")), x.sum(1), rtol=1e-5)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (33, 17, 31), (1, 10, 128)])
def test_products_in_tiles(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    with tvm.target.Target("cuda -arch=sm_75"):
        a, w = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="W")
        c = cuda.dense_small_batch(a, w)
        s = cuda.schedule_dense_small_batch([c])
    rng = np.random.default_rng(0)
    x, y = rng.random((m, k), "float32"), rng.random((n, k), "float32")
    np.testing.assert_allclose(check(s, [a, w, c], x, y, np.zeros((m, n), "float32")), x @ y.T, rtol=1e-5)


def test_softmax_of_rows() -> None:
    with tvm.target.Target("cuda -arch=sm_75"):
        a = te.placeholder((6, 77), name="A")
        b = topi.nn.softmax(a)
        s = cuda.schedule_softmax([b])
    x = np.random.default_rng(0).standard_normal((6, 77)).astype("float32")
    e = np.exp(x - x.max(1, keepdims=True))
    found = check(s, [a, b], x, np.zeros((6, 77), "float32"))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("network", ["resnet-18", "mobilenet"])
def test_kernels_of_networks_assemble_without_spills(network: str) -> None:
    if network == "mobilenet":
        mod, params = mobilenet.get_workload(1)
    else:
        mod, params = resnet.get_workload(num_layers=18, batch_size=1)
    target = tvm.target.Target(f"cuda -arch={','.join(ARCHITECTURES)}", host="llvm")
    library = relay.build(mod, target, params=params)
    said = assemble(library.get_lib().imported_modules[0].get_source("ptx"))
    assert said.count(" 0 bytes spill stores") == said.count("spill stores") > 50
