"""The command stream: commands in program order, each given the tokens that keep it behind what it depends on.

Every command is added with the memory that it reads and writes. Two commands of one engine run in their order anyway;
where a command depends on one of another engine, that one pushes a token and this one waits for it. Tokens between
two engines are taken in order, so that one that was waited for covers all before it, and each command waits for at
most one of each engine. What overlaps in time follows: DMA runs ahead as far as its buffers are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewright_npu.isa import BLOCK, Command, Dma, Engine, Flag, Gemm, Header, Opcode, Vector, Window
from tilewright_npu.isa import DType as Type

NO_FLAGS = Flag(0)
SRAM = -1  # the space of SRAM addresses; regions are spaces of their own, by index


@dataclass(frozen=True)
class Access:
    """Bytes [start, end) of a space."""

    space: int
    start: int
    end: int

    def overlaps(self, other: Access) -> bool:
        """Whether a byte is in both."""
        return self.space == other.space and self.start < other.end and other.start < self.end

    def holds(self, other: Access) -> bool:
        """Whether every byte of the other is in it."""
        return self.space == other.space and self.start <= other.start and other.end <= self.end


def reach(space: int, start: int, extents: Sequence[int], strides: Sequence[int], size: int) -> Access:
    """What a strided block of elements of ``size`` bytes touches at most."""
    moves = [(n - 1) * stride for n, stride in zip(extents, strides, strict=True)]
    return Access(space, start + sum(min(m, 0) for m in moves), start + sum(max(m, 0) for m in moves) + size)


@dataclass(frozen=True)
class _Record:
    access: Access
    engine: int
    number: int  # of the command within its engine
    writes: bool


@dataclass
class Stream:
    """Commands with their tokens.

    Attributes:
        commands: in program order.
        layers: names that commands carry; ``layer`` adds one.
    """

    commands: list[Command] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    _records: list[_Record] = field(default_factory=list)
    _queues: dict[int, list[Command]] = field(default_factory=lambda: {e: [] for e in Engine})
    _waited: dict[tuple[int, int], int] = field(default_factory=dict)

    def layer(self, name: str) -> None:
        """The commands that follow belong to the layer ``name``."""
        self.layers.append(name)

    def add(self, command: Command, reads: Iterable[Access], writes: Iterable[Access]) -> None:
        """Append a command; its header says engine, opcode and flags."""
        header = command.header
        engine, number = int(header.engine), len(self._queues[int(header.engine)])
        header.layer = len(self.layers) - 1
        accesses = [*((a, False) for a in reads), *((a, True) for a in writes)]
        needed: dict[int, int] = {}
        for record in self._records:
            if record.engine != engine and any(
                (record.writes or written) and record.access.overlaps(access) for access, written in accesses
            ):
                needed[record.engine] = max(needed.get(record.engine, -1), record.number)
        for source, last in needed.items():
            if self._waited.get((source, engine), -1) < last:
                self._waited[source, engine] = last
                header.wait[source] += 1
                self._queues[source][last].header.push[engine] += 1
        self._queues[engine].append(command)
        self.commands.append(command)
        for access, written in accesses:
            self._note(_Record(access, engine, number, written))

    def _note(self, record: _Record) -> None:
        """Keep a record; those that it stands for as well are dropped."""
        self._records = [
            old
            for old in self._records
            if not (
                record.access.holds(old.access)
                and (record.writes or (old.engine == record.engine and not old.writes))
                and (old.engine == record.engine or old.number <= self._waited.get((old.engine, record.engine), -1))
            )
        ]
        self._records.append(record)

    # ---- commands ----
    def dma(
        self,
        region: int,
        offset: int,
        address: int,
        extents: Sequence[int],
        far: Sequence[int],
        near: Sequence[int],
        size: int,
        store: bool = False,
        before: Sequence[int] = (0, 0, 0, 0),
        after: Sequence[int] = (0, 0, 0, 0),
        pad: int = 0,
    ) -> None:
        """Copy a block of ``extents`` elements of ``size`` bytes between a region and the SRAM; see ``npu_dma``."""
        header = Header(engine=Engine.STORE if store else Engine.LOAD, opcode=Opcode.DMA)
        command = Dma(
            header=header, n=tuple(extents), far_stride=tuple(far), near_stride=tuple(near), before=tuple(before),
            after=tuple(after), far_offset=offset, near_address=address, pad=pad & 0xFFFFFFFF, region=region,
            element=size,
        )  # fmt: skip
        padded = [b + n + a for b, n, a in zip(before, extents, after, strict=True)]
        there = [reach(region, offset, extents, far, size)] if all(extents) else []
        here = [reach(SRAM, address, padded, near, size)]
        self.add(command, here if store else there, there if store else here)

    def load(self, region: int, offset: int, address: int, count: int) -> None:
        """Copy ``count`` bytes that lie together to the SRAM."""
        size = 4 if count % 4 == 0 and offset % 4 == 0 else 1
        self.dma(region, offset, address, (1, 1, 1, count // size), (0, 0, 0, size), (0, 0, 0, size), size)

    def gemm(self, command: Gemm, flags: Flag = NO_FLAGS) -> None:
        """A product of matrices."""
        command.header = Header(engine=Engine.MATRIX, opcode=Opcode.GEMM, flags=flags)
        size = Type(command.dtype).bytes
        depth, columns = -(-command.depth // BLOCK), -(-command.columns // BLOCK)
        a = reach(SRAM, command.a, (*command.m, *command.k), (*command.a_m, *command.a_k), command.depth * size)
        blocks = command.k[0] * command.k[1] * command.k[2] * depth * BLOCK * BLOCK * size
        b = reach(SRAM, command.b, (columns,), (command.b_n,), blocks)
        c = reach(SRAM, command.c, (*command.m, columns), (*command.c_m, command.c_n), BLOCK * 4)
        reads = [a, b]
        if flags & Flag.BIAS:
            reads.append(Access(SRAM, command.bias, command.bias + command.columns * 4))
        if flags & Flag.ACCUMULATE:
            reads.append(c)
        self.add(command, reads, [c])

    def vector(self, opcode: Opcode, command: Vector, flags: Flag = NO_FLAGS, second: bool = False) -> None:
        """An element-wise command; ``second`` where it reads a second operand."""
        command.header = Header(engine=Engine.VECTOR, opcode=opcode, flags=flags)
        n = tuple(command.n)
        reads = [reach(SRAM, command.a, n, tuple(command.a_stride), Type(command.a_type).bytes)]
        if second:
            reads.append(reach(SRAM, command.b, n, tuple(command.b_stride), Type(command.b_type).bytes))
        self.add(command, reads, [reach(SRAM, command.dst, n, tuple(command.dst_stride), Type(command.dst_type).bytes)])

    def window(self, opcode: Opcode, command: Window, flags: Flag = NO_FLAGS) -> None:
        """A pool or a depthwise convolution."""
        command.header = Header(engine=Engine.VECTOR, opcode=opcode, flags=flags)
        n, lanes = tuple(command.n), command.n[3]
        size = Type(command.a_type).bytes
        strides = (*command.a_stride, *command.window_stride)
        reads = [reach(SRAM, command.a, (*n[:3], *command.window), strides, lanes * size)]
        if opcode == Opcode.DEPTHWISE:
            taps = command.window[0] * command.window[1]
            size = Type(command.b_type).bytes
            reads.append(reach(SRAM, command.b, (n[0], taps), tuple(command.b_stride), lanes * size))
            if flags & Flag.BIAS:
                reads.append(Access(SRAM, command.c, command.c + n[0] * lanes * 4))
        written = lanes * Type(command.dst_type).bytes
        self.add(command, reads, [reach(SRAM, command.dst, n[:3], tuple(command.dst_stride), written)])
