"""Helpers of computes and schedules."""

import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.prim_ops import const
from tilewright.topi import utils


def test_constants_come_out_of_expressions() -> None:
    n = te.var("n")
    assert utils.get_const_int(const(3) * 4 + n - n) == 12
    assert utils.get_const_float(const(2.5, "float32")) == 2.5
    assert utils.get_float_tuple([1, const(0.5, "float32")]) == (1.0, 0.5)
    assert utils.get_const_tuple((const(3), 4, n))[:2] == (3, 4)
    assert utils.get_const_tuple((n,))[0] is n
    with pytest.raises(ValueError, match="expected a constant integer, found n"):
        utils.get_const_int(n)


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (1, (1, 1, 1, 1)),
        ((1, 2), (1, 2, 1, 2)),
        ((1, 2, 3, 4), (1, 2, 3, 4)),
        ("VALID", (0, 0, 0, 0)),
        ("SAME", (1, 2, 1, 1)),
    ],
)
def test_padding_of_every_form(padding: object, expected: tuple) -> None:
    assert utils.get_pad_tuple(padding, (3, 4)) == expected


def test_padding_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 1, 3 or 6 values"):
        utils.get_pad_tuple3d((1, 2), (3, 3, 3))
    with pytest.raises(ValueError, match="'VALID' or 'SAME'"):
        utils.get_pad_tuple1d("FULL", (3,))


def test_ravel_undoes_unravel() -> None:
    shape = (3, 4, 5)
    for flat in range(60):
        at = [int(v) for v in utils.unravel_index(const(flat), shape)]
        assert utils.ravel_index(at, shape) == flat


def test_layout_names() -> None:
    assert utils.nchw_xc_layout("NCHW16c")
    assert not utils.nchw_xc_layout("NCHW")
    assert utils.nchw_pack_layout("NCHW1n16c")
    assert not utils.nchw_pack_layout("NCHW16c")
    assert utils.is_empty_shape((2, const(0), te.var("n")))


def test_traverse_inline_meets_consumers_first() -> None:
    a = te.placeholder((4, 8), name="a")
    total = topi.sum(topi.exp(a), 1)
    out = topi.nn.relu(topi.negative(total))
    s = te.create_schedule(out.op)
    met: list[str] = []
    utils.traverse_inline(s, out.op, lambda op: met.append(op.name))
    assert met == ["T_relu", "T_negative", "T_sum", "T_exp", "a"]
    text = str(tvm.lower(s, [a, out], simple_mode=True))
    assert "T_exp" not in text
    assert "T_sum" in text


def test_a_long_chain_is_walked_without_recursion() -> None:
    x = te.placeholder((4,), name="x")
    for _ in range(5000):
        x = te.compute((4,), lambda i, t=x: t(i) + tir.const(1.0, "float32"), name="y")
    assert sum(1 for _ in utils.operations(x)) == 5001


def test_a_shape_in_another_layout() -> None:
    assert utils.get_shape((1, 3, 8, 9), "NCHW", "NCHW") == (1, 3, 8, 9)
    assert utils.get_shape((2, 3, 5, 7, 16, 8), "OIHW16i8o", "HWO8oI16i") == (5, 7, 2, 8, 3, 16)


def test_rounding_up_and_swapping() -> None:
    assert [int(utils.ceil_div(n, 4)) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    n = te.var("n")
    tvm.ir.assert_structural_equal(utils.ceil_div(n, 4), tir.floordiv(n + 3, 4))
    assert utils.swap([1, 2, 3, 4], 1) == [1, 4, 3, 2]


def test_padding_and_strides_of_a_convolution_from_its_tensors() -> None:
    data, padded, kernel, out = (
        te.placeholder(shape) for shape in ((1, 3, 7, 8), (1, 3, 9, 12), (5, 3, 3, 4), (1, 5, 4, 1))
    )
    assert topi.nn.utils.infer_pad(data, padded) == (1, 2) and topi.nn.utils.infer_pad(data, None) == (0, 0)
    assert topi.nn.utils.infer_stride(padded, kernel, out) == (2, 1)
    block, around = te.placeholder((1, 4, 5, 6, 2)), te.placeholder((1, 5, 7, 9, 2))
    assert topi.nn.utils.infer_pad3d(block, around, "NDHWC") == (1, 2, 3)
    with pytest.raises(topi.InvalidShapeError, match="found 'NCHW'"):
        topi.nn.utils.infer_pad3d(block, around, "NCHW")
