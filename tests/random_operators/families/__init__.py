"""Generators of cases by family of operators; importing this registers all."""

from tests.random_operators.families import (
    control,
    creation,
    elementwise,
    linear,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    selection,
    sequences,
    spectral,
    vision,
)

ALL = (
    control, creation, elementwise, linear, movement, normalization, pooling, quantization, recurrent, reduction,
    resizing, selection, sequences, spectral, vision,
)  # fmt: skip
