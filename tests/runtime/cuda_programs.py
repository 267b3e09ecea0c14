"""What tests/runtime/test_cuda.py runs, each function in a process of its own whose libcuda.so.1 is the test double."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import nd, runtime
from tilewright.runtime import TVMError

DEVICE = runtime.cuda(0)
BODY = "{ ret; }"
SIGNATURES = {
    "scaled_add": ".param .u64 a, .param .u64 b, .param .u64 c, .param .f32 scale, .param .u32 n",
    "count_threads": ".param .u64 out, .param .u32 step",
}
TABLE = {
    "scaled_add": {
        "arg_types": ["handle", "handle", "handle", "float32", "int32"],
        "launch_param_tags": ["blockIdx.x", "threadIdx.x"],
    },
    "count_threads": {
        "arg_types": ["handle", "int32"],
        "launch_param_tags": ["blockIdx.y", "threadIdx.x", "blockIdx.x", "threadIdx.z", "tir.use_dyn_shared_memory"],
    },
}


def ptx(architecture: str = "sm_70", attributes: str = "", body: str = BODY) -> str:
    """Text with the kernels of SIGNATURES that is PTX to the double."""
    entries = "\n".join(f".visible .entry {name}({args}) {attributes}\n{body}" for name, args in SIGNATURES.items())
    return f"// made by hand\n.version 7.0\n.target {architecture}\n.address_size 64\n{entries}\n"


def module(text: str | None = None, table: Any = None, form: str = "ptx") -> runtime.Module:
    made = runtime.get_global_func("runtime.module.create_cuda")(
        ptx() if text is None else text, form, json.dumps(TABLE if table is None else table), ""
    )
    assert isinstance(made, runtime.Module)
    return made


def fails(call: Any, *args: Any) -> str:
    try:
        call(*args)
    except TVMError as error:
        return str(error)
    raise AssertionError("no error")


def attributes() -> None:
    assert DEVICE.exist and not runtime.cuda(1).exist and not DEVICE.is_host
    assert DEVICE.device_name == "Fake GPU 0" and DEVICE.compute_version == "8.0" and DEVICE.warp_size == 32
    assert DEVICE.max_threads_per_block == 1024 and DEVICE.max_shared_memory_per_block == 49152
    assert DEVICE.multi_processor_count == 108 and DEVICE.max_clock_rate == 1410000
    assert DEVICE.max_thread_dimensions == [1024, 1024, 64] and DEVICE.driver_version == DEVICE.api_version == 12040


def compute() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 64, 97):
        a, b = rng.random(n, dtype="float32"), rng.random(n, dtype="float32")
        out = nd.empty((n,), "float32", DEVICE)
        module()["scaled_add"](nd.array(a, DEVICE), nd.array(b, DEVICE), out, 2.5, n, -(-n // 32), 32)
        np.testing.assert_allclose(out.numpy(), a * np.float32(2.5) + b, rtol=1e-6)
    counter = nd.array(np.zeros(1, "int32"), DEVICE)
    module()["count_threads"](counter, 1, 2, 3, 5, 7, 1000)  # the last one is bytes of shared memory
    assert counter.numpy()[0] == 2 * 3 * 5 * 7


def arrays() -> None:
    values = np.arange(20, dtype="float32").reshape(4, 5)
    there = nd.array(values, DEVICE)
    np.testing.assert_array_equal(there.copyto(DEVICE).numpy(), values)
    np.testing.assert_array_equal(there.copyto(runtime.cuda(1)).copyto(runtime.cpu()).numpy(), values)
    pinned = nd.array(values, runtime.device("cuda_host"))
    assert pinned.device.is_host
    np.testing.assert_array_equal(pinned.numpy(), values)
    np.testing.assert_array_equal(pinned.copyto(DEVICE).numpy(), values)


def peers() -> None:
    """A copy to another device, which is still busy with the target, and goes on with it."""
    other = runtime.cuda(1)
    there, target = nd.array(np.full(1, 5, "int32"), DEVICE), nd.array(np.zeros(1, "int32"), other)
    runtime.get_global_func("__tvm_set_device")(other.device_type, 1)
    kernel = module()["count_threads"]
    for _ in range(2):
        kernel(target, 1, 1, 1, 1, 1, 0)
        there.copyto(target)
    kernel(target, 1, 1, 1, 1, 1, 0)
    assert target.numpy()[0] == 6


def pool() -> None:
    for _ in range(20):
        nd.empty((1 << 18,), "float32", DEVICE)
    message = fails(nd.empty, (1 << 23,), "float32", DEVICE)  # 32 MiB of 16
    assert (
        "cuda(0): out of device memory: 33554432 bytes are asked for, arrays here have 0, and the device has 16777216"
        in message
    )
    held = [nd.empty((1 << 18,), "float32", DEVICE) for _ in range(14)]
    del held
    nd.empty((15 << 18,), "float32", DEVICE)  # fits after what lies idle has gone back


def no_image() -> None:
    a = nd.empty((1,), "int32", DEVICE)
    newer = module(ptx("sm_90") + ptx("sm_90a") + ptx("sm_100"))
    message = fails(newer["count_threads"], a, 1, 1, 1, 1, 1, 0)
    assert "compiled for sm_90, sm_90a, sm_100, and cuda(0) (Fake GPU 0) is sm_80" in message, message
    assert '"cuda -arch=sm_80"' in message
    message = fails(module(ptx(body="{ nonsense }"))["count_threads"], a, 1, 1, 1, 1, 1, 0)
    assert "cannot load the module's kernels" in message and "what the fake compiler says" in message
    table = {"other": {"arg_types": [], "launch_param_tags": []}}
    assert "the module has no kernel other" in fails(module(table=table)["other"])


def several_architectures() -> None:
    texts = ptx("sm_75") + ptx("sm_100") + ptx(sys.argv[2]) + ptx("sm_70")
    out = nd.array(np.zeros(1, "int32"), DEVICE)
    module(texts)["count_threads"](out, 4, 1, 1, 1, 1, 0)
    assert out.numpy()[0] == 4


def limits() -> None:
    a = nd.empty((1,), "int32", DEVICE)
    kernel = module()["count_threads"]
    assert "asks for 2048 threads in threadIdx.x; cuda(0) allows 1024" in fails(kernel, a, 1, 1, 2048, 1, 1, 0)
    assert "asks for 2048 threads in a block (1024, 1, 2); cuda(0) allows 1024" in fails(kernel, a, 1, 1, 1024, 1, 2, 0)
    assert "200000 bytes of shared memory in a block; cuda(0) has 166912" in fails(kernel, a, 1, 1, 1, 1, 1, 200000)
    assert "asks for 70000 blocks in blockIdx.y; cuda(0) allows 65535" in fails(kernel, a, 1, 70000, 1, 1, 1, 0)
    kernel(a, 1, 1, 1, 1, 1, 100000)  # more than a block has without asking
    heavy = module(ptx(attributes=".maxntid 128"))["count_threads"]
    message = fails(heavy, a, 1, 1, 256, 1, 1, 0)
    assert "asks for 256 threads in a block; with its 512 registers a thread cuda(0) allows 128" in message, message


def streams() -> None:
    stream, other = DEVICE.create_raw_stream(), DEVICE.create_raw_stream()
    out = nd.array(np.zeros(1, "int32"), DEVICE)
    kernel = module()["count_threads"]
    DEVICE.set_raw_stream(stream)
    for _ in range(5):
        kernel(out, 2, 1, 1, 1, 1, 0)
    runtime.get_global_func("runtime.NumThreads")()
    DEVICE.sync(stream)
    assert out.numpy()[0] == 10
    DEVICE.set_raw_stream(None)
    DEVICE.free_raw_stream(stream)
    DEVICE.free_raw_stream(other)


def timing() -> None:
    """The double's clock goes on by a millisecond with each launch."""
    out = nd.array(np.zeros(1, "int32"), DEVICE)
    timer = module().time_evaluator("count_threads", DEVICE, number=4, repeat=3)
    np.testing.assert_allclose(timer(out, 1, 1, 1, 1, 1, 0).results, [1e-3] * 3, rtol=1e-5)


def threads() -> None:
    made = module()
    outs = [nd.array(np.zeros(1, "int32"), DEVICE) for _ in range(4)]

    def work(out: nd.NDArray) -> None:
        for _ in range(50):
            made["count_threads"](out, 1, 1, 1, 1, 1, 0)

    workers = [threading.Thread(target=work, args=(out,)) for out in outs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [int(out.numpy()[0]) for out in outs] == [50] * 4


def library() -> None:
    module().export_library(sys.argv[2])
    loaded = runtime.load_module(sys.argv[2])
    out = nd.array(np.zeros(1, "int32"), DEVICE)
    loaded.get_function("count_threads", query_imports=True)(out, 7, 1, 1, 1, 1, 0)
    assert out.numpy()[0] == 7
    kernels = loaded.imported_modules[0] if loaded.imported_modules else loaded
    assert kernels.type_key == "cuda" and kernels.get_source() == ptx()


def graph_json(nodes: list[tuple[str, list[int]]], devices: list[int]) -> str:
    """A graph of one input of 8 numbers, and a node for each (function, inputs)."""
    operators = [
        {
            "op": "tvm_op",
            "name": f"{name}{index}",
            "inputs": [[i, 0, 0] for i in inputs],
            "attrs": {"num_outputs": "1", "num_inputs": str(len(inputs)), "flatten_data": "0", "func_name": name},
        }
        for index, (name, inputs) in enumerate(nodes)
    ]
    count = len(nodes) + 1
    return json.dumps(
        {
            "nodes": [{"op": "null", "name": "x", "inputs": []}, *operators],
            "arg_nodes": [0],
            "heads": [[count - 1, 0, 0]],
            "node_row_ptr": list(range(count + 1)),
            "attrs": {
                "dltype": ["list_str", ["float32"] * count],
                "shape": ["list_shape", [[8]] * count],
                "storage_id": ["list_int", list(range(count))],
                "device_index": ["list_int", devices],
            },
        }
    )


def host_code() -> runtime.Module:
    """Functions as compiled host code has them: "twice" and "plus" launch a kernel, "on_host" computes on the CPU."""
    kernel = module()["scaled_add"]
    findings, launched = map(runtime.get_global_func, ("tilewright.findings", "tilewright.findings_launched"))
    zeros = nd.array(np.zeros(8, "float32"), DEVICE)

    def check(a: nd.NDArray, out: nd.NDArray) -> None:
        """Note what ``a`` says as the record of a check."""
        kernel(a, zeros, findings("index", a, 1), 1.0, 8, 1, 8)
        launched()

    functions: dict[str, Callable[..., Any]] = {
        "twice": lambda a, out: kernel(a, a, out, 1.0, 8, 1, 8),
        "plus": lambda a, b, out: kernel(a, b, out, 1.0, 8, 1, 8),
        "check": check,
        "on_host": lambda a, out: out.copyfrom(a.numpy() + 100),
    }
    return runtime.create_module("host", functions.get)


def cuda_graph() -> None:
    """x -> 2x -> 2x + x, launched as one after the first run; again where an input moved."""
    from tilewright.contrib.cuda_graph import cuda_graph_executor

    executor = cuda_graph_executor.create(
        graph_json([("twice", [0]), ("plus", [1, 0])], [2, 2, 2]), host_code(), DEVICE
    )
    for start in (0, 5, 7):
        x = np.arange(start, start + 8, dtype="float32")
        executor.run(x=x)
        np.testing.assert_allclose(executor.get_output(0).numpy(), 3 * x)
    moved = nd.array(np.full(8, 4, "float32"), DEVICE)
    executor.set_input_zero_copy("x", moved)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.full(8, 12))


def findings() -> None:
    """What a kernel finds wrong ends the run of either executor, which goes on to run."""
    from tilewright.contrib import graph_executor
    from tilewright.contrib.cuda_graph import cuda_graph_executor

    graph = graph_json([("check", [0])], [2, 2])
    good, bad = (np.array([found, 9, 0, 3]).view("float32") for found in (0, 1))
    for make in (graph_executor.create, cuda_graph_executor.create):
        executor = make(graph, host_code(), DEVICE)
        for _ in range(3):
            executor.run(x=good)
            assert "index 9 is out of range: expected 0 to 3" in fails(lambda: executor.run(x=bad))  # noqa: B023
        executor.run(x=good)


def cuda_graph_on_a_stream() -> None:
    """A recording begins and ends, and is launched, on the stream of the thread."""
    make = runtime.get_global_func("tvm.graph_executor_cuda_graph.create")
    recorder = make(graph_json([("twice", [0])], [2, 2]), host_code(), DEVICE.device_type, 0)
    x, stream = nd.array(np.arange(8, dtype="float32"), DEVICE), DEVICE.create_raw_stream()
    recorder["set_input_zero_copy"]("x", x)
    recorder["run"]()
    DEVICE.set_raw_stream(stream)
    assert "no recording has begun" in fails(recorder["end_capture"])
    recorder["start_capture"]()
    recorder["run"]()
    recorder["end_capture"]()
    recorder["run_cuda_graph"]()
    np.testing.assert_allclose(recorder["get_output"](0).numpy(), 2 * np.arange(8))
    DEVICE.set_raw_stream(None)
    DEVICE.free_raw_stream(stream)


def no_executor_of_ours() -> None:
    """What records needs the executor that it knows."""
    create = "tvm.graph_executor.create"
    runtime.register_func(create, lambda *args: host_code(), override=True)
    message = fails(runtime.get_global_func("tvm.graph_executor_cuda_graph.create"), "{}", host_code(), 2, 0)
    assert f"{create} gives another executor than this runtime's" in message, message


def no_cuda_graph() -> None:
    """An operator on the CPU between two on the GPU: no recording, right all the same."""
    from tilewright.contrib.cuda_graph import cuda_graph_executor

    nodes = [("twice", [0]), ("__copy", [1]), ("on_host", [2]), ("__copy", [3]), ("twice", [4])]
    graph = graph_json(nodes, [2, 2, 1, 1, 2, 2])
    executor = cuda_graph_executor.create(graph, host_code(), [DEVICE, runtime.cpu()])
    x = np.arange(8, dtype="float32")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            executor.run(x=x)
            np.testing.assert_allclose(executor.get_output(0).numpy(), 2 * (2 * x + 100))
    assert len(told) == 1 and "the network runs without a CUDA graph: the run cannot be recorded" in str(
        told[0].message
    )


def network() -> None:
    """A compiled network, run by the graph executor and as one CUDA graph. What it computes is not looked at."""
    from tilewright import relay
    from tilewright.contrib import graph_executor
    from tilewright.contrib.cuda_graph import cuda_graph_executor
    from tilewright.ir.module import IRModule

    x = relay.var("x", shape=(1, 3, 8, 8))
    features = relay.nn.max_pool2d(relay.nn.relu(x), (2, 2), (2, 2))
    scores = relay.nn.dense(relay.nn.batch_flatten(features), relay.const(np.ones((5, 48), "float32")))
    lib = relay.build(IRModule.from_expr(relay.Function([x], scores)), "cuda -arch=sm_80")
    data = np.ones((1, 3, 8, 8), "float32")
    executor = graph_executor.GraphModule(lib["default"](DEVICE))
    executor.run(x=data)
    assert executor.get_output(0).numpy().shape == (1, 5)
    recorded = cuda_graph_executor.create(lib.get_graph_json(), lib.get_lib(), DEVICE)
    for name, value in lib.get_params().items():
        recorded.set_input(name, value)
    for _ in range(2):
        recorded.run(x=data)


def no_driver() -> None:
    assert not DEVICE.exist and not runtime.gpu(1).exist
    print(fails(nd.empty, (4,), "float32", DEVICE))
    np.testing.assert_array_equal(nd.array(np.arange(3), runtime.device("cuda_host")).numpy(), np.arange(3))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
