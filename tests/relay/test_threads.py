"""Several threads may compile at once."""

from __future__ import annotations

import threading

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor


def network(channels: int, groups: int) -> relay.Function:
    """Convolutions, of each channel by itself or of all, a pool and a product."""
    rng = np.random.default_rng(channels)
    x = relay.var("data", shape=(1, 3, 16, 16))
    body: relay.Expr = x
    for before, after, parts in ((3, channels, 1), (channels, channels, groups), (channels, 2 * channels, 1)):
        weight = relay.const(rng.standard_normal((after, before // parts, 3, 3), "float32"))
        body = relay.nn.relu(relay.nn.conv2d(body, weight, padding=(1, 1), groups=parts))
    pooled = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    return relay.Function([x], relay.nn.dense(pooled, relay.const(rng.standard_normal((5, 2 * channels), "float32"))))


def test_threads_compile_two_networks() -> None:
    results: dict[int, np.ndarray] = {}

    def work(index: int) -> None:
        func = network(16, 16) if index % 2 else network(24, 1)
        with tvm.transform.PassContext(opt_level=3):
            lib = relay.build(tvm.IRModule.from_expr(func), "llvm")
        module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        module.set_input("data", np.ones((1, 3, 16, 16), "float32"))
        module.run()
        results[index] = module.get_output(0).numpy().copy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
