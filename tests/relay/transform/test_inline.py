"""Inline: global functions marked ``Inline=1`` take the place of their names."""

from __future__ import annotations

import pytest
from tests.relay.transform.texts import check

from tilewright.relay import transform

T = "Tensor[(2), float32]"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            """def @main(%x: T) { @double(%x) }
               def @double(%y: T, Inline=1) { add(%y, %y) }""",
            "def @main(%x: T) { add(%x, %x) }",
            id="a call becomes the body, and the function is gone",
        ),
        pytest.param(
            """def @main(%x: T) { @outer(%x) }
               def @outer(%y: T, Inline=1) { exp(@inner(%y)) }
               def @inner(%y: T, Inline=1) { add(%y, %y) }""",
            "def @main(%x: T) { exp(add(%x, %x)) }",
            id="chains are opened from their ends",
        ),
        pytest.param(
            """def @main(%x: T) { @outer(%x) }
               def @outer(%y: T, Inline=1) { exp(@inner(%y)) }
               def @inner(%y: T) { add(%y, %y) }""",
            """def @main(%x: T) { exp(@inner(%x)) }
               def @inner(%y: T) { add(%y, %y) }""",
            id="what is not marked stays a call",
        ),
        pytest.param(
            """def @main(%x: T) { @extern(%x) }
               def @extern(%y: T, Inline=1, Compiler="a") { add(%y, %y) }""",
            """def @main(%x: T) { %0 = fn (%y: T, Inline=1, Compiler="a") { add(%y, %y) }; %0(%x) }""",
            id="a function of another compiler is kept whole",
        ),
        pytest.param(
            """def @main(%p: bool, %x: T) { %0 = if (%p) { @double } else { @same }; %0(%x) }
               def @double(%y: T, Inline=1) { add(%y, %y) }
               def @same(%y: T, Inline=1) { %y }""",
            """def @main(%p: bool, %x: T) {
                 %0 = if (%p) { fn (%y: T, Inline=1) { add(%y, %y) } } else { fn (%y: T, Inline=1) { %y } };
                 %0(%x)
               }""",
            id="a name that is a value becomes the function",
        ),
        pytest.param(
            """def @main(%x: T) -> T { @loop(%x) }
               def @loop(%y: T, Inline=1) -> T { @loop(exp(%y)) }""",
            """def @main(%x: T) -> T { @loop(%x) }
               def @loop(%y: T, Inline=1) -> T { @loop(exp(%y)) }""",
            id="recursion stays",
        ),
        pytest.param(
            """def @even(%x: T, Inline=1) -> T { @odd(%x) }
               def @odd(%y: T, Inline=1) -> T { @even(exp(%y)) }""",
            """def @even(%x: T, Inline=1) -> T { @odd(%x) }
               def @odd(%y: T, Inline=1) -> T { @even(exp(%y)) }""",
            id="recursion through another function stays",
        ),
        pytest.param(
            "def @entry(%y: T, Inline=1) { add(%y, %y) }",
            "def @entry(%y: T, Inline=1) { add(%y, %y) }",
            id="an entry stays",
        ),
    ],
)
def test_inline(before: str, after: str) -> None:
    check(transform.Inline(), before.replace("T)", f"{T})").replace("T,", f"{T},").replace("T {", f"{T} {{"),
          after.replace("T)", f"{T})").replace("T,", f"{T},").replace("T {", f"{T} {{"))  # fmt: skip
