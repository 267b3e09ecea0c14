"""The budget of importing and building, by the options ``relay.budget.*`` of ``PassContext``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.ir.budget import Budget, limited, machine_memory
from tilewright.ir.transform import PassContext


@contextlib.contextmanager
def in_budget() -> Iterator[Budget]:
    """Let what is made here, or in a function that this decorates, count against the options' limits.

    Inside another budget that one goes on.
    """
    option = PassContext.current().option
    memory = option("relay.budget.memory") or machine_memory()
    with limited(option("relay.budget.nodes"), memory, option("relay.budget.seconds")) as budget:
        yield budget
