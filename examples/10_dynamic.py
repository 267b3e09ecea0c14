"""Lesson 10: one library for shapes that change.

A small transformer with a batch and a sequence length that are known when it runs: imported with their names, compiled
once, run at several shapes, asked for shapes it was not made for, saved, loaded again.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx.reference import ReferenceEvaluator

import tilewright as tvm
from tilewright import relay, runtime

rng = np.random.default_rng(0)
model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 20]>
attention (int64[batch, seq] ids) => (float[batch, seq, 64] y) {
  heads = Constant<value_ints=[0, 0, 4, 16]>()
  whole = Constant<value_ints=[0, 0, 64]>()
  x = Gather(table, ids)
  qx = MatMul(x, wq)
  qs = Reshape(qx, heads)
  q = Transpose<perm=[0, 2, 1, 3]>(qs)
  k = Transpose<perm=[0, 2, 3, 1]>(qs)
  scores = MatMul(q, k)
  p = Softmax<axis=-1>(scores)
  mixed = MatMul(p, q)
  back = Transpose<perm=[0, 2, 1, 3]>(mixed)
  joined = Reshape(back, whole)
  wide = MatMul(joined, w1)
  act = Gelu(wide)
  out = MatMul(act, w2)
  y = Add(out, x)
}""")
for name, shape in {"table": (100, 64), "wq": (64, 64), "w1": (64, 256), "w2": (256, 64)}.items():
    weight = rng.standard_normal(shape).astype("float32") / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))

# 1. Names stay: batch and seq are variables, of which the library learns what they may be.
mod, params = relay.frontend.from_onnx(model, dims={"batch": (1, 8), "seq": (1, 128)})
print(mod["main"].params[0].type_annotation)  # Tensor[(batch, seq), int64]

# 2. One program. Weights are packed now, as for known shapes; loops end at a dimension, in whole tiles and a rest.
with tvm.transform.PassContext(opt_level=3):
    exe = relay.vm.compile(mod, "llvm", params=params)
machine = runtime.vm.VirtualMachine(exe, tvm.cpu())
print("kernels:", ", ".join(name for name in exe.primitive_ops if name.startswith("fused")))

# 3. Any shape.
reference = ReferenceEvaluator(model)
for batch, seq in ((1, 1), (1, 17), (3, 5), (8, 128)):
    ids = rng.integers(0, 100, (batch, seq))
    found = machine.run(ids).numpy()
    np.testing.assert_allclose(found, reference.run(None, {"ids": ids})[0], rtol=1e-3, atol=1e-4)
    print(f"batch {batch}, seq {seq}: right")

# 4. What it was not made for is refused before anything runs.
for wrong in (np.zeros((9, 4), "int64"), np.zeros(4, "int64")):
    try:
        machine.run(wrong)
    except tvm.TVMError as error:
        print("refused:", str(error).split(" (in the function")[0])

# 5. One file. A program that loads it needs the runtime alone; docs/dynamic.md has one in C.
with tempfile.TemporaryDirectory() as folder:
    exe.export_library(Path(folder) / "attention.so")
    loaded = runtime.vm.VirtualMachine(runtime.load_module(Path(folder) / "attention.so"), tvm.cpu())
    ids = rng.integers(0, 100, (2, 9))
    np.testing.assert_array_equal(loaded.run(ids).numpy(), machine.run(ids).numpy())
print("the library that was loaded gives the same")
