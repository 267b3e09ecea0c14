"""The budget of importing and building, by the options ``relay.budget.*`` of ``PassContext``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.ir.budget import Budget, limited, machine_memory
from tilewright.ir.transform import PassContext


@contextlib.contextmanager
def in_budget() -> Iterator[Budget]:
    """Count the work in this context, or in the decorated function, against the options' limits.

    Inside of another budget, that one applies.
    """
    option = PassContext.current().option
    memory = option("relay.budget.memory") or machine_memory()
    with limited(option("relay.budget.nodes"), memory, option("relay.budget.seconds")) as budget:
        yield budget
