"""The arguments of ``tilewright.compile`` that decide which library a model becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Arguments of ``tilewright.compile``, which says what they are; ``build_model`` and ``model_key`` read them."""

    params: Mapping[str, Any] | None
    input_shapes: Mapping[str, Sequence[int | str]] | None
    dims: Mapping[str, Any] | None
    specialize: Sequence[str]
    opt_level: int
    executor: str
    config: Mapping[str, Any] | None
    precision: str
    keep: Sequence[str]
    matmul_precision: str
