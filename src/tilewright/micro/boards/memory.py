"""Whether a network fits into a board's memory."""

from __future__ import annotations

from tilewright.micro.boards.records import Board
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule

STACK = 4096
"""Bytes that are left to the stack."""


def check_fits(factory: AOTExecutorFactoryModule, board: Board, name: str) -> None:
    """Raise TVMError for a network that needs more memory than a board has, with the layers that need most."""
    layout = factory.layout
    ends = sum(t.nbytes for t in (*layout.inputs, *layout.outputs))
    needed = layout.workspace_bytes + ends + STACK
    if needed > board.ram:
        parts = f"workspace {layout.workspace_bytes}, inputs and outputs {ends}, stack {STACK}"
        raise TVMError(
            f"{name} needs {needed} bytes of RAM ({parts}), and {board.name} has {board.ram}: {needed - board.ram} too "
            f"few. {_most(factory.crowded, 'of workspace')}"
        )
    if layout.constant_bytes > board.flash:
        largest = sorted(((c.value.nbytes, c.name) for c in layout.constants), reverse=True)[:3]
        raise TVMError(
            f"{name} has {layout.constant_bytes} bytes of weights, and the flash of {board.name} {board.flash}: "
            f"{layout.constant_bytes - board.flash} too few, without any code. {_most(largest, 'of weights')}"
        )


def _most(found: object, what: str) -> str:
    assert isinstance(found, (list, tuple))
    return f"The most {what} have " + ", ".join(f"{name} ({nbytes} bytes)" for nbytes, name in found)
