"""Sums, differences and products, step by step: the forms that ``Analyzer.rewrite_simplify`` gives.

Rows match operands in the order written. ``AGAIN`` holds rows whose results are simplified once more: they bring an
expression into the form that the other rows speak of, literals last.
"""

DIVISIONS = [("truncdiv", "truncmod"), ("floordiv", "floormod")]
EXTREMES = [("min", "max"), ("max", "min")]


def _divided() -> list[tuple[str, ...]]:
    """A number and its rounded-down part: their difference is the remainder."""
    rows: list[tuple[str, ...]] = []
    for div, mod in DIVISIONS:
        for inside, below, above in (("x", "{mod}", "0 - {mod}"), ("x + y", "{mod} - y", "y - {mod}"),
                                     ("x - y", "{mod} + y", "0 - {mod} - y")):  # fmt: skip
            quotient, rest = f"{div}({inside}, c1)", f"{mod}({inside}, c1)"
            low, high = below.format(mod=rest), above.format(mod=rest)
            rows += [(f"x - {quotient}*c1", low, "c1 != 0"), (f"{quotient}*c1 - x", high, "c1 != 0")]
            scaled = "c1 != 0 and c3 == c1*c2"
            # the negated remainder is scaled alone, so that its factor can take the sign
            high = f"0 - {rest}*c2" if inside == "x" else f"({high})*c2"
            rows += [(f"x*c2 - {quotient}*c3", f"({low})*c2", scaled), (f"{quotient}*c3 - x*c2", high, scaled)]
    return rows


SUMS: list[tuple[str, ...]] = [
    ("(x - y) + y", "x"),
    ("x + (y - x)", "y"),
    ("(x - y) + (y - z)", "x - z"),
    ("(x - y) + (z - x)", "z - y"),
    *[
        row
        for m, o in EXTREMES
        for row in [
            (f"{m}(x, y - z) + z", f"{m}(x + z, y)"),
            (f"{m}(x - z, y) + z", f"{m}(x, y + z)"),
            (f"{m}(x, y + z*c1) + z*c2", f"{m}(x + z*c2, y)", "c1 == 0 - c2"),
            (f"{m}(y + z*c1, x) + z*c2", f"{m}(x + z*c2, y)", "c1 == 0 - c2"),
            (f"{m}(x, y) + {o}(x, y)", "x + y"),
            (f"{m}(x, y) + {o}(y, x)", "x + y"),
            (f"{m}(x, y + c1) + c2", f"{m}(x + c2, y)", "c1 == 0 - c2"),
            (f"{m}(x + c1, y) + c2", f"{m}(x, y + c2)", "c1 == 0 - c2"),
        ]
    ],
    ("(x + c1) + c2", "x + (c1 + c2)"),
    ("x + x", "x*2"),
    ("x*y + x", "x*(y + 1)"),
    ("y*x + x", "x*(y + 1)"),
    ("x + y*x", "x*(1 + y)"),
    ("x + x*y", "x*(1 + y)"),
    ("x*y + x*z", "x*(y + z)"),
    ("y*x + x*z", "x*(y + z)"),
    ("x*y + z*x", "x*(y + z)"),
    ("y*x + z*x", "x*(y + z)"),
    *[(f"{div}(x, c1)*c1 + {mod}(x, c1)", "x", "c1 != 0") for div, mod in DIVISIONS],
]

DIFFERENCES: list[tuple[str, ...]] = [
    ("(x + y) - y", "x"),
    ("(x + y) - x", "y"),
    ("x - (y + x)", "0 - y"),
    ("x - (x + y)", "0 - y"),
    *[
        row
        for m, o in EXTREMES
        for row in [
            (f"{m}(x, y) - x", f"{m}(0, y - x)"),
            (f"{m}(x, y) - y", f"{m}(x - y, 0)"),
            (f"x - {m}(x, y)", f"{o}(0, x - y)"),
            (f"y - {m}(x, y)", f"{o}(y - x, 0)"),
        ]
    ],
    ("x - x", "0"),
    ("x*y - x", "x*(y - 1)"),
    ("y*x - x", "x*(y - 1)"),
    ("x - y*x", "x*(1 - y)"),
    ("x - x*y", "x*(1 - y)"),
    ("x*y - x*z", "x*(y - z)"),
    ("y*x - x*z", "x*(y - z)"),
    ("x*y - z*x", "x*(y - z)"),
    ("y*x - z*x", "x*(y - z)"),
    ("(x + c1) - c2", "x + (c1 - c2)"),
    ("(c1 - x) - (c2 - y)", "(y - x) + (c1 - c2)"),
    ("(x + y) - (x + z)", "y - z"),
    ("(x + y) - (z + x)", "y - z"),
    ("(y + x) - (z + x)", "y - z"),
    ("(y + x) - (x + z)", "y - z"),
    *[
        row
        for m, o in EXTREMES
        for row in [
            (f"{m}(x + y, z) - x", f"{m}(y, z - x)"),
            (f"{m}(y + x, z) - x", f"{m}(y, z - x)"),
            (f"{m}(z, x + y) - x", f"{m}(z - x, y)"),
            (f"{m}(z, y + x) - x", f"{m}(z - x, y)"),
            (f"x - {m}(x + y, z)", f"{o}(0 - y, x - z)"),
            (f"x - {m}(y + x, z)", f"{o}(0 - y, x - z)"),
            (f"x - {m}(z, x + y)", f"{o}(x - z, 0 - y)"),
            (f"x - {m}(z, y + x)", f"{o}(x - z, 0 - y)"),
            (f"{m}(x, y) - {m}(y, x)", "0"),
            (f"{m}(x, y) - {m}(s, t)", "x - s", "lower((x - s) - (y - t)) == 0 and upper((x - s) - (y - t)) == 0"),
            (f"{m}(x, y) - {m}(s, t)", "x - t", "lower((x - t) - (y - s)) == 0 and upper((x - t) - (y - s)) == 0"),
        ]
    ],
    *_divided(),
    (
        "truncdiv(x + c1, c3) - truncdiv(x + c2, c3)",
        "truncdiv(truncmod(x + c2 % c3, c3) + (c1 - c2), c3)",
        "c1 >= c2 and c3 > 0 and lower(x) + c2 >= 0 and lower(x) + c2 % c3 >= 0",
    ),
    (
        "truncdiv(x + c1, c3) - truncdiv(x, c3)",
        "truncdiv(truncmod(x, c3) + c1, c3)",
        "c1 >= 0 and c3 > 0 and lower(x) >= 0",
    ),
    (
        "floordiv(x + c1, c3) - floordiv(x + c2, c3)",
        "floordiv(floormod(x + c2 % c3, c3) + (c1 - c2), c3)",
        "c3 > 0",
    ),
    ("floordiv(x + c1, c3) - floordiv(x, c3)", "floordiv(floormod(x, c3) + c1, c3)", "c3 > 0"),
    ("x - c1", "x + (0 - c1)"),
    ("select(p, x, y) - y", "select(p, x - y, 0)"),
    ("select(p, x, y) - x", "select(p, 0, y - x)"),
]

PRODUCTS: list[tuple[str, ...]] = [
    ("(x + c1)*c2", "x*c2 + c1*c2"),
    ("(x*c1)*c2", "x*(c1*c2)"),
    *[(f"{m}(x, y)*{o}(x, y)", "x*y") for m, o in EXTREMES],
]

AGAIN: list[tuple[str, ...]] = [
    ("x + (c1 - y)", "(x - y) + c1"),
    ("(c1 - y) + x", "(x - y) + c1"),
    ("x + c1 + y", "(x + y) + c1"),
    ("x + (c1 + y)", "(x + y) + c1"),
    ("x + max(y, z)", "max(y, z) + x"),
    ("x + min(y, z)", "min(y, z) + x"),
    *[(f"{mod}(y, c1) + x*c1", f"x*c1 + {mod}(y, c1)", "c1 != 0") for _, mod in DIVISIONS],
    ("(x + c1) - y", "(x - y) + c1"),
    ("x - (y - z)", "(x + z) - y"),
    ("x - y*c1", "x + y*(0 - c1)"),
    ("x*(c1*y)", "(x*y)*c1"),
    ("c1*x", "x*c1"),
    ("(x - y)*c1", "(y - x)*(0 - c1)", "c1 < 0"),
]
