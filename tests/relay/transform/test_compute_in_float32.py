"""ComputeInFloat32, by text before and after."""

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform import ComputeInFloat32


def test_a_sum_is_formed_in_float32() -> None:
    check(
        ComputeInFloat32(),
        """
        def @main(%x: Tensor[(2, 3000), float16]) { nn.relu(mean(%x, axis=[1])) }
        """,
        """
        def @main(%x: Tensor[(2, 3000), float16]) {
          %0 = cast(%x, dtype="float32");
          %1 = mean(%0, axis=[1]);
          nn.relu(cast(%1, dtype="float16"))
        }
        """,
        opt_level=0,
    )


def test_both_operands_are_widened_where_neither_is_a_weight() -> None:
    check(
        ComputeInFloat32(),
        """
        def @main(%x: Tensor[(1, 3, 8), bfloat16], %y: Tensor[(1, 5, 8), bfloat16]) {
          nn.batch_matmul(%x, %y, transpose_b=True)
        }
        """,
        """
        def @main(%x: Tensor[(1, 3, 8), bfloat16], %y: Tensor[(1, 5, 8), bfloat16]) {
          %0 = cast(%x, dtype="float32");
          %1 = cast(%y, dtype="float32");
          %2 = nn.batch_matmul(%0, %1, out_dtype="float32", transpose_b=True);
          cast(%2, dtype="bfloat16")
        }
        """,
    )


def test_each_result_of_a_tuple_gets_its_type_back() -> None:
    vector = "Tensor[(3), float16]"
    head = f"def @main(%x: Tensor[(2, 3), float16], %g: {vector}, %b: {vector}, %m: {vector}, %v: Tensor[(3), float32])"
    check(
        ComputeInFloat32(),
        f"{head} {{ %0 = nn.batch_norm(%x, %g, %b, %m, %v); %0.0 }}",
        f"""
        {head} {{
          %0 = cast(%x, dtype="float32");
          %1 = cast(%g, dtype="float32");
          %2 = cast(%b, dtype="float32");
          %3 = cast(%m, dtype="float32");
          %4 = nn.batch_norm(%0, %1, %2, %3, %v);
          cast(%4.0, dtype="float16")
        }}
        """,
    )


@pytest.mark.parametrize(
    "body",
    [
        "nn.softmax(%x)",  # float32 already
        "nn.max_pool2d(cast(%x, dtype=\"float16\"), pool_size=[2, 2], strides=[1, 1], padding=[0, 0, 0, 0])",
        "add(cast(%x, dtype=\"float16\"), cast(%x, dtype=\"float16\"))",  # one operation: rounded once anyway
    ],
)  # fmt: skip
def test_what_is_exact_or_wide_stays(body: str) -> None:
    module = parse(f"def @main(%x: Tensor[(1, 2, 4, 4), float32]) {{ {body} }}")
    assert ComputeInFloat32()(module)["main"] is module["main"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_libraries_hold_weights_in_their_own_type(dtype: str) -> None:
    x = relay.var("x", shape=(1, 16, 8, 8), dtype=dtype)
    kernel = relay.cast(relay.const(np.ones((32, 16, 3, 3), "float32")), dtype)
    matrix = relay.transpose(relay.cast(relay.const(np.ones((32, 48), "float32")), dtype))
    conv = relay.nn.conv2d(x, kernel)
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(conv))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.nn.dense(flat, matrix))), "llvm")
    params = lib.get_params()
    assert {str(p.dtype) for p in params.values() if p.numpy().size > 1000} == {dtype}
