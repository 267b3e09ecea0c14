"""Lesson 9: kernels for a GPU, by hand and from a network.

They run on whatever OpenCL drives: a GPU, or this computer's processor where PoCL is installed (Debian: `apt install
pocl-opencl-icd ocl-icd-libopencl1`). `python examples/09_gpu.py cuda` does the same on an NVIDIA GPU; no toolkit is
needed.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import tilewright as tvm
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.relay.op.annotation import on_device

KIND = sys.argv[1] if len(sys.argv) > 1 else "opencl"
dev = tvm.device(KIND, 0)
if not dev.exist:
    raise SystemExit(f"there is no device {dev}")
print(f"{dev} is {dev.device_name}: {dev.max_threads_per_block} threads in a block at most")

# 1. One kernel. A GPU runs a grid of blocks of threads: each axis of the schedule is bound to one of the two.
n = te.var("n")
a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
c = te.compute((n,), lambda i: a[i] * b[i] + 1, name="c")
s = te.create_schedule(c.op)
block, thread = s[c].split(c.op.axis[0], factor=64)
s[c].bind(block, te.thread_axis("blockIdx.x"))
s[c].bind(thread, te.thread_axis("threadIdx.x"))
kernel = tvm.build(s, [a, b, c], KIND)
print(kernel.imported_modules[0].get_source())

rng = np.random.default_rng(0)
x, y = rng.random(1000, np.float32), rng.random(1000, np.float32)
out = tvm.nd.empty((1000,), device=dev)
kernel(tvm.nd.array(x, dev), tvm.nd.array(y, dev), out)
np.testing.assert_allclose(out.numpy(), x * y + 1, rtol=1e-6)

# 2. Threads of a block share memory: each tile of a transpose is read along rows and written along rows.
TILE, ROWS, COLUMNS = 16, 100, 70
m = te.placeholder((ROWS, COLUMNS), name="m")
turned = te.compute((COLUMNS, ROWS), lambda i, j: m[j, i], name="turned")
s = te.create_schedule(turned.op)
tile = s.cache_read(m, "shared", [turned])
io, jo, ii, ji = s[turned].tile(*turned.op.axis, TILE, TILE)
for axis, name in ((io, "blockIdx.y"), (jo, "blockIdx.x"), (ii, "threadIdx.y"), (ji, "threadIdx.x")):
    s[turned].bind(axis, te.thread_axis(name))
s[tile].compute_at(s[turned], jo)
for axis, name in zip(s[tile].op.axis, ("threadIdx.y", "threadIdx.x"), strict=True):
    _, inner = s[tile].split(axis, factor=TILE)
    s[tile].bind(inner, te.thread_axis((0, TILE), name))
transpose = tvm.build(s, [m, turned], KIND)
matrix = rng.random((ROWS, COLUMNS), np.float32)
out = tvm.nd.empty((COLUMNS, ROWS), device=dev)
transpose(tvm.nd.array(matrix, dev), out)
np.testing.assert_array_equal(out.numpy(), matrix.T)
took = transpose.time_evaluator(transpose.entry_name, dev, number=10)(tvm.nd.array(matrix, dev), out).mean
print(f"a transpose takes {took * 1e6:.1f} us by the device's clock")

# 3. A network: every operator gets a kernel, and the library holds them all.
data = relay.var("data", shape=(1, 3, 16, 16))
weight = rng.standard_normal((8, 3, 3, 3)).astype("float32")
features = relay.nn.max_pool2d(
    relay.nn.relu(relay.nn.conv2d(data, relay.const(weight), padding=(1, 1))), (2, 2), (2, 2)
)
scores = relay.nn.dense(relay.nn.batch_flatten(features), relay.const(rng.standard_normal((10, 512)).astype("float32")))
network = tvm.IRModule.from_expr(relay.Function([data], relay.nn.softmax(scores)))
picture = rng.random((1, 3, 16, 16), np.float32)


def run(lib: tvm.runtime.Module, *devices: tvm.runtime.Device) -> np.ndarray:
    """The network's answer for the picture."""
    executor = graph_executor.GraphModule(lib["default"](*devices))
    executor.run(data=picture)
    return executor.get_output(0).numpy()


expected = run(relay.build(network, "llvm"), tvm.cpu())
library = str(Path(tempfile.mkdtemp()) / "network.so")
relay.build(network, KIND).export_library(library)
np.testing.assert_allclose(run(tvm.runtime.load_module(library), dev), expected, rtol=1e-4, atol=1e-6)

# 4. Two devices: what is marked runs on the GPU, the rest on the CPU, and tensors are copied between them.
mixed = tvm.IRModule.from_expr(relay.Function([data], relay.nn.softmax(on_device(scores, KIND))))
answer = run(relay.build(mixed, {"cpu": "llvm", KIND: KIND}), tvm.cpu(), dev)
np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-6)
print("the network gives the same on the CPU, on the device, and on both")
