"""Products of numbers of few bits against whole-number arithmetic in numpy; layouts of packed words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.relay.op.harness import Case, case, check_kernels, check_meaning, check_type, evaluate, integers, typed
from tests.topi.harness import compiled, random

from tilewright import relay, te, topi
from tilewright.ir.errors import InvalidShapeError, TypeInferenceError
from tilewright.relay.type_infer import infer_expr


def packed(data: np.ndarray, bits: int, axis: int, dtype: str) -> np.ndarray:
    """Words as text of bits, planes first."""
    width = np.dtype(dtype).itemsize * 8
    rows = np.moveaxis(data, axis, -1)
    out = np.zeros((bits, *rows.shape[:-1], rows.shape[-1] // width), dtype)
    for at in np.ndindex(out.shape):
        b, *row, word = at
        values = rows[tuple(row)][word * width : (word + 1) * width]
        out[at] = int("".join(str(int(v) >> b & 1) for v in values), 2)
    return np.moveaxis(out, -1, axis + 1)


def meant(weight: np.ndarray, bits: int, unipolar: bool) -> np.ndarray:
    """What each bit of a weight stands for, added up."""
    each = [(weight >> b & 1) * 2 - 1 if unipolar else weight >> b & 1 for b in range(bits)]
    return sum(e.astype("int64") << b for b, e in enumerate(each))


def convolved(x: np.ndarray, w: np.ndarray, stride, padding, dtype: str = "int16") -> np.ndarray:
    top, left, bottom, right = padding
    values = F.pad(torch.from_numpy(x.astype("float64")), (left, right, top, bottom))
    return F.conv2d(values, torch.from_numpy(w.astype("float64")), stride=stride).numpy().astype(dtype)


X, W = integers(0, 4, 2, 32, 7, 5), integers(0, 4, 5, 32, 3, 2, seed=1)
LAST, HWIO = np.ascontiguousarray(X.transpose(0, 2, 3, 1)), np.ascontiguousarray(W.transpose(2, 3, 1, 0))
D, E = integers(0, 4, 3, 64), integers(0, 2, 17, 64, seed=2)


def conv(**options):
    return lambda x, w: relay.nn.bitserial_conv2d(x, w, channels=5, kernel_size=(3, 2), **options)


def dense(**options):
    return lambda x, w: relay.nn.bitserial_dense(x, w, units=17, **options)


TWO = {"activation_bits": 2, "weight_bits": 2}
NHWC = {"data_layout": "NHWC"}
STRIDED = {"strides": (2, 1), "padding": (1, 0, 2, 1)}
CASES = [
    case(
        "words of 8 bits",
        lambda x: relay.nn.bitpack(x, 3, 0, 2, "uint8"),
        [integers(0, 8, 16, 5)],
        packed(integers(0, 8, 16, 5), 3, 0, "uint8").transpose(1, 2, 0),
    ),
    case(
        "words of 64 bits of a negative number",
        lambda x: relay.nn.bitpack(x, 2, 1, 1, "uint64"),
        [integers(-3, 3, 2, 64, dtype="int8")],
        packed(integers(-3, 3, 2, 64, dtype="int8"), 2, 1, "uint64").transpose(1, 0, 2),
    ),
    case("a convolution", conv(**TWO), [X, W], convolved(X, meant(W, 2, True), 1, (0, 0, 0, 0))),
    case(
        "bits that mean 0 and 1",
        conv(**TWO, **STRIDED, unipolar=False, pack_dtype="uint8"),
        [X, W],
        convolved(X, W, (2, 1), (1, 0, 2, 1)),
    ),
    case(
        "bits beyond those that count",
        conv(activation_bits=1, weight_bits=1, out_dtype="int32"),
        [X, W],
        convolved(X & 1, meant(W, 1, True), 1, (0, 0, 0, 0), "int32"),
    ),
    case(
        "a packed kernel",
        conv(**TWO, kernel_layout="OIHWi"),
        [X, packed(W, 2, 1, "uint32").transpose(1, 2, 3, 4, 0)],
        convolved(X, meant(W, 2, True), 1, (0, 0, 0, 0)),
    ),
    case(
        "channels last",
        conv(**TWO, **STRIDED, **NHWC, kernel_layout="HWIO"),
        [LAST, HWIO],
        convolved(X, meant(W, 2, True), (2, 1), (1, 0, 2, 1)).transpose(0, 2, 3, 1),
    ),
    case(
        "channels last, a packed kernel",
        conv(**TWO, **NHWC, kernel_layout="HWIOi", unipolar=False),
        [LAST, packed(HWIO, 2, 2, "uint32").transpose(1, 2, 3, 4, 0)],
        convolved(X, W, 1, (0, 0, 0, 0)).transpose(0, 2, 3, 1),
    ),
    case("a product", dense(data_bits=2), [D, E], (D @ meant(E, 1, True).T).astype("int16")),
    case(
        "a product with packed weights",
        dense(data_bits=2, unipolar=False, pack_dtype="uint16", out_dtype="int32"),
        [D, packed(E, 1, 1, "uint16").transpose(1, 0, 2)],
        (D @ E.T).astype("int32"),
    ),
]


@pytest.mark.parametrize("item", CASES, ids=str)
def test_type(item: Case) -> None:
    check_type(item)


@pytest.mark.parametrize("item", CASES, ids=str)
def test_meaning(item: Case) -> None:
    check_meaning(item)


def test_kernels() -> None:
    check_kernels(CASES)


def test_kernels_in_plain_loops() -> None:
    check_kernels(CASES[4:], "llvm -keys=plain")


def test_packing_makes_the_words_that_a_packed_kernel_has() -> None:
    """The program packs its own weight: no layout in between is assumed."""
    item = case(
        "both",
        lambda x, w: conv(**TWO, kernel_layout="OIHWi")(x, relay.nn.bitpack(w, 2, 1, 4)),
        [X, W],
        convolved(X, meant(W, 2, True), 1, (0, 0, 0, 0)),
    )
    variables, expr = typed(item)
    np.testing.assert_array_equal(evaluate(expr, dict(zip(variables, item.inputs, strict=True))), item.expected)
    check_kernels([item])


def test_a_sum_wraps_in_its_type() -> None:
    x, w = np.full((1, 256), 255, "int32"), np.full((1, 256), 255, "int32")
    build = lambda a, b: relay.nn.bitserial_dense(a, b, 1, 8, 8, unipolar=False)  # noqa: E731
    item = case("wrapped", build, [x, w], np.array([[256 * 255 * 255]]).astype("int16"))
    check_meaning(item)
    check_kernels([item])


@pytest.mark.parametrize("shape", [(3, 64, 5), (1, 96, 1), (7, 32, 16)])
def test_signs_multiply_as_numbers_do(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    a, b = np.sign(random(rows, inner)), np.sign(random(columns, inner, seed=1))
    words = [compiled(topi.nn.binarize_pack, v, schedule=topi.cpu.schedule_binarize_pack) for v in (a, b)]
    np.testing.assert_array_equal(words[0], packed((a >= 0).astype("int32"), 1, 1, "uint32")[0])
    found = compiled(topi.nn.binary_dense, *words, schedule=topi.cpu.schedule_binary_dense)
    np.testing.assert_array_equal(found, a @ b.T)


def test_zero_is_not_negative_and_bits_pack_along_any_axis() -> None:
    x = np.concatenate([np.zeros((16, 3)), np.full((16, 3), -1e-30)]).astype("float32")
    found = compiled(lambda t: topi.nn.binarize_pack(t, 0), x, schedule=topi.cpu.schedule_binarize_pack)
    np.testing.assert_array_equal(found, np.full((1, 3), 0xFFFF0000, "uint32"))


def matrix() -> te.Tensor:
    return te.placeholder((2, 32), "int32")


def test_what_does_not_fit_words_is_refused() -> None:
    with pytest.raises(TypeInferenceError, match="multiple of the 32 bits of a word, found 33"):
        infer_expr(relay.nn.bitserial_dense(relay.var("x", shape=(1, 33), dtype="int16"), relay.var("w"), 4))
    with pytest.raises(TypeInferenceError, match="bits of integers are packed, found float32"):
        infer_expr(relay.nn.bitpack(relay.var("x", shape=(1, 32))))
    with pytest.raises(TypeInferenceError, match="found NHWC with OIHW"):
        infer_expr(conv(**NHWC)(relay.var("x", shape=(1, 3, 3, 32), dtype="int16"), relay.var("w")))
    with pytest.raises(InvalidShapeError, match="uint8, uint16, uint32 or uint64, found 'int32'"):
        topi.nn.bitpack(matrix(), 1, 1, 1, "int32")
    with pytest.raises(InvalidShapeError, match="binarize_pack makes them"):
        topi.nn.binary_dense(matrix(), matrix())
