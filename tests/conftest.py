"""What all tests have: the result of every pass is verified."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright.ir.transform import PassContext
from tilewright.relay.verify import VerifyIR


@pytest.fixture(autouse=True)
def verified_passes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Verify what passes give; a test that is marked ``unverified`` has none of it."""
    if request.node.get_closest_marker("unverified"):
        yield
        return
    PassContext.everywhere.append(VerifyIR())
    try:
        yield
    finally:
        PassContext.everywhere.pop()
