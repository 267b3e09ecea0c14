"""The driver's rules on an NVIDIA GPU: graphs, streams, memory, PyTorch's tensors, random schedules."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.gpu import GPU, GPU_TARGET, only_on_nvidia
from tests.te.random_gpu_schedules import draw_gpu_schedule
from tests.te.random_programs import draw_program
from tests.te.test_random_gpu_schedules import COMMON

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.contrib.cuda_graph import cuda_graph_executor
from tilewright.ir.errors import TilewrightError

pytestmark = only_on_nvidia
LIMITS = (  # of schedules, each told in one message
    "but not all threads come there",
    "memory of a kernel has a fixed size",  # rows of a fused, split loop: how many depends on the block
    "used where it is not defined",  # a stage in registers outside of the loops of the threads that read it
)
RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((5, 192)).astype("float32")


def network() -> Any:
    x = relay.var("x", shape=(1, 3, 16, 16))
    features = relay.nn.max_pool2d(relay.nn.relu(x), (2, 2), (2, 2))
    scores = relay.nn.dense(relay.nn.batch_flatten(features), relay.const(WEIGHT))
    return relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(scores))), GPU_TARGET)


def answer(data: np.ndarray) -> np.ndarray:
    pooled = np.maximum(data, 0).reshape(1, 3, 8, 2, 8, 2).max((3, 5)).reshape(1, -1)
    scores = np.exp((pooled @ WEIGHT.T).astype("float64"))
    return np.asarray(scores / scores.sum())


def test_a_network_is_launched_as_one_graph() -> None:
    lib = network()
    plain = graph_executor.GraphModule(lib["default"](GPU))
    recorded = cuda_graph_executor.create(lib.get_graph_json(), lib.get_lib(), GPU)
    for name, value in lib.get_params().items():
        recorded.set_input(name, value)
    for seed in range(4):
        data = np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype("float32")
        for executor in (plain, recorded):
            executor.run(x=data)
            np.testing.assert_allclose(executor.get_output(0).numpy(), answer(data), rtol=1e-4, atol=1e-7)


def test_threads_share_a_device() -> None:
    lib, wrong = network(), []

    def work(seed: int) -> None:
        executor = graph_executor.GraphModule(lib["default"](GPU))
        data = np.random.default_rng(seed).standard_normal((1, 3, 16, 16)).astype("float32")
        for _ in range(50):
            executor.run(x=data)
            if not np.allclose(executor.get_output(0).numpy(), answer(data), rtol=1e-4, atol=1e-7):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    there = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    array = tvm.nd.from_dlpack(there)
    assert array.device == GPU
    np.testing.assert_array_equal(array.numpy(), there.cpu().numpy())
    back = torch.from_dlpack(tvm.nd.array(np.arange(5, dtype="int32"), GPU))
    assert back.is_cuda and back.tolist() == [0, 1, 2, 3, 4]


def test_memory_that_lacks_is_told() -> None:
    with pytest.raises(tvm.TVMError, match="out of device memory"):
        tvm.nd.empty((1 << 44,), "int8", GPU)
    np.testing.assert_array_equal(tvm.nd.array(np.ones(4), GPU).numpy(), np.ones(4))


def test_pinned_memory() -> None:
    pinned = tvm.nd.array(np.arange(1000), tvm.device("cuda_host"))
    np.testing.assert_array_equal(pinned.copyto(GPU).numpy(), np.arange(1000))


def test_a_stream_keeps_its_order() -> None:
    a = te.placeholder((1 << 20,), name="a")
    b = te.compute(a.shape, lambda i: a[i] + 1, name="b")
    schedule = te.create_schedule(b.op)
    block, thread = schedule[b].split(b.op.axis[0], factor=256)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    add = tvm.build(schedule, [a, b], GPU_TARGET)
    stream = GPU.create_raw_stream()
    one, two = (tvm.nd.array(np.zeros(1 << 20, "float32"), GPU) for _ in range(2))
    GPU.set_raw_stream(stream)
    for _ in range(50):
        add(one, two)
        add(two, one)
    GPU.sync(stream)
    GPU.set_raw_stream(None)
    GPU.free_raw_stream(stream)
    np.testing.assert_array_equal(one.numpy(), np.full(1 << 20, 100, "float32"))


def test_the_clock_of_the_device() -> None:
    lib = network()
    executor = graph_executor.GraphModule(lib["default"](GPU))
    assert 0 < executor.benchmark(GPU, number=20, repeat=3).mean < 1e-2


@settings(COMMON, max_examples=150)
@given(st.data())
def test_random_schedules(data: st.DataObject) -> None:
    program = draw_program(data.draw)
    schedule = draw_gpu_schedule(data.draw, program)
    try:
        built = tvm.build(schedule, program.arguments(), GPU_TARGET)
    except TilewrightError as error:
        assume(not any(limit in str(error) for limit in LIMITS))
        raise
    want = program.values[program.output]
    found = tvm.nd.array(np.full(want.shape, 77, "float32"), GPU)
    built(*[tvm.nd.array(program.values[t], GPU) for t in program.inputs], found)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-5)
