"""ResNet-18 on two devices: its large convolutions on the device "guarded", all else on the CPU.

pip install ./examples/plugins/guarded_device
python examples/plugins/guarded_device/resnet18.py
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay import Call, ExprMutator
from tilewright.relay.testing import resnet

IMAGE = (3, 32, 32)


class Place(ExprMutator):
    """Marks every operator with its device: convolutions of 256 channels and more, with the normalization and the
    activation behind them, are put on the device, all else on the CPU.
    """

    def visit_call(self, expr: Call) -> Any:
        call = super().visit_call(expr)
        return relay.annotation.on_device(call, "guarded" if self.is_large(expr) else "cpu")

    def is_large(self, expr: Call) -> bool:
        """Whether the operator is a large convolution, or what follows one."""
        if expr.op.name == "nn.conv2d":
            return expr.attrs.channels >= 256
        source = expr.args[0].tuple_value if isinstance(expr.args[0], relay.TupleGetItem) else expr.args[0]
        return expr.op.name in ("nn.batch_norm", "nn.relu") and isinstance(source, Call) and self.is_large(source)


def main() -> None:
    """Compile ResNet-18 twice, and compare."""
    mod, params = resnet.get_workload(num_layers=18, image_shape=IMAGE)
    image = np.random.default_rng(0).standard_normal((1, *IMAGE)).astype("float32")

    one = relay.build(mod, "llvm", params=params)
    alone = graph_executor.GraphModule(one["default"](tvm.cpu()))
    alone.run(data=image)

    placed = tvm.IRModule.from_expr(Place().visit(mod["main"]))
    both = relay.build(placed, {"cpu": "llvm", "guarded": "guarded"}, params=params)
    shared = graph_executor.GraphModule(both["default"](tvm.cpu(), tvm.device("guarded")))
    shared.run(data=image)

    calls = [n["attrs"]["func_name"] for n in json.loads(both.get_graph_json())["nodes"] if n["op"] == "tvm_op"]
    print(f"{len(calls)} calls, {calls.count('__copy')} of them copies between the devices")
    found, expected = shared.get_output(0).numpy(), alone.get_output(0).numpy()
    difference = np.abs(found - expected).max() / expected.max()
    print(f"largest difference: {difference:.1e} of the largest probability")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
