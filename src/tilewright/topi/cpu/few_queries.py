"""Attention of a few queries to many keys, as decoders have it for each token: keys and values are read once, in place.

Heads that share keys and values (``heads`` is a multiple of ``groups``) are rows of one group. For each group and each
chunk of keys, in parallel::

    for each vector's lanes of keys:
        for each row: a dot product in vectors with each key; shuffles and sums make one vector of scores of them
    powers = 2 ** ((scores - max(scores)) * log2(e))     # the maximum of the chunk's scores
    for a few rows and vectors of columns: sums of powers times values, in registers

Then the chunks of a row are added up, each by its maximum's power. So the time is that of reading keys and values, on
as many cores as there are chunks, and a score is never in memory but in the first cache. Chunks that the mask hides
from all rows of a group (behind the entries of a buffer, outside of a window) are not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te, tir
from tilewright.ir import prim_ops as ops
from tilewright.ir.prim_expr import IntImm, Shuffle
from tilewright.target.features import features
from tilewright.tir import ir_builder
from tilewright.topi.cpu.common import machine, measured, typical_extent
from tilewright.topi.cpu.compute.attention import LOG2_E, power_of_two
from tilewright.topi.utils import get_const_int

_LEAST_LANES = 4
_LINE = 64  # bytes
_SECOND_LEVEL = 2  # of prefetches: the cache that they fill
_MOST_ROWS = 64  # of a group, whose scores of a chunk are on the stack
_MINUS_INFINITY = float("-inf")
_HIDES = -1e30  # a mask of at most this leaves nothing of a score
_SHOWS = -1e29  # beside one that is at least this


def _whole(*extents: Any) -> bool:
    return all(isinstance(n, IntImm) and int(n) > 0 for n in extents)


def _lanes(*extents: Any) -> int:
    """Return the most lanes of a vector that divide all of the extents."""
    lanes = features().lanes(32)
    while lanes >= _LEAST_LANES and any(int(n) % lanes for n in extents):
        lanes //= 2
    return lanes


def fits_few_queries(query: te.Tensor, key: te.Tensor, value: te.Tensor) -> bool:
    """Return whether ``few_queries`` computes attention: few rows of float32 that read keys and values in memory."""
    _, heads, rows, depth = query.shape
    groups, width = key.shape[1], value.shape[3]
    if not _whole(heads, rows, depth, groups, width) or any(t.dtype != "float32" for t in (query, key, value)):
        return False
    in_memory = all(isinstance(t.op, te.PlaceholderOp) for t in (key, value))
    count = get_const_int(rows)
    few = count < measured().attention.few_rows and count * get_const_int(heads) <= _MOST_ROWS * get_const_int(groups)
    return in_memory and few and _lanes(depth, width) >= _LEAST_LANES


@dataclass
class _Kernel:
    """The attention in the making: its operands, and their extents."""

    ib: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    out: Any
    scale: float

    def __post_init__(self) -> None:
        self.batch, heads, rows, depth = self.query.shape
        self.groups, self.keys = int(self.key.shape[1]), self.key.shape[2]
        self.rows, self.depth, self.width = int(rows), int(depth), int(self.value.shape[3])
        self.each = int(heads) // self.groups  # heads of a group
        self.count = self.each * self.rows  # rows of a group
        self.lanes = _lanes(depth, self.width)
        self.vector = f"float32x{self.lanes}"
        self.chunk = measured().attention.chunk_keys
        self.chunks = ops.floordiv(self.keys + (self.chunk - 1), self.chunk)

    def places(self, task: Any, row: Any) -> tuple[Any, Any, Any]:
        """Return batch, head and place of a group's row."""
        b, g = ops.floordiv(task, self.groups), ops.floormod(task, self.groups)
        return b, g * self.each + ops.floordiv(row, self.rows), ops.floormod(row, self.rows)

    def fetch_ahead(self, buffer: Any, at: list[Any], count: int) -> None:
        """Fetch ``count`` numbers that are read some time after the element ``at``."""
        ahead = machine().processor.memory.row_bytes_ahead // 4
        for start in range(0, count, _LINE // 4) if ahead else ():
            address = tir.address_of(buffer.vload([*at[:-1], at[-1] + (ahead + start)]))
            self.ib.emit(tir.Evaluate(tir.Call("handle", "tir.prefetch", (address, 0, _SECOND_LEVEL, 1))))


@dataclass
class _Partial:
    """Sums of chunks: context (tasks, rows, width), maxima (tasks, rows), totals (tasks, rows, lanes)."""

    context: Any
    maxima: Any
    totals: Any


def few_queries(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, mask: te.Tensor | None = None, scale: float = 1.0
) -> te.Tensor:
    """Compute ``softmax(query @ key.T * scale + mask) @ value`` for operands that pass ``fits_few_queries``.

    Parameters
    ----------
    query : (batch, heads, rows, depth)
    key, value : (batch, groups, keys, depth) and (batch, groups, keys, width); ``heads`` is a multiple of ``groups``
    mask : added to the scores; broadcasts to (batch, heads, rows, keys)

    Returns
    -------
    (batch, rows, heads, width)
    """
    batch, heads, rows, _ = query.shape

    def loops(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _attend(_Kernel(ib, ins[0], ins[1], ins[2], ins[3] if len(ins) > 3 else None, outs[0], scale))
        return ib.get()

    inputs = [query, key, value, *([] if mask is None else [mask])]
    shape = (batch, rows, heads, value.shape[3])
    return te.extern([shape], inputs, loops, dtype=["float32"], name="attention", tag="few_queries")


def _attend(k: _Kernel) -> None:
    ib, tasks = k.ib, k.batch * k.groups * k.chunks
    parts = _Partial(
        ib.allocate("float32", (tasks * (k.count * k.width),), name="contexts", scope="global"),
        ib.allocate("float32", (tasks * k.count,), name="maxima", scope="global"),
        ib.allocate("float32", (tasks * (k.count * k.lanes),), name="totals", scope="global"),
    )
    shown = _least_shown(k)
    with ib.for_range(0, tasks, name="task", kind=_kind(k)) as task:
        matrix, first = ops.floordiv(task, k.chunks), ops.floormod(task, k.chunks) * k.chunk
        length = ib.let("length", ops.minimum(k.keys - first, k.chunk))
        with ib.if_scope(_is_seen(k, matrix, first, length, shown)):
            _chunk(k, task, matrix, first, length, parts)
        with ib.else_scope():
            _leave_out(k, task, parts)
    with ib.for_range(0, k.batch * k.groups, name="matrix") as m, ib.for_range(0, k.count, name="row") as row:
        _add_chunks(k, m, row, parts)


def _is_seen(k: _Kernel, matrix: Any, first: Any, length: Any, shown: Any) -> Any:
    """Return whether a chunk has to be read."""
    if shown is None:
        return ops.const(True, "bool")
    most = _most_of_mask(k, _rows_of_mask(k, matrix), first, length)
    return tir.any(tir.Not(most <= ops.const(_HIDES, "float32")), shown[0] < ops.const(_SHOWS, "float32"))


def _chunk(k: _Kernel, task: Any, matrix: Any, first: Any, length: Any, parts: _Partial) -> None:
    """Attend to a chunk of keys."""
    ib = k.ib
    scores = ib.allocate("float32", (k.count * k.chunk,), name="scores", scope="global")
    most = ib.allocate(k.vector, (k.count,), name="most", scope="global")
    _scores(k, matrix, first, length, scores, most)
    with ib.for_range(0, k.count, name="row") as row:
        _powers(k, task * k.count + row, row, length, scores, most, parts)
    _contexts(k, task, matrix, first, length, scores, parts)


def _leave_out(k: _Kernel, task: Any, parts: _Partial) -> None:
    """Give a chunk that nobody sees no weight."""
    ib, lanes = k.ib, k.lanes
    zeros = ops.const(0.0, k.vector)
    with ib.for_range(0, k.count, name="row") as row:
        parts.maxima[task * k.count + row] = ops.const(_MINUS_INFINITY, "float32")
        ib.emit(
            tir.Store(parts.totals.asobject(), zeros, tir.Ramp((task * k.count + row) * lanes, ops.const(1), lanes))
        )
    with ib.for_range(0, k.count * k.width // lanes, name="part") as part:
        place = task * (k.count * k.width) + part * lanes
        ib.emit(tir.Store(parts.context.asobject(), zeros, tir.Ramp(place, ops.const(1), lanes)))


def _rows_of_mask(k: _Kernel, matrix: Any) -> list[list[Any]]:
    """Return batch, head and row of each row of the mask that a group has."""
    shape = k.mask.shape
    one = [ops.is_const_int(n, 1) for n in shape[:3]]
    rows = range(0, k.count, k.rows if one[2] else 1) if not one[1] else range(1 if one[2] else k.rows)
    places = [k.places(matrix, ops.const(row)) for row in rows]
    return [[0 if is_one else at for is_one, at in zip(one, place, strict=True)] for place in places]


def _most_of_mask(k: _Kernel, rows: list[list[Any]], first: Any, length: Any) -> Any:
    """Return the largest number of some rows of the mask from a key on."""
    ib, lanes = k.ib, k.lanes
    wide = ib.allocate(k.vector, (1,), name="wide", scope="local")
    most = ib.allocate("float32", (1,), name="most_of_mask", scope="local")
    wide[0] = ops.const(_MINUS_INFINITY, k.vector)
    full = ops.floordiv(length, lanes)
    with ib.for_range(0, full, name="step") as step:
        for row in rows:
            wide[0] = ops.maximum(wide[0], k.mask.vload([*row, first + step * lanes], k.vector))
    most[0] = tir.call_llvm_pure_intrin("float32", f"llvm.vector.reduce.fmaximum.v{lanes}f32", wide[0])
    with ib.for_range(0, length - full * lanes, name="rest") as rest:
        for row in rows:
            most[0] = ops.maximum(most[0], k.mask.vload([*row, first + full * lanes + rest]))
    return ib.let("most_of_mask", most[0])


def _least_shown(k: _Kernel) -> Any:
    """Return an array of the least, over all rows of the mask, of their largest numbers; None without such a mask.

    A row that sees nothing weighs all values alike, so then all are read.
    """
    if k.mask is None or ops.is_const_int(k.mask.shape[3], 1):
        return None
    ib = k.ib
    shown = ib.allocate("float32", (1,), name="shown", scope="global")
    shown[0] = ops.const(0.0, "float32")
    batch, heads, rows = k.mask.shape[:3]
    loops = (
        ib.for_range(0, n, name=name) for n, name in zip((batch, heads, rows), ("item", "head", "row"), strict=True)
    )
    with next(loops) as item, next(loops) as head, next(loops) as row:
        shown[0] = ops.minimum(shown[0], _most_of_mask(k, [[item, head, row]], 0, k.keys))
    return shown


def _kind(k: _Kernel) -> str:
    extents = (typical_extent(n) for n in (k.batch, k.keys))
    work = k.groups * k.count * (k.depth + k.width)
    for extent in extents:
        work *= extent
    return "parallel" if work > measured().threads.least_products else "serial"


def _scores(k: _Kernel, matrix: Any, first: Any, length: Any, scores: Any, most: Any) -> None:
    """Compute a chunk's scores by vectors; lanes behind the last key are minus infinity."""
    ib, lanes = k.ib, k.lanes
    b, g = ops.floordiv(matrix, k.groups), ops.floormod(matrix, k.groups)
    low = ops.const(_MINUS_INFINITY, k.vector)
    with ib.for_range(0, k.count, name="row") as row:
        most[row] = low

    def tile(start: Any, rows_left: Any | None) -> None:
        for key in range(lanes) if rows_left is None else ():
            k.fetch_ahead(k.key, [b, g, first + start + key, 0], k.depth)
        with ib.for_range(0, k.count, name="row") as row:
            found = _dot_products(k, matrix, row, lambda key: _key_of(first + start + key, k.keys, rows_left))
            found = found * ops.const(k.scale, k.vector)
            if k.mask is not None:
                found = found + _mask_of(k, matrix, row, first + start, rows_left)
            if rows_left is not None:
                lane = tir.Ramp(ops.const(0), ops.const(1), lanes)
                found = tir.Select(lane < ops.cast(f"int32x{lanes}", ops.cast("int32", rows_left)), found, low)
            found = ib.let("score", found)
            ib.emit(tir.Store(scores.asobject(), found, tir.Ramp(row * k.chunk + start, ops.const(1), lanes)))
            most[row] = ops.maximum(most[row], found)

    full = ops.floordiv(length, lanes)
    with ib.for_range(0, full, name="tile") as t:
        tile(t * lanes, None)
    with ib.if_scope(full * lanes < length):
        tile(full * lanes, length - full * lanes)


def _key_of(key: Any, keys: Any, rows_left: Any | None) -> Any:
    return key if rows_left is None else ops.minimum(key, keys - 1)


def _dot_products(k: _Kernel, matrix: Any, row: Any, place: Callable[[int], Any]) -> Any:
    """Return a vector of a row's products with as many keys: lanes are added in pairs, and those again."""
    ib, lanes = k.ib, k.lanes
    b, g = ops.floordiv(matrix, k.groups), ops.floormod(matrix, k.groups)
    steps = range(0, k.depth, lanes)
    batch, head, i = k.places(matrix, row)
    query = [ib.let("query", k.query.vload([batch, head, i, j], k.vector)) for j in steps]
    even, odd = ([ops.const(2 * n + start) for n in range(lanes)] for start in range(2))

    def found(begin: int, count: int) -> Any:
        if count > 1:
            pair = [found(begin, count // 2), found(begin + count // 2, count // 2)]
            return ib.let("sums", Shuffle(pair, even) + Shuffle(pair, odd))
        key = ib.let("key", place(begin))
        total: Any = None
        for part, j in zip(query, steps, strict=True):
            product = part * k.key.vload([b, g, key, j], k.vector)
            total = product if total is None else total + product
        return ib.let("products", total)

    return found(0, lanes)


def _mask_of(k: _Kernel, matrix: Any, row: Any, first: Any, rows_left: Any | None) -> Any:
    """Return the mask of a vector of keys."""
    lead = [0 if ops.is_const_int(n, 1) else at for at, n in zip(k.places(matrix, row), k.mask.shape[:-1], strict=True)]
    if ops.is_const_int(k.mask.shape[3], 1):
        return ops.cast(k.vector, k.mask.vload([*lead, 0]))
    if rows_left is None:
        return k.mask.vload([*lead, first], k.vector)
    last = k.ib.allocate("float32", (k.lanes,), name="last_of_mask", scope="local")
    for lane in range(k.lanes):
        last[lane] = k.mask.vload([*lead, ops.minimum(first + lane, k.keys - 1)])
    return tir.Load(k.vector, last.asobject(), tir.Ramp(ops.const(0), ops.const(1), k.lanes))


def _powers(k: _Kernel, at: Any, row: Any, length: Any, scores: Any, most: Any, parts: _Partial) -> None:
    """Make powers of a row's scores; scores that are all minus infinity have powers of 0."""
    ib, lanes = k.ib, k.lanes
    name = f"llvm.vector.reduce.fmaximum.v{lanes}f32"
    largest = ib.let("largest", tir.call_llvm_pure_intrin("float32", name, most[row]))
    parts.maxima[at] = largest
    nothing = ops.equal(largest, ops.const(_MINUS_INFINITY, "float32"))
    less = ib.let("less", tir.Select(nothing, ops.const(0.0, "float32"), largest))
    total = ib.allocate(k.vector, (1,), name="total", scope="local")
    total[0] = ops.const(0.0, k.vector)
    with ib.for_range(0, ops.floordiv(length + (lanes - 1), lanes), name="step") as step:
        place = tir.Ramp(row * k.chunk + step * lanes, ops.const(1), lanes)
        score = tir.Load(k.vector, scores.asobject(), place)
        power = power_of_two((score - ops.cast(k.vector, less)) * ops.const(LOG2_E, k.vector))
        power = ib.let("power", power)
        total[0] = total[0] + power
        ib.emit(tir.Store(scores.asobject(), power, place))
    ib.emit(tir.Store(parts.totals.asobject(), total[0], tir.Ramp(at * lanes, ops.const(1), lanes)))


def _tile(k: _Kernel) -> tuple[int, int]:
    """Return how many rows, and vectors of columns, are summed in registers."""
    registers = 32 if features().vector_bits >= 512 or features().arch == "aarch64" else 16
    vectors, most = k.width // k.lanes, registers // 5
    rows = -(-k.count // -(-k.count // most))
    fitting = [n for n in range(1, vectors + 1) if vectors % n == 0 and (rows + 1) * n + 1 < registers]
    return rows, fitting[-1]


def _contexts(k: _Kernel, task: Any, matrix: Any, first: Any, length: Any, scores: Any, parts: _Partial) -> None:
    """Sum a chunk's values, weighted by the powers of each row."""
    most_rows, vectors = _tile(k)
    columns = vectors * k.lanes
    for row in range(0, k.count, most_rows):
        rows = range(row, min(row + most_rows, k.count))
        with k.ib.for_range(0, k.width // columns, name="column") as column:
            _context_tile(k, (task, matrix, first, length), rows, (column * columns, vectors), scores, parts)


def _context_tile(
    k: _Kernel, where: tuple[Any, Any, Any, Any], rows: range, columns: tuple[Any, int], scores: Any, parts: _Partial
) -> None:
    ib, lanes = k.ib, k.lanes
    (task, matrix, first, length), (column, vectors) = where, columns
    b, g = ops.floordiv(matrix, k.groups), ops.floormod(matrix, k.groups)
    sums = ib.allocate(k.vector, (len(rows) * vectors,), name="sums", scope="local")
    for i in range(len(rows) * vectors):
        sums[i] = ops.const(0.0, k.vector)
    with ib.for_range(0, length, name="key") as t:
        if rows.start == 0:
            k.fetch_ahead(k.value, [b, g, first + t, column], vectors * lanes)
        at = [b, g, first + t]
        values = [ib.let("value", k.value.vload([*at, column + v * lanes], k.vector)) for v in range(vectors)]
        for i, row in enumerate(rows):
            power = ib.let("power", ops.cast(k.vector, scores[row * k.chunk + t]))
            for v, value in enumerate(values):
                sums[i * vectors + v] = sums[i * vectors + v] + power * value
    for i, row in enumerate(rows):
        for v in range(vectors):
            place = (task * k.count + row) * k.width + column + v * lanes
            ib.emit(tir.Store(parts.context.asobject(), sums[i * vectors + v], tir.Ramp(place, ops.const(1), lanes)))


def _add_chunks(k: _Kernel, matrix: Any, row: Any, parts: _Partial) -> None:
    """Add up the chunks of a row."""
    ib, lanes = k.ib, k.lanes
    most = ib.allocate("float32", (1,), name="most", scope="local")
    total = ib.allocate(k.vector, (1 + k.width // lanes,), name="total", scope="local")
    most[0] = ops.const(_MINUS_INFINITY, "float32")
    for i in range(1 + k.width // lanes):
        total[i] = ops.const(0.0, k.vector)

    def part(chunk: Any) -> Any:
        return (matrix * k.chunks + chunk) * k.count + row

    with ib.for_range(0, k.chunks, name="chunk") as c:
        most[0] = ops.maximum(most[0], parts.maxima[part(c)])
    with ib.for_range(0, k.chunks, name="chunk") as c:
        less = (parts.maxima[part(c)] - most[0]) * ops.const(LOG2_E, "float32")
        weight = ib.let("weight", ops.cast(k.vector, power_of_two(less)))
        for i in range(1 + k.width // lanes):
            source, place = (
                (parts.context, part(c) * k.width + (i - 1) * lanes) if i else (parts.totals, part(c) * lanes)
            )
            value = tir.Load(k.vector, source.asobject(), tir.Ramp(place, ops.const(1), lanes))
            total[i] = total[i] + weight * value
    inverse = ib.let("inverse", ops.const(1.0, "float32") / _sum_of_lanes(k, total[0]))
    b, head, place = k.places(matrix, row)
    for i in range(k.width // lanes):
        found = total[1 + i] * ops.cast(k.vector, inverse)
        ib.emit(k.out.vstore([b, place, head, i * lanes], found))


def _sum_of_lanes(k: _Kernel, value: Any) -> Any:
    lanes = k.lanes
    while lanes > 1:
        value, lanes = k.ib.let("sum", value), lanes // 2
        halves = ([ops.const(n + start) for n in range(lanes)] for start in (0, lanes))
        low, high = (Shuffle([value], half) for half in halves)
        value = low + high
    return k.ib.let("sum", value)
