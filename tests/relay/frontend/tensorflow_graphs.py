"""Record TensorFlow's answers: ``python -m tests.relay.frontend.tensorflow_graphs`` (by tensorflow-cpu).

TensorFlow takes 1.3 GiB and seconds to import, so tests read ``tensorflow_graphs.npz``, which has frozen graphs of both
generations, inputs, and what TensorFlow 2.21 answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
SHAPES = {"image": (2, 7, 9, 3), "rows": (3, 5), "volume": (1, 5, 6, 4, 2), "steps": (2, 4, 3), "whole": (4,)}


def _inputs(names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(7)
    made = {n: random.uniform(-2, 2, SHAPES[n.split("_")[0]]).astype("float32") for n in names}
    return {n: (np.array([3, 1, 2, 0], "int32") if n == "whole" else v) for n, v in made.items()}


def _cases(tf: Any) -> dict[str, tuple[list[str], Callable[..., Any]]]:
    """Return functions of named inputs."""
    random = np.random.default_rng(3)

    def weight(*shape: int) -> Any:
        return tf.constant(random.uniform(-1, 1, shape).astype("float32"))

    square, deep, matrix = weight(3, 3, 3, 4), weight(3, 2, 3, 2), weight(5, 4)
    scale, bias = weight(4), weight(4)

    def block(x: Any) -> Any:
        y = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, square, 2, "SAME"), bias))
        y = tf.compat.v1.nn.fused_batch_norm(y, scale, bias, bias * 0.1, tf.abs(scale) + 0.5, is_training=False)[0]
        return tf.nn.max_pool2d(tf.concat([y, y * 2.0], 3), 2, 1, "SAME")

    def loop(x: Any) -> Any:
        steps = tf.cast(tf.abs(x[0, 0]) * 3.0 + 2.0, tf.int32)
        return tf.while_loop(lambda i, a: i < steps, lambda i, a: (i + 1, a * 0.5 + x), [0, x])[1]

    def array_loop(x: Any) -> Any:
        count = tf.shape(x)[1]
        array = tf.TensorArray(tf.float32, size=count)
        start = (0, tf.zeros_like(x[:, 0]), array)

        def step(i: Any, state: Any, out: Any) -> Any:
            state = tf.tanh(state + x[:, i])
            return i + 1, state, out.write(i, state)

        return tf.while_loop(lambda i, *_: i < count, step, start)[2].stack()

    def branch(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2.0, lambda: x - 1.0)

    return {
        "block": (["image"], block),
        "explicit_padding": (["image"], lambda x: tf.nn.conv2d(x, square, 1, [[0, 0], [2, 1], [0, 3], [0, 0]])),
        "depthwise": (["image"], lambda x: tf.nn.depthwise_conv2d(x, deep, [1, 2, 2, 1], "SAME")),
        "dilated": (["image"], lambda x: tf.nn.conv2d(x, square, 1, "VALID", dilations=2)),
        "transposed": (["image"], lambda x: tf.nn.conv2d_transpose(x, weight(3, 3, 5, 3), (2, 14, 17, 5), 2)),
        "transposed_valid": (["image"],
            lambda x: tf.nn.conv2d_transpose(x, weight(2, 4, 5, 3), (2, 15, 20, 5), 2, "VALID")),
        "volumes": (["volume"], lambda x: tf.nn.avg_pool3d(tf.nn.conv3d(x, weight(2, 2, 2, 2, 3), [1] * 5, "SAME"),
                                                           2, 2, "SAME")),
        "average_pool": (["image"], lambda x: tf.nn.avg_pool2d(x, (3, 2), 2, "SAME")),
        "dilation": (["image"], lambda x: tf.nn.dilation2d(x, weight(3, 2, 3), [1, 2, 1, 1], "SAME", "NHWC",
                                                           [1, 1, 2, 1])),
        "bilinear": (["image"], lambda x: tf.image.resize(x, (11, 5))),
        "nearest": (["image"], lambda x: tf.image.resize(x, (5, 20), "nearest")),
        "cubic": (["image"], lambda x: tf.image.resize(x, (13, 13), "bicubic")),
        "crops": (["image"], lambda x: tf.image.crop_and_resize(
            x, [[0, 0, 1, 1], [0.1, 0.2, 0.9, 1.3]], [1, 0], (4, 3), extrapolation_value=0.5)),
        "blocks": (["image"], lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x[:, :6, :8], 2), 2)),
        "normalized": (["image"], lambda x: tf.nn.lrn(x, 2, 1.5, 0.1, 0.6)),
        "means": (["image"], lambda x: tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(x, square, 1, "SAME")), [1, 2])),
        "slices": (["image"], lambda x: x[:, ::-2, tf.newaxis, 1, ..., -1]),
        "pads": (["image"], lambda x: tf.pad(tf.pad(x, [[0, 0], [1, 2], [0, 1], [0, 0]], constant_values=3.0),
                                             [[0, 0], [2, 2], [1, 1], [0, 0]], "SYMMETRIC")),
        "matrices": (["rows"], lambda x: tf.nn.softmax(tf.matmul(x, matrix) + scale)),
        "batches": (["steps", "steps_b"], lambda a, b: tf.matmul(a, b, transpose_b=True)),
        "einsum": (["steps", "rows"], lambda a, b: tf.einsum("bti,io->bto", a, b)),
        "division": (["rows", "rows_b"], lambda a, b: tf.math.floormod(a, b) + tf.math.floordiv(b, 0.7)),
        "functions": (["rows"], lambda x: tf.math.expm1(x) + tf.math.log1p(tf.abs(x)) + tf.math.erfc(x)
                      + tf.nn.selu(x) + tf.nn.softplus(x) + tf.math.atan2(x, x - 1.0) + tf.math.rsqrt(tf.abs(x) + 1.0)),
        "shapes": (["steps"], lambda x: tf.reshape(x, tf.stack([tf.shape(x)[0] * tf.shape(x)[1], -1]))),
        "gathers": (["rows", "whole"], lambda x, i: tf.gather(tf.transpose(x), i) + tf.gather_nd(
            tf.transpose(x), tf.stack([i, tf.zeros_like(i)], 1))[:, None]),
        "scatters": (["rows", "whole"], lambda x, i: tf.scatter_nd(i[:3, None], x, [4, 5])),
        "one_hot": (["whole"], lambda i: tf.one_hot(i - 1, 4, 2.0, -1.0)),
        "top": (["rows"], lambda x: tf.concat([tf.math.top_k(x, 3)[0], tf.cast(tf.math.top_k(x, 2)[1], "float32")], 1)),
        "sums": (["rows"], lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True)),
        "segments": (["rows"], lambda x: tf.math.segment_sum(x, [0, 0, 2])),
        "sparse": (["rows"], lambda x: tf.sparse.sparse_dense_matmul(
            tf.sparse.SparseTensor([[0, 1], [3, 0]], [2.0, -1.0], [4, 3]), x)),
        "parts": (["rows"], lambda x: sum(tf.split(x, [1, 3, 1], 1)[::2]) + tf.unstack(x, axis=1)[2][:, None]),
        "branch": (["rows"], branch),
        "loop": (["rows"], loop),
        "array_loop": (["steps"], array_loop),
    }  # fmt: skip


def _recorded(tf: Any, name: str, names: list[str], function: Callable[..., Any], lower: bool) -> dict[str, Any]:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    given = _inputs(names)
    specs = [tf.TensorSpec(v.shape, v.dtype, n) for n, v in given.items()]
    concrete = tf.function(function, input_signature=specs).get_concrete_function()
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=lower)
    answers = tf.nest.flatten(concrete(*map(tf.constant, given.values())))
    graph = np.frombuffer(frozen.graph.as_graph_def().SerializeToString(), np.uint8)
    made = {f"{name}|graph": graph, f"{name}|outputs": np.array([t.name for t in frozen.outputs])}
    made |= {f"{name}|in|{n}": v for n, v in given.items()}
    return made | {f"{name}|out|{i}": a.numpy() for i, a in enumerate(answers)}


def record() -> None:
    """Write the file."""
    import tensorflow as tf

    found: dict[str, Any] = {}
    for name, (names, function) in _cases(tf).items():
        found |= _recorded(tf, name, names, function, False)
        if name in ("branch", "loop", "array_loop"):
            found |= _recorded(tf, f"{name}_of_version_1", names, function, True)
    np.savez_compressed(FILE, **found)
    print(f"{FILE}: {FILE.stat().st_size / 1024:.0f} KiB, TensorFlow {tf.__version__}", file=sys.stderr)


if __name__ == "__main__":
    record()
