"""Recurrent networks of integers, and SVDF, beside LiteRT's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.relay.frontend.tflite_files import Array, File, compiled, interpreted, litert

from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.frontend.tflite.fixed_point import sigmoid_table, tanh_table

B, T, N, U = 3, 5, 4, 7


def _lstm(forms: set[str], op: str = "UNIDIRECTIONAL_SEQUENCE_LSTM", cell: float = 2.0**-11) -> tuple[bytes, Array]:
    """A file of an LSTM in integers as TensorFlow's converter writes them, and data for it."""
    file, rng = File(), np.random.default_rng(1)
    coupled, projected = "coupled" in forms, "projection" in forms
    width = 6 if projected else U
    zero = -3 if "zero points" in forms else 0

    def weight(*shape: int, scale: float = 0.01, dtype: str = "int8") -> int:
        limit = 127 if dtype == "int8" else 20000
        return file.constant(rng.integers(-limit, limit + 1, shape), dtype, scale=scale)

    def bias(size: int) -> int:
        return file.constant(rng.integers(-9000, 9000, size), "int32", scale=1e-4)

    steps = () if op == "LSTM" else (T,)
    shape = (*steps, B) if "time first" in forms else (B, *steps)
    x = file.tensor((*shape, N), "int8", scale=0.02, zero=5 if "zero points" in forms else 0)
    y = file.tensor((*shape, width), "int8", scale=0.008, zero=zero)
    gates = [not (coupled and i == 0) for i in range(4)]
    inputs = [x, *(weight(U, N) if there else -1 for there in gates)]
    inputs += [weight(U, width) if there else -1 for there in gates]
    inputs += [weight(U, scale=1e-5, dtype="int16") if "peepholes" in forms and gates[i] else -1 for i in (0, 1, 3)]
    inputs += [bias(U) if there else -1 for there in gates]
    inputs += [weight(width, U), bias(width)] if projected else [-1, -1]
    inputs += [file.tensor((B, width), "int8", scale=0.008, zero=zero, variable=True)]
    inputs += [file.tensor((B, U), "int16", scale=cell, variable=True)]
    norms, step = "norms" in forms, 2.0**-12 if "norms" not in forms else 3e-4
    inputs += [weight(U, scale=1e-4, dtype="int16") if norms and there else -1 for there in gates]
    between = [file.tensor((1,), "int16", scale=step) for _ in range(4)]
    between += [file.tensor((1,), "int8", scale=0.0078 if projected else 0.008, zero=zero)]
    values: dict[str, Any] = {"fusedActivationFunction": 4}
    values |= {"cellClip": 3.0} if "clip" in forms else {}
    values |= {"projClip": 0.5} if "clip" in forms and projected else {}
    if op == "LSTM":
        file.op(op, inputs, [y], "LSTMOptions", intermediates=between, **values)
    else:
        values["timeMajor"] = "time first" in forms
        file.op(op, inputs, [y], "UnidirectionalSequenceLSTMOptions", intermediates=between, **values)
    return file.ends([x], [y]).data, rng.integers(-128, 128, (*shape, N)).astype("int8")


@pytest.mark.parametrize(
    "forms",
    [
        set(),
        {"zero points"},
        {"coupled", "peepholes", "zero points"},
        {"projection", "zero points"},
        {"time first", "clip"},
        {"projection", "clip"},
        {"peepholes", "clip"},
        {"norms", "zero points"},
        {"norms", "coupled", "peepholes"},
    ],
    ids=lambda forms: ", ".join(sorted(forms)) or "plain",
)
def test_an_lstm_of_integers_has_the_same_bits(forms: set[str]) -> None:
    data, x = _lstm(forms)
    (found,), (wanted,) = interpreted(data, [x]), litert(data, [x])
    assert np.ptp(wanted.astype(int)) > 50
    np.testing.assert_array_equal(found, wanted)


def test_a_peephole_beside_a_projection_reads_its_own_cell() -> None:
    """LiteRT reads cells of other rows there: it strides them by the projection's width."""
    data, x = _lstm({"projection", "peepholes"})
    alone = interpreted(data, [x])[0]
    again = interpreted(data, [x[::-1].copy()])[0]
    np.testing.assert_array_equal(alone, again[::-1])


def test_a_compiled_lstm_of_integers_has_the_same_bits() -> None:
    data, x = _lstm({"zero points"})
    np.testing.assert_array_equal(compiled(data, [x])[0], litert(data, [x])[0])


def test_one_step_of_an_lstm_of_integers() -> None:
    data, x = _lstm({"zero points"}, "LSTM")
    np.testing.assert_array_equal(interpreted(data, [x])[0], litert(data, [x])[0])


def test_a_cell_whose_scale_is_no_power_of_two_is_refused() -> None:
    data, x = _lstm(set(), cell=0.001)
    with pytest.raises(TilewrightError, match="must be a power of two"):
        interpreted(data, [x])


def test_tables_of_16_bits_are_near_their_functions() -> None:
    values = np.arange(-32768, 32768) / 4096
    assert (
        np.abs(sigmoid_table() / 32768 - 1 / (1 + np.exp(-values))).max() < 2.5e-4
    )  # 6 steps: exp is a polynomial in 16 bits
    for bits in range(7):
        exact = np.tanh(np.arange(-32768, 32768) * 2.0 ** (bits - 15))
        assert np.abs(tanh_table(bits) / 32768 - exact).max() < 4e-4


@pytest.mark.parametrize(("rank", "activation", "biased"), [(1, 0, True), (2, 1, False), (3, 3, True)])
def test_svdf(rank: int, activation: int, biased: bool) -> None:
    file, rng = File(), np.random.default_rng(2)
    length, units = 5, 4
    x, y = file.tensor((B, N)), file.tensor((B, units))
    made = [rng.normal(size=s).astype("float32") for s in ((units * rank, N), (units * rank, length), (units,))]
    inputs = [x, *(file.constant(array) for array in made[: 2 + biased]), *([] if biased else [-1])]
    inputs += [file.tensor((B, units * rank * length), variable=True)]
    file.op("SVDF", inputs, [y], "SVDFOptions", rank=rank, fusedActivationFunction=activation)
    data, values = file.ends([x], [y]).data, rng.normal(size=(B, N)).astype("float32")
    np.testing.assert_allclose(interpreted(data, [values])[0], litert(data, [values])[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf_of_integers_has_the_same_bits(rank: int) -> None:
    file, rng = File(), np.random.default_rng(3)
    length, units = 5, 4
    x = file.tensor((B, N), "int8", scale=0.02, zero=7)
    y = file.tensor((B, units), "int8", scale=0.05, zero=-4)
    inputs = [x, file.constant(rng.integers(-127, 128, (units * rank, N)), "int8", scale=0.01)]
    inputs += [file.constant(rng.integers(-20000, 20000, (units * rank, length)), "int16", scale=5e-5)]
    inputs += [file.constant(rng.integers(-900, 900, units), "int32", scale=1e-4)]
    inputs += [file.tensor((B, units * rank * length), "int16", scale=1e-4, variable=True)]
    file.op("SVDF", inputs, [y], "SVDFOptions", rank=rank, fusedActivationFunction=1)
    data, values = file.ends([x], [y]).data, rng.integers(-128, 128, (B, N)).astype("int8")
    (found,), (wanted,) = interpreted(data, [values]), litert(data, [values])
    assert np.ptp(wanted.astype(int)) > 20
    np.testing.assert_array_equal(found, wanted)


def test_an_svdf_of_another_type_is_named() -> None:
    file = File()
    x, y = file.tensor((1, N), "uint8", scale=0.1), file.tensor((1, 2), "uint8", scale=0.1)
    weights = [file.constant(np.ones((2, N)), "uint8", scale=0.1), file.constant(np.ones((2, 3)), "int16", scale=0.1)]
    memory = file.tensor((1, 6), "int16", scale=0.1, variable=True)
    file.op("SVDF", [x, *weights, -1, memory], [y], "SVDFOptions", rank=1)
    with pytest.raises(UnsupportedError, match="SVDF of uint8"):
        interpreted(file.ends([x], [y]).data, [np.zeros((1, N), "uint8")])
