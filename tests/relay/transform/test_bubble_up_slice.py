"""What only a slice is looked at of is computed in that part; what something else reads too is computed whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

X = "def @main(%x: Tensor[(2, 9, 8), float32], %w: Tensor[(8, 8), float32], %g: Tensor[(8), float32]) {{ {} }}"
CUT = "%0 = strided_slice(%x, begin=[3], end=[4], axes=[1]);"


def sliced(mod: tvm.IRModule) -> tvm.IRModule:
    with PassContext(opt_level=3):
        return transform.BubbleUpSlice()(mod)


def shapes(mod: tvm.IRModule, name: str) -> list[tuple[int, ...]]:
    """Of all results of an operator, in order."""
    found: list[tuple[int, ...]] = []

    def visit(node: object) -> None:
        if isinstance(node, relay.Call) and getattr(node.op, "name", "") == name:
            found.append(node.checked_type.concrete_shape)

    relay.analysis.post_order_visit(mod["main"], visit)
    return found


def test_a_slice_moves_through_rows() -> None:
    before = "%0 = nn.dense(%x, %w, units=8); %1 = nn.layer_norm(%0, %g, %g); %2 = add(%1, %g);"
    before += "strided_slice(%2, begin=[3], end=[4], axes=[1])"
    after = CUT + "%1 = nn.dense(%0, %w, units=8); %2 = nn.layer_norm(%1, %g, %g); %3 = add(%2, %g);"
    after += "reshape(%3, newshape=[2, 1, 8])"
    check(sliced, X.format(before), X.format(after))


@pytest.mark.parametrize(
    "body",
    [
        "%0 = nn.relu(%x); %1 = add(%0, %g); strided_slice(%1, begin=[3], end=[4], axes=[1])",  # saves nothing much
        "%0 = nn.dense(%x, %w, units=8); %1 = strided_slice(%0, begin=[3], end=[4], axes=[1]); (%0, %1)",
        "%0 = nn.dense(%x, %w, units=8); %1 = strided_slice(%0, begin=[0], end=[3], axes=[1]);"
        "%2 = strided_slice(%0, begin=[3], end=[6], axes=[1]); (%1, %2)",
        "%0 = nn.dense(%x, %w, units=8); strided_slice(%0, begin=[0], end=[9], strides=[2], axes=[1])",
        "%0 = nn.dense(%x, %w, units=8); strided_slice(%0, begin=[0], end=[2], axes=[2])",
        "%0 = nn.softmax(%x, axis=1); strided_slice(%0, begin=[0], end=[2], axes=[1])",
        "%0 = nn.dense(%x, %w, units=8); strided_slice(%0, begin=[0, 1], end=[1, 2], axes=[0, 1])",
    ],
)
def test_what_stays(body: str) -> None:
    mod = parse(X.format(body))
    assert tvm.ir.structural_equal(sliced(mod), transform.InferType()(mod))


def layer(x: relay.Expr, rows: int, rng: np.random.Generator, heads: int = 2, width: int = 16) -> relay.Expr:
    """A pre-norm transformer layer on (1, rows, width), as frontends spell it."""

    def weight(*shape: int) -> relay.Expr:
        return relay.const(rng.standard_normal(shape).astype("float32") / 4)

    def dense(data: relay.Expr, inputs: int, outputs: int) -> relay.Expr:
        flat = relay.nn.dense(relay.reshape(data, (rows, inputs)), weight(outputs, inputs))
        return relay.add(relay.reshape(flat, (1, rows, outputs)), weight(outputs))

    def head(data: relay.Expr) -> relay.Expr:
        split = relay.transpose(relay.reshape(data, (1, rows, heads, width // heads)), (0, 2, 1, 3))
        return relay.reshape(split, (heads, rows, width // heads))

    normed = relay.nn.layer_norm(x, weight(width), weight(width))
    q, k, v = (head(dense(normed, width, width)) for _ in range(3))
    scores = relay.nn.softmax(relay.multiply(relay.nn.batch_matmul(q, k), relay.const(np.float32(0.3))), axis=-1)
    mixed = relay.reshape(relay.nn.batch_matmul(scores, v, transpose_b=False), (1, heads, rows, width // heads))
    joined = relay.reshape(relay.transpose(mixed, (0, 2, 1, 3)), (1, rows, width))
    x = relay.add(x, dense(joined, width, width))
    inner = relay.nn.gelu(dense(relay.nn.layer_norm(x, weight(width), weight(width)), width, 4 * width))
    return relay.add(x, dense(inner, 4 * width, width))


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("token", [0, 6])
def test_of_the_last_layer_of_a_transformer_one_token_is_computed(token: int, whole: bool) -> None:
    rows, rng = 7, np.random.default_rng(0)
    x = relay.var("x", shape=(1, rows, 16))
    hidden = layer(layer(x, rows, rng), rows, rng)
    result = relay.take(hidden, relay.const(np.int64(token)), axis=1)
    mod = tvm.IRModule.from_expr(relay.Tuple([hidden, result]) if whole else result)
    with PassContext(opt_level=3):
        optimized, _ = relay.optimize(mod, "llvm", fuse=False)
        library = relay.build(mod, "llvm")
    counts = [s[0] for s in shapes(transform.InferType()(optimized), "nn.contrib_dense_pack")]
    counts += [s[0] for s in shapes(transform.InferType()(optimized), "nn.dense")]
    # of the second layer: the query, what joins the heads, and two more
    assert sorted(counts) == [1] * (0 if whole else 4) + [rows] * (12 if whole else 8)
    data = rng.standard_normal((1, rows, 16)).astype("float32")
    want = interpret(mod, [data])
    module = graph_executor.GraphModule(library["default"](tvm.cpu(0)))
    module.run(x=data)
    for i, expected in enumerate(want if whole else [want]):
        np.testing.assert_allclose(module.get_output(i).numpy(), np.asarray(expected), rtol=1e-4, atol=1e-5)


OPERATORS = {
    "product of batches": "%0 = nn.batch_matmul(%x, %x, transpose_b=True); %1 = nn.relu(%0);",
    "transposed product": "%0 = nn.batch_matmul(%x, %x, transpose_a=True, transpose_b=False); %1 = nn.relu(%0);",
    "softmax": "%0 = nn.softmax(%x, axis=-1); %1 = nn.relu(%0);",
    "softmax of columns": "%0 = nn.softmax(%x, axis=1); %1 = nn.relu(%0);",
    "broadcast": "%0 = nn.dense(%x, %w, units=8); %1 = add(%0, %g);",
    "bias": "%0 = nn.softmax(%x, axis=1); %1 = nn.bias_add(%0, %g, axis=2);",
    "transposition": "%0 = nn.softmax(%x, axis=1); %1 = transpose(%0, axes=[2, 0, 1]);",
    "reshape": "%0 = nn.softmax(%x, axis=2); %1 = reshape(%0, newshape=[1, 2, 9, 2, 4]);",
    "tile": "%0 = nn.softmax(%x, axis=2); %1 = tile(%0, reps=[1, 1, 3]);",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_slice_of_an_operator_keeps_its_values(name: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype("float32") for s in ((2, 9, 8), (8, 8), (8,))]
    result = transform.InferType()(parse(X.format(OPERATORS[name] + "%1")))["main"].body.checked_type.concrete_shape
    for axis, begin in itertools.product(range(len(result)), (0, 1)):
        if begin + 1 > result[axis]:
            continue
        text = f"strided_slice(%1, begin=[{begin}], end=[{begin + 1}], axes=[{axis}])"
        mod = transform.InferType()(parse(X.format(OPERATORS[name] + text)))
        found, want = (np.asarray(interpret(m, arrays)) for m in (sliced(mod), mod))
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
