"""Small float networks for the tests of quantizing."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper


def network(text: str, seed: int = 0, **weights: tuple[int, ...]) -> onnx.ModelProto:
    """Return the model of a text, with random weights of these shapes."""
    rng = np.random.default_rng(seed)
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]>\n{text}')
    for name, shape in weights.items():
        array = rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        model.graph.initializer.append(numpy_helper.from_array(array.astype("float32"), name))
    return model


def residual() -> onnx.ModelProto:
    """Return a convolutional network with a residual, pools, a flattening and a dense layer."""
    return network(
        """residual (float[1, 3, 12, 12] x) => (float[1, 10] y) {
          a = Conv<pads=[1, 1, 1, 1]>(x, w1, b1)
          ra = Relu(a)
          p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(ra)
          c = Conv<pads=[1, 1, 1, 1]>(p, w2)
          s = Add(c, p)
          rs = Relu(s)
          g = GlobalAveragePool(rs)
          f = Flatten(g)
          y = Gemm<transB=1>(f, w3, b3)
        }""",
        w1=(8, 3, 3, 3), b1=(8,), w2=(8, 8, 3, 3), w3=(10, 8), b3=(10,),
    )  # fmt: skip


def products(features: int, hidden: int) -> onnx.ModelProto:
    """Return two products, of ``features`` and of ``hidden`` columns."""
    return network(
        f"""f (float[3, {features}] x) => (float[3, 8] y) {{
          h = MatMul(x, w1)
          hb = Add(h, b1)
          r = Relu(hb)
          y = Gemm<transB=1>(r, w2, b2)
        }}""",
        w1=(features, hidden), b1=(hidden,), w2=(8, hidden), b2=(8,),
    )  # fmt: skip


def samples(model: onnx.ModelProto, count: int = 4, seed: int = 1) -> list[dict[str, np.ndarray]]:
    """Return random samples of a model's inputs."""
    rng = np.random.default_rng(seed)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return [{n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()} for _ in range(count)]
