"""Rows of a table of few bits, read from the packed copy of it that a product has.

    take(%table, %ids, axis=0)                             // uint8 (n, bytes of a row)
    ->
    %0 = transpose(%words, axes=[0, 3, 1, 2]);           // (panels, lanes, blocks, words)
    %1 = gather_nd(%0, stack((%ids / lanes, %ids % lanes), axis=0));
    ...                                                    // shifts and masks of the words of few rows

Scales of the table's blocks likewise. Words, and how codes lie in them, are those of ``topi.nn.nbits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.type import TensorType
from tilewright.relay import op as relay_op
from tilewright.relay.expr import Call, Constant, RelayExpr, const
from tilewright.relay.op.nn.nbits import MatmulNBitsPack
from tilewright.relay.transform.common import call_of
from tilewright.runtime.ndarray import numpy_view
from tilewright.topi.nn import nbits

_PANELS = 256  # that are compared at a time


@dataclass(frozen=True)
class PackedCodes:
    """The weight of a product: words (panels, blocks, words, lanes), scales (panels, blocks, lanes)."""

    words: Constant
    scales: Constant
    bits: int
    block: int
    rows: int

    @staticmethod
    def of(expr: RelayExpr) -> PackedCodes | None:
        """Return the weight of a packed product; None of other expressions."""
        call = call_of(expr, MatmulNBitsPack.op)
        if call is None or not all(isinstance(e, Constant) for e in call.args[1:3]):
            return None
        form: Any = call.attrs
        words, scales = call.args[1:3]
        assert isinstance(words, Constant) and isinstance(scales, Constant)
        return PackedCodes(words, scales, int(form.bits), int(form.block_size), int(form.units))

    def lookup(self, take: Call, places: RelayExpr) -> RelayExpr | None:
        """Return what a typed ``take`` of a constant finds at ``places``, if this weight holds the table, or None."""
        table, mode = take.args[0], take.attrs.mode  # type: ignore[union-attr]
        type_ = take.args[1].checked_type
        assert isinstance(table, Constant) and isinstance(type_, TensorType)
        shape = table.data.shape
        if len(shape) < 2 or shape[0] != self.rows or mode == "wrap":
            return None
        if mode != "fast":
            places = relay_op.clip(places, 0, self.rows - 1)
        if table.data.dtype == "uint8":
            return self._bytes(places, type_, shape) if self._holds(table) else None
        return self._scales(places, type_, table) if self._has_scales(table) else None

    def _taken(self, places: RelayExpr, type_: TensorType, whole: RelayExpr, lanes: int) -> RelayExpr:
        """Take rows of a constant (panels, lanes, ...)."""
        each = const(lanes, type_.dtype)
        split = [operator(places, each) for operator in (relay_op.floor_divide, relay_op.floor_mod)]
        return relay_op.gather_nd(whole, relay_op.stack(split, axis=0))

    # ---- codes ----

    def _holds(self, table: Constant) -> bool:
        """Return whether the words hold the bytes of a table (rows, bytes of a row) or (rows, blocks, bytes)."""
        wanted = numpy_view(table.data).reshape(self.rows, -1)
        words = numpy_view(self.words.data)
        _, blocks, _, lanes = words.shape
        nbytes = -(-self.block * self.bits // 8)
        if not (blocks - 1) * nbytes < wanted.shape[1] <= blocks * nbytes:
            return False
        for start in range(0, len(words), _PANELS):
            part = wanted[start * lanes : (start + _PANELS) * lanes]
            codes = nbits.codes_of_words(words[start : start + _PANELS], self.bits, self.block, len(part))
            found = nbits.bytes_of_codes(codes, self.bits).reshape(len(part), -1)
            if not np.array_equal(found[:, : part.shape[1]], part):
                return False
        return True

    def _bytes(self, places: RelayExpr, type_: TensorType, shape: tuple[int, ...]) -> RelayExpr:
        """Return the bytes of rows, (..., *shape[1:])."""
        _, blocks, count, lanes = self.words.data.shape
        rank = len(type_.shape)
        each, nbytes, lead = 8 // self.bits, -(-self.block * self.bits // 8), [0] * rank
        whole = relay_op.transpose(self.words, axes=[0, 3, 1, 2])
        found = relay_op.expand_dims(self._taken(places, type_, whole, lanes), rank + 2)
        shifts = np.arange(0, 8, self.bits, dtype="int32")[:, None] + np.arange(0, nbits.WORD_BITS, 8, dtype="int32")
        numbers = relay_op.bitwise_and(
            relay_op.right_shift(found, const(shifts.reshape(-1))), const((1 << self.bits) - 1, "int32")
        )
        numbers = relay_op.reshape(numbers, [*lead, blocks, count * shifts.size])
        if count * shifts.size != nbytes * each:
            numbers = relay_op.strided_slice(numbers, [0], [nbytes * each], axes=[rank + 1])
        numbers = relay_op.reshape(numbers, [*lead, blocks * nbytes, each])
        parts = [relay_op.strided_slice(numbers, [i], [i + 1], axes=[rank + 1]) for i in range(each)]
        total = parts[0]
        for i, part in enumerate(parts[1:], 1):
            total = relay_op.bitwise_or(total, relay_op.left_shift(part, const(i * self.bits, "int32")))
        flat = relay_op.reshape(relay_op.cast(total, "uint8"), [*lead, blocks * nbytes])
        if blocks * nbytes != int(np.prod(shape[1:])):
            flat = relay_op.strided_slice(flat, [0], [int(np.prod(shape[1:]))], axes=[rank])
        return flat if len(shape) == 2 else relay_op.reshape(flat, [*lead, *shape[1:]])

    # ---- scales ----

    def _has_scales(self, table: Constant) -> bool:
        wanted, packed = numpy_view(table.data), numpy_view(self.scales.data)
        if wanted.dtype.name not in ("float16", "float32") or wanted.ndim != 2 or wanted.shape[1] != packed.shape[1]:
            return False
        found = packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[: self.rows]
        return np.array_equal(found.astype("float32"), wanted.astype("float32"))

    def _scales(self, places: RelayExpr, type_: TensorType, table: Constant) -> RelayExpr:
        whole = relay_op.transpose(self.scales, axes=[0, 2, 1])
        found = self._taken(places, type_, whole, self.scales.data.shape[2])
        same = self.scales.data.dtype == table.data.dtype
        return found if same else relay_op.cast(found, table.data.dtype)
