"""Quotients and remainders, step by step: the forms that ``Analyzer.rewrite_simplify`` gives.

A divisor is taken not to be zero. Truncating division distributes over numbers that are not negative only.
"""

_WHOLE = "c2 > 0 and c1 % c2 == 0"


def _quotients(div: str) -> list[tuple[str, ...]]:
    truncates = div == "truncdiv"

    def given(condition: str, *parts: str) -> str:
        """Add that the parts are not negative, which truncating division asks for."""
        return " and ".join([condition, *[f"lower({part}) >= 0" for part in parts if truncates]])

    whole = given(_WHOLE + (" and c1 >= 0" if truncates else ""), "x", "y")

    def of_three(rest: str) -> str:
        return given(_WHOLE + (" and c1 >= 0" if truncates else ""), "x", rest)

    c2_added = " and c2 >= 0" if truncates else ""
    return [
        (f"{div}({div}(x, c1), c2)", f"{div}(x, c1*c2)", "c1 > 0 and c2 > 0"),
        (
            f"{div}({div}(x, c1) + c2, c3)",
            f"{div}(x + c1*c2, c1*c3)",
            given(f"c1 > 0 and c3 > 0{c2_added}", "x"),
        ),
        (f"{div}(x*c1, c2)", "x*(c1 // c2)", "c1 > 0 and c2 > 0 and c1 % c2 == 0"),
        (f"{div}(x*c1, c2)", f"{div}(x, c2 // c1)", "c1 > 0 and c2 > 0 and c2 % c1 == 0"),
        (f"{div}(x, x)", "1"),
        (f"{div}(x*c1, x)", "c1"),
        (f"{div}(c1*x, x)", "c1"),
        (f"{div}(x*c1 + y, c2)", f"x*(c1 // c2) + {div}(y, c2)", whole),
        (f"{div}(min(x*c1, y), c2)", f"min(x*(c1 // c2), {div}(y, c2))", whole),
        (f"{div}(max(x*c1, y), c2)", f"max(x*(c1 // c2), {div}(y, c2))", whole),
        (f"{div}(y + x*c1, c2)", f"{div}(y, c2) + x*(c1 // c2)", whole),
        (f"{div}(min(y, x*c1), c2)", f"min({div}(y, c2), x*(c1 // c2))", whole),
        (f"{div}(max(y, x*c1), c2)", f"max({div}(y, c2), x*(c1 // c2))", whole),
        (f"{div}(x*c1 + y + z, c2)", f"x*(c1 // c2) + {div}(y + z, c2)", of_three("y + z")),
        (f"{div}(x*c1 - y + z, c2)", f"x*(c1 // c2) + {div}(z - y, c2)", of_three("z - y")),
        (f"{div}(x*c1 + y - z, c2)", f"x*(c1 // c2) + {div}(y - z, c2)", of_three("y - z")),
        (f"{div}(y + x*c1 + z, c2)", f"x*(c1 // c2) + {div}(y + z, c2)", of_three("y + z")),
        (f"{div}(x + c1, c2)", f"{div}(x, c2) + c1 // c2", given(_WHOLE + (" and c1 > 0" if truncates else ""), "x")),
        *([] if truncates else [("floordiv(x*c1, x*c2)", "c1 // c2", "c2 > 0")]),
        (f"{div}(x + y, x)", f"{div}(y, x) + 1", given("lower(x) >= 0", "y")),
        (f"{div}(y + x, x)", f"{div}(y, x) + 1", given("lower(x) >= 0", "y")),
        (f"{div}((x + y) + z, x)", f"{div}(y + z, x) + 1", given("lower(x) >= 0", "y + z")),
        (f"{div}((y + x) + z, x)", f"{div}(y + z, x) + 1", given("lower(x) >= 0", "y + z")),
        (f"{div}(y + (z + x), x)", f"{div}(y + z, x) + 1", given("lower(x) >= 0", "y + z")),
        (f"{div}(y + (x + z), x)", f"{div}(y + z, x) + 1", given("lower(x) >= 0", "y + z")),
        (f"{div}(x*y, y)", "x", given("lower(y) >= 0", "x")),
        (f"{div}(y*x, y)", "x", given("lower(y) >= 0", "x")),
        (f"{div}(x*z + y, z)", f"x + {div}(y, z)", given("lower(z) >= 0", "x", "y")),
        (f"{div}(z*x + y, z)", f"x + {div}(y, z)", given("lower(z) >= 0", "x", "y")),
        (f"{div}(y + x*z, z)", f"{div}(y, z) + x", given("lower(z) >= 0", "x", "y")),
        (f"{div}(y + z*x, z)", f"{div}(y, z) + x", given("lower(z) >= 0", "x", "y")),
    ]


QUOTIENTS: list[tuple[str, ...]] = [*_quotients("truncdiv"), *_quotients("floordiv")]

REMAINDERS: list[tuple[str, ...]] = [
    ("truncmod(x*c1, c2)", "0", "c2 != 0 and c1 % c2 == 0"),
    ("truncmod(x*c1 + y, c2)", "truncmod(y, c2)", _WHOLE + " and lower(x*c1) >= 0 and lower(y) >= 0"),
    ("truncmod(x + c1, c2)", "truncmod(x, c2)", _WHOLE + " and c1 >= 0 and lower(x) >= 0"),
    ("truncmod(x + y*c1, c2)", "truncmod(x, c2)", _WHOLE + " and lower(x) >= 0 and lower(y*c1) >= 0"),
    ("floormod(x*c1, c2)", "0", "c2 != 0 and c1 % c2 == 0"),
    ("floormod(x*c1 + y, c2)", "floormod(y, c2)", _WHOLE),
    ("floormod(x + c1, c2)", "floormod(x, c2)", _WHOLE),
    ("floormod(x + y*c1, c2)", "floormod(x, c2)", _WHOLE),
    ("floormod(x*c1, x*c2)", "x*(c1 % c2)", "c2 != 0"),
    ("floormod(x*y, y)", "0"),
    ("floormod(y*x, y)", "0"),
]

AGAIN: list[tuple[str, ...]] = [("truncmod(x, c1)", "truncmod(x, 0 - c1)", "c1 < 0")]
