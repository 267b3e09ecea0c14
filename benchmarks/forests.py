"""Forests of scikit-learn beside ONNX Runtime: processor time of a run, one thread.

python -m benchmarks.forests                       # a forest and a boosted model, batches 1 and 1,000
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TVM_NUM_THREADS", "1")

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

import tilewright as tvm
from tilewright import relay
from tilewright.contrib.graph_executor import GraphModule

ROUNDS = 12


def _runs(model: Any, x: np.ndarray[Any, Any]) -> list[Callable[[], Any]]:
    """What runs a model by ONNX Runtime, and what runs it here."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    mod, _ = relay.frontend.from_onnx(model, {"X": x.shape}, freeze_params=True)
    with tvm.transform.PassContext(opt_level=3):
        module = GraphModule(relay.build(mod, "llvm -mcpu=native")["default"](tvm.cpu()))
    module.set_input("X", x)
    return [lambda: session.run(None, {"X": x}), module.run]


def main() -> None:
    """Print a line for each model and batch."""
    x, y = make_classification(4000, 20, n_informative=12, n_classes=3, random_state=0)
    x = x.astype("float32")
    forest = RandomForestClassifier(100, random_state=0).fit(x, y)
    boosted = GradientBoostingRegressor(n_estimators=200, max_depth=5, random_state=0).fit(x, y)
    models = {"forest": to_onnx(forest, x[:1], options={"zipmap": False}), "boosted": to_onnx(boosted, x[:1])}
    for name, model in models.items():
        for batch in (1, 1000):
            runs, least, count = _runs(model, x[:batch]), [float("inf")] * 2, 200 if batch == 1 else 3
            for _ in range(ROUNDS):
                for i, run in enumerate(runs):
                    begin = time.process_time()
                    for _ in range(count):
                        run()
                    least[i] = min(least[i], (time.process_time() - begin) / count)
            print(f"{name}, {batch} rows: ONNX Runtime {least[0] * 1e6:.1f} us, Tilewright {least[1] * 1e6:.1f} us")


if __name__ == "__main__":
    main()
