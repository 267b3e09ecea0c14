"""Loads and stores: contiguous vectors, strided ones and lanes of one vector by shuffles, others lane by lane."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import dtype as dt
from tilewright.ir import prim_ops as ops
from tilewright.target.codegen.common.index import as_offsets, as_ramp
from tilewright.target.codegen.llvm import types as ty
from tilewright.target.codegen.llvm.expr import ExpressionEmitter
from tilewright.tir.analysis import is_intrinsic
from tilewright.tir.expr import Add, Broadcast, Call, IntImm, Load, PrimExpr, Ramp, Var
from tilewright.tir.stmt import Store

_MAX_SHUFFLED_STRIDE = 4
_BYTES = 64  # of a register that entries of a table are taken from
_WORDS = 16  # in as many
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"


class MemoryEmitter(ExpressionEmitter):
    """Adds memory access to expressions."""

    def element_address(self, buffer: str, dtype: str, index: PrimExpr) -> str:
        """Address of element ``index`` of a buffer of ``dtype``.

        A constant at the end of the index is added last, so that neighbouring elements share the rest.
        """
        if isinstance(index, Add) and isinstance(index.b, IntImm):
            near = self._address(buffer, dtype, index.a, "")
            return self.emit(f"getelementptr {ty.element_in_memory(dtype)}, ptr {near}, i64 {index.b.value}")
        return self._address(buffer, dtype, index, " inbounds")

    def _address(self, buffer: str, dtype: str, index: PrimExpr, flags: str) -> str:
        if isinstance(index, IntImm) and index.value == 0:
            return buffer
        element = ty.element_in_memory(dtype)
        key: Any = (buffer, element, index)
        found = self._pure.get(key)
        if found is None:
            before = self._reads
            at = self.value(index)
            found = self.emit(f"getelementptr{flags} {element}, ptr {buffer}, {ty.scalar(index.dtype)} {at}")
            if self._reads == before:
                self._pure[key] = found
                self._pure_log.append(key)
        return found

    def _lane_address(self, buffer: str, dtype: str, index: str, index_dtype: str) -> str:
        element = ty.element_in_memory(dtype)
        return self.emit(f"getelementptr inbounds {element}, ptr {buffer}, {ty.scalar(index_dtype)} {index}")

    def alignment(self, buffer: Var, base: PrimExpr, dtype: str) -> int:
        """Return the known alignment in bytes of element ``base`` of the buffer; a power of two."""
        size = dt.nbytes(dtype)
        known = self.alignments.get(buffer, size)
        common = math.gcd(known, self.divisors.of(base) * size)
        return max(common & -common, 1)

    # ---- loads ----
    def visit_load(self, e: Load) -> str:
        """A load, in the cheapest form that its index allows."""
        self._reads += 1
        if not ops.is_const_int(e.predicate, 1):
            return self._predicated_load(e)
        buffer = self.value(e.buffer_var)
        lanes = dt.lanes(e.dtype)
        if dt.lanes(e.index.dtype) == 1:
            return self._load_at_scalar_index(e, buffer)
        if is_intrinsic(e.index, "tir.byte_index") and self._looks_up(e.dtype):
            return self._lookup(e, buffer)
        if is_intrinsic(e.index, "tir.byte_index") and self._gathers(e.dtype):
            return self._gathered(e, buffer)
        ramp = as_ramp(e.index)
        if ramp is not None:
            base, stride = ramp
            if stride == 1:
                return self._contiguous(e, buffer, base)
            if stride == 0:
                return self.splat(e.dtype, self._load_one(e.dtype, self.element_address(buffer, e.dtype, base)))
            if stride == -1:
                start = ops.sub(base, ops.const(lanes - 1, base.dtype))
                return self._shuffled(e.dtype, self._contiguous(e, buffer, start), list(range(lanes))[::-1])
            if 2 <= stride <= _MAX_SHUFFLED_STRIDE:
                return self._strided(e, buffer, base, stride)
        if ramp is None and (found := as_offsets(e.index)) is not None:
            return self._picked(e, buffer, *found)
        return self._gather(e, buffer)

    def _looks_up(self, dtype: str) -> bool:
        """Return whether the processor looks a vector of ``dtype`` up in a table of bytes in its registers."""
        narrow = dt.bits(dtype) == 8 and not dt.is_bool(dtype)
        return narrow and dt.lanes(dtype) <= _BYTES and self.unit.features.has("avx512vbmi")

    def _gathers(self, dtype: str) -> bool:
        """Return whether the processor loads the lanes of ``dtype`` by one instruction that is faster than theirs."""
        return dt.bits(dtype) == 32 and dt.lanes(dtype) == _WORDS and self.unit.features.has("avx512f")

    def _gathered(self, e: Load, buffer: str) -> str:
        """Entries of a table of words, by one gather."""
        reg, element, lanes = ty.register(e.dtype), ty.scalar(e.dtype), dt.lanes(e.dtype)
        pointers, all_lanes = f"<{lanes} x ptr>", f"<{lanes} x i1>"
        name = f"llvm.masked.gather.v{lanes}{'f' if dt.is_float(e.dtype) else 'i'}32.v{lanes}p0"
        self.unit.declare(name, reg, f"{pointers}, i32, {all_lanes}, {reg}")
        at = self.value(e.index)
        where = self.emit(f"getelementptr inbounds {element}, ptr {buffer}, <{lanes} x i32> {at}")
        return self.emit(f"call {reg} @{name}({pointers} {where}, i32 4, {all_lanes} splat (i1 true), {reg} poison)")

    def _lookup(self, e: Load, buffer: str) -> str:
        """Entries of a table of 256 bytes: from four registers, the lower and the upper half of it at once."""
        assert isinstance(e.index, Call)
        (bytes_,) = e.index.args
        reg, lanes = f"<{_BYTES} x i8>", dt.lanes(e.dtype)
        self.unit.declare(_PERMUTE, reg, ", ".join([reg] * 3))
        parts = []
        for part in range(4):
            where = self.emit(f"getelementptr inbounds i8, ptr {buffer}, i64 {part * _BYTES}") if part else buffer
            parts.append(self.emit(f"load {reg}, ptr {where}, align 1"))
        wide = [min(lane, lanes - 1) for lane in range(_BYTES)]
        at = self._shuffled(bytes_.dtype, self.value(bytes_), wide) if lanes < _BYTES else self.value(bytes_)
        halves = [
            self.emit(f"call {reg} @{_PERMUTE}({reg} {low}, {reg} {at}, {reg} {high})")
            for low, high in (parts[:2], parts[2:])
        ]
        upper = self.emit(f"icmp slt {reg} {at}, zeroinitializer")
        found = self.emit(f"select <{_BYTES} x i1> {upper}, {reg} {halves[1]}, {reg} {halves[0]}")
        return self._shuffled(dt.with_lanes(e.dtype, _BYTES), found, list(range(lanes))) if lanes < _BYTES else found

    def _picked(self, e: Load, buffer: str, scalar: PrimExpr, offsets: list[int]) -> str:
        """Load the elements at ``scalar`` plus ``offsets``, by one load and a shuffle if they are close enough.

        Few repeated ones, such as a pair, by a load of these: the processor broadcasts it. Else by one of a whole
        vector, which may serve other offsets, too, or of what lies between the first and the last.
        """
        lanes, first = dt.lanes(e.dtype), min(offsets)
        span = max(offsets) - first + 1
        if not 1 < span <= lanes // 2:
            start = first // lanes * lanes
            whole, picks = ops.add(scalar, ops.const(start, scalar.dtype)), [x - start for x in offsets]
            if self._may_read_whole(e, whole, picks):
                return self._shuffled(e.dtype, self._contiguous(e, buffer, whole), picks)
        if not 1 < span <= lanes:
            return self._gather(e, buffer)
        base = ops.add(scalar, ops.const(first, scalar.dtype))
        near = Load(dt.with_lanes(e.dtype, span), e.buffer_var, Ramp(base, 1, span))
        part = self._contiguous(near, buffer, base)
        return self._shuffled(e.dtype, part, [x - first for x in offsets], width=span)

    def _may_read_whole(self, e: Load, base: PrimExpr, picks: list[int]) -> bool:
        """Return whether a vector at ``base`` holds the lanes ``picks``, and is read without leaving the buffer's
        memory.

        Where parts of the vector are aligned to their size, one with a wanted lane lies in a page with that lane.
        """
        lanes = dt.lanes(e.dtype)
        part = min(lanes, self.alignment(e.buffer_var, base, e.dtype) // dt.nbytes(dt.element(e.dtype)))
        return max(picks) < lanes and len({pick // part for pick in picks}) * part == lanes

    def _load_at_scalar_index(self, e: Load, buffer: str) -> str:
        dtype = e.dtype
        if dt.lanes(dtype) == 1:
            return self._load_one(dtype, self.element_address(buffer, dtype, e.index))
        index, whole = self.value(e.index), ty.memory(dtype)  # a buffer of vectors
        where = self.emit(f"getelementptr inbounds {whole}, ptr {buffer}, {ty.scalar(e.index.dtype)} {index}")
        return self._from_memory(dtype, self.emit(f"load {whole}, ptr {where}, align {dt.nbytes(dtype)}"))

    def _load_one(self, dtype: str, where: str) -> str:
        element = dt.element(dtype)
        loaded = self.emit(f"load {ty.memory(element)}, ptr {where}, align {dt.nbytes(element)}")
        return self._from_memory(element, loaded)

    def _from_memory(self, dtype: str, loaded: str) -> str:
        """Convert a value from its memory form to its register form."""
        if not dt.is_bool(dtype):
            return loaded
        return self.emit(f"icmp ne {ty.memory(dtype)} {loaded}, {'0' if dt.lanes(dtype) == 1 else 'zeroinitializer'}")

    def _contiguous(self, e: Load, buffer: str, base: PrimExpr) -> str:
        where = self.element_address(buffer, e.dtype, base)
        align = self.alignment(e.buffer_var, base, e.dtype)
        return self._from_memory(e.dtype, self.emit(f"load {ty.memory(e.dtype)}, ptr {where}, align {align}"))

    def _shuffled(self, dtype: str, vector: str, lanes: list[int], second: str = "poison", width: int = 0) -> str:
        reg = ty.register(dt.with_lanes(dtype, width) if width else dtype)
        mask = f"<{len(lanes)} x i32> <{', '.join(f'i32 {i}' for i in lanes)}>"
        return self.emit(f"shufflevector {reg} {vector}, {reg} {second}, {mask}")

    def _strided(self, e: Load, buffer: str, base: PrimExpr, stride: int) -> str:
        """Every ``stride``-th element from ``base`` on, picked from whole vectors."""
        lanes = dt.lanes(e.dtype)
        starts, skipped, align = self._covering(e, base, stride)
        first = self.element_address(
            buffer, e.dtype, ops.sub(base, ops.const(skipped, base.dtype)) if skipped else base
        )
        element, positions = ty.element_in_memory(e.dtype), {i: i * stride + skipped for i in range(lanes)}
        result = ""
        for part, start in enumerate(starts):
            mine = [
                i for i, at in positions.items() if start <= at < start + lanes and (part == 0 or at >= part * lanes)
            ]
            if not mine:
                continue
            where = self.emit(f"getelementptr inbounds {element}, ptr {first}, i64 {start}") if start else first
            vector = self._from_memory(e.dtype, self.emit(f"load {ty.memory(e.dtype)}, ptr {where}, align {align}"))
            picked = {i: positions[i] - start for i in mine}
            if not result:
                result = self._shuffled(e.dtype, vector, [picked.get(i, 0) for i in range(lanes)])
            else:
                result = self._shuffled(
                    e.dtype, result, [lanes + picked[i] if i in picked else i for i in range(lanes)], vector
                )
        return result

    def _covering(self, e: Load, base: PrimExpr, stride: int) -> tuple[list[int], int, int]:
        """Return the starts of vectors that cover the elements, the elements before ``base``, and their alignment.

        Aligned vectors where they can be: none lies in a page without a wanted element, and what was stored so stays
        in registers. Else from the first element to the last, and no more.
        """
        lanes, size = dt.lanes(e.dtype), dt.nbytes(e.dtype)
        for skipped in range(stride):
            whole = ops.sub(base, ops.const(skipped, base.dtype)) if skipped else base
            if self.alignment(e.buffer_var, whole, e.dtype) >= lanes * size:
                return [part * lanes for part in range(stride)], skipped, lanes * size
        span = (lanes - 1) * stride + 1
        return [min(part * lanes, span - lanes) for part in range(stride)], 0, size

    def _gather(self, e: Load, buffer: str) -> str:
        reg, element = ty.register(e.dtype), ty.scalar(e.dtype)
        made = "poison"
        for i, index in enumerate(self.lanes_of(e.index)):
            lane = self._load_one(e.dtype, self._lane_address(buffer, e.dtype, index, e.index.dtype))
            made = self.emit(f"insertelement {reg} {made}, {element} {lane}, i64 {i}")
        return made

    def _predicated_load(self, e: Load) -> str:
        """Lanes whose predicate is false are zero and touch no memory."""
        plain = Load(e.dtype, e.buffer_var, e.index)
        reg = ty.register(e.dtype)
        if dt.lanes(e.predicate.dtype) == 1 or isinstance(e.predicate, Broadcast):
            flag = e.predicate.value if isinstance(e.predicate, Broadcast) else e.predicate
            zero = "zeroinitializer" if dt.lanes(e.dtype) > 1 else self.literal(e.dtype, 0)
            return self.guarded(self.value(flag), plain, zero, reg)
        made, element = "zeroinitializer", ty.scalar(e.dtype)
        buffer = self.value(e.buffer_var)
        flags, indices = self.lanes_of(e.predicate), self.lanes_of(e.index)
        for i, (lane_flag, index) in enumerate(zip(flags, indices, strict=True)):
            inside, done, origin = self.new_label("lane"), self.new_label("next"), self.block
            self.branch(lane_flag, inside, done)
            self.start(inside)
            lane = self._load_one(e.dtype, self._lane_address(buffer, e.dtype, index, e.index.dtype))
            grown = self.emit(f"insertelement {reg} {made}, {element} {lane}, i64 {i}")
            end = self.block
            self.jump(done)
            self.start(done)
            made = self.emit(f"phi {reg} [ {grown}, %{end} ], [ {made}, %{origin} ]")
        return made

    # ---- stores ----
    def store(self, s: Store) -> None:
        """Emit a store."""
        if not ops.is_const_int(s.predicate, 1):
            self._predicated_store(s)
            return
        value, dtype = self.value(s.value), s.value.dtype
        buffer = self.value(s.buffer_var)
        lanes = dt.lanes(s.index.dtype)
        if lanes == 1:
            self._store_at_scalar_index(s, buffer, value)
            return
        ramp = as_ramp(s.index)
        if ramp is not None and ramp[1] == 1:
            where = self.element_address(buffer, dtype, ramp[0])
            align = self.alignment(s.buffer_var, ramp[0], dtype)
            self.do(f"store {ty.memory(dtype)} {self._to_memory(dtype, value)}, ptr {where}, align {align}")
            return
        for lane, index in zip(self.lanes_of(s.value), self.lanes_of(s.index), strict=True):
            self._store_one(dt.element(dtype), self._lane_address(buffer, dtype, index, s.index.dtype), lane)

    def _store_at_scalar_index(self, s: Store, buffer: str, value: str) -> None:
        dtype = s.value.dtype
        if dt.lanes(dtype) == 1:
            self._store_one(dtype, self.element_address(buffer, dtype, s.index), value)
            return
        index, whole = self.value(s.index), ty.memory(dtype)
        where = self.emit(f"getelementptr inbounds {whole}, ptr {buffer}, {ty.scalar(s.index.dtype)} {index}")
        self.do(f"store {whole} {self._to_memory(dtype, value)}, ptr {where}, align {dt.nbytes(dtype)}")

    def _store_one(self, dtype: str, where: str, value: str) -> None:
        self.do(f"store {ty.memory(dtype)} {self._to_memory(dtype, value)}, ptr {where}, align {dt.nbytes(dtype)}")

    def _to_memory(self, dtype: str, value: str) -> str:
        if not dt.is_bool(dtype):
            return value
        return self.emit(f"zext {ty.register(dtype)} {value} to {ty.memory(dtype)}")

    def _predicated_store(self, s: Store) -> None:
        """Lanes whose predicate is false are not written."""
        if dt.lanes(s.predicate.dtype) == 1 or isinstance(s.predicate, Broadcast):
            flag = s.predicate.value if isinstance(s.predicate, Broadcast) else s.predicate
            inside, done = self.new_label("lane"), self.new_label("next")
            self.branch(self.value(flag), inside, done)
            self.start(inside)
            mark = self.enter_scope()
            self.store(Store(s.buffer_var, s.value, s.index))
            self.leave_scope(mark)
            self.jump(done)
            self.start(done)
            return
        buffer, dtype = self.value(s.buffer_var), dt.element(s.value.dtype)
        lanes = zip(self.lanes_of(s.value), self.lanes_of(s.index), self.lanes_of(s.predicate), strict=True)
        for lane, index, flag_text in lanes:
            inside, done = self.new_label("lane"), self.new_label("next")
            self.branch(flag_text, inside, done)
            self.start(inside)
            self._store_one(dtype, self._lane_address(buffer, dtype, index, s.index.dtype), lane)
            self.jump(done)
            self.start(done)
