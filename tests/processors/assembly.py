"""Reads the innermost loops of multiply-adds out of a kernel's assembly."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import tilewright as tvm
from tilewright import relay

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.L\w+)")
_PRODUCT = re.compile(r"^(vf(?:n?m)(?:add|sub)\w*ps|fml[as]|v?mulps)\s")
_STACK = re.compile(r"\(%rsp|\[sp")
_VECTOR = re.compile(r"%[xyz]mm|\b[vqsd]\d")
_COPY = re.compile(r"^(?:v?mova?ps\s+%\wmm\d+, %\wmm\d+|mov\s+v\d+\.16b, v\d+)")
_FEWEST_PRODUCTS = 6  # loops with fewer are remainders, or no products of tiles


@dataclass(frozen=True)
class Loop:
    """The instructions of a loop."""

    instructions: tuple[str, ...]

    @property
    def products(self) -> list[str]:
        """Its multiplications and multiply-adds."""
        return [i for i in self.instructions if _PRODUCT.match(i)]

    @property
    def accumulators(self) -> set[str]:
        """The registers that it adds to."""
        adds = [i for i in self.instructions if re.match(r"^(vf|fml|v?addps)", i)]
        return {re.split(r"[\s.,]+", i)[1] if i.startswith("fml") else i.split()[-1] for i in adds}

    @property
    def stack_accesses(self) -> list[str]:
        """Vector values that it has on the stack."""
        return [i for i in self.instructions if _STACK.search(i) and _VECTOR.search(i)]

    @property
    def copies(self) -> list[str]:
        """Moves between vector registers."""
        return [i for i in self.instructions if _COPY.match(i)]

    @property
    def width(self) -> int:
        """Bits of the widest register in its products."""
        names = " ".join(self.products)
        return next((bits for name, bits in (("%zmm", 512), ("%ymm", 256)) if name in names), 128)


def product_loops(text: str) -> list[Loop]:
    """The innermost loops with products of whole tiles, in the assembly ``text``."""
    lines = text.splitlines()
    starts: dict[str, int] = {}
    regions: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            starts[label[1]] = number
        elif (jump := _JUMP.match(line)) and jump[1] in starts:
            regions.append((starts[jump[1]], number))
    found: list[tuple[int, int, Loop]] = []
    for start, end in sorted(regions, key=lambda r: r[1] - r[0]):
        loop = Loop(tuple(i.strip() for i in lines[start + 1 : end + 1] if not _LABEL.match(i)))
        holds_another = any(start <= s and e <= end for s, e, _ in found)
        if len(loop.products) >= _FEWEST_PRODUCTS and not holds_another:
            found.append((start, end, loop))
    return [loop for _, _, loop in found]


def assembly(body: Any, params: list[Any], target: str, **config: Any) -> str:
    """The assembly of the kernels of one Relay expression."""
    with tvm.transform.PassContext(opt_level=3, config=config):
        factory = relay.build(tvm.IRModule.from_expr(relay.Function(params, body)), target)
    text: str = factory.get_lib().get_source("asm")
    return text
