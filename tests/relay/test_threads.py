"""Several threads may compile at once."""

from __future__ import annotations

import threading

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor


def test_two_threads_compile_two_networks() -> None:
    results: dict[int, np.ndarray] = {}

    def work(index: int) -> None:
        network = relay.testing.squeezenet if index % 2 else relay.testing.mobilenet
        mod, params = network.get_workload(image_shape=(3, 64, 64))
        with tvm.transform.PassContext(opt_level=3):
            lib = relay.build(mod, "llvm", params=params)
        module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        module.set_input("data", np.ones((1, 3, 64, 64), "float32"))
        module.run()
        results[index] = module.get_output(0).numpy().copy()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[3])
