"""Models of many independent nodes: built once, computed by every engine, compared node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.relay.op.harness import evaluate

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor

Array = np.ndarray


class Cases:
    """A model with one node for each case; ``add`` takes the node's inputs, constants where ``weights`` says so."""

    def __init__(self, opset: int = 18) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.outputs: dict[str, Any] = {}
        self.expected: list[Array] = []

    def add(self, op_type: str, inputs: Sequence[Array | None], weights: Sequence[int] = (), outs: Sequence[Any] = (),
            **attributes: Any) -> None:  # fmt: skip
        """``outs``: dtypes of the outputs; by default one, of the first input's."""
        index = len(self.nodes)
        names = []
        for i, value in enumerate(inputs):
            names.append("" if value is None else f"x{index}_{i}")
            if value is not None:
                (self.weights if i in weights else self.inputs)[names[-1]] = np.asarray(value)
        found = [f"y{index}_{i}" for i in range(len(outs) or 1)]
        dtypes = outs or [np.asarray(inputs[0]).dtype]
        self.outputs |= dict(zip(found, dtypes, strict=True))
        self.nodes.append(helper.make_node(op_type, names, found, **attributes))

    @property
    def model(self) -> onnx.ModelProto:
        """The model of all nodes."""
        kind = helper.np_dtype_to_tensor_dtype
        inputs = [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, kind(np.dtype(d)), None) for n, d in self.outputs.items()]
        weights = [numpy_helper.from_array(v, n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def in_onnxruntime(self) -> list[Array]:
        """What ONNX Runtime gives."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(self.model.SerializeToString(), options).run(None, self.inputs)

    def in_reference(self) -> list[Array]:
        """What ONNX's reference evaluator gives."""
        with np.errstate(all="ignore"):
            return ReferenceEvaluator(self.model).run(None, self.inputs)

    def imported(self) -> tuple[tvm.IRModule, dict]:
        """The Relay module and its parameters."""
        return relay.frontend.from_onnx(self.model)

    def compiled(self, opt_level: int = 3, target: str = "llvm") -> list[Array]:
        """What the compiled model gives."""
        module, params = self.imported()
        with tvm.transform.PassContext(opt_level=opt_level):
            lib = relay.build(module, target, params=params)
        executor = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        executor.set_input(**self.inputs)
        executor.run()
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    def by_numpy_meaning(self) -> list[Array]:
        """What the operators' ``evaluate`` gives."""
        module, params = self.imported()
        main = relay.transform.InferType()(module)["main"]
        given = {**self.inputs, **{name: value.numpy() for name, value in params.items()}}
        found = evaluate(main.body, {p: given[p.name_hint] for p in main.params})
        return found if isinstance(found, list) else [found]

    def check(self, found: Sequence[Array], expected: Sequence[Array], rtol: float = 1e-5) -> None:
        """Same shapes, dtypes and values."""
        assert len(found) == len(expected) == len(self.outputs)
        nodes = {name: node for node in self.nodes for name in node.output}
        for have, want, name in zip(found, expected, self.outputs, strict=True):
            message = str(nodes[name])
            assert (have.shape, have.dtype) == (want.shape, want.dtype), message
            np.testing.assert_allclose(have, want, rtol=rtol, atol=rtol, err_msg=message)
