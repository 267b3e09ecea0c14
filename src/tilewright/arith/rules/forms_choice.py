"""min, max, comparisons and Select, step by step: the forms that ``Analyzer.rewrite_simplify`` gives."""

from tilewright.arith.rules.forms_sums import DIVISIONS, EXTREMES


def _extremes(m: str, o: str) -> list[tuple[str, ...]]:
    """The rows of min, or those of max; ``o`` is the other."""
    rows: list[tuple[str, ...]] = [
        (f"{m}(x, x)", "x"),
        (f"{m}(x + c1, x + c2)", f"x + {m}(c1, c2)"),
        (f"{m}(x + c1, x)", f"x + {m}(c1, 0)"),
        (f"{m}(x, x + c1)", f"x + {m}(c1, 0)"),
        (f"{m}(c1 - x, c2 - x)", f"{m}(c1, c2) - x"),
    ]
    for div, _ in DIVISIONS:  # rounding up to a multiple
        up = f"{div}(x + c1, c2)*c2"
        nearest = "x" if m == "min" else up
        rows += [(f"{m}({up}, x)", nearest, "c2 > 0 and c1 + 1 == c2"),
                 (f"{m}(x, {up})", nearest, "c2 > 0 and c1 + 1 == c2")]  # fmt: skip
        if m == "min":
            positive = "c2 > 0 and c1 + 1 == c2 and lower(x) > 0"
            rows += [(f"min({up}, max(x, c2))", "max(x, c2)", positive),
                     (f"min(max(x, c2), {up})", "max(x, c2)", positive)]  # fmt: skip
    down = "floordiv(x, c2)*c2"
    lowest = down if m == "min" else "x"
    rows += [(f"{m}(x, {down})", lowest, "c2 > 0"), (f"{m}({down}, x)", lowest, "c2 > 0")]
    rows += [(f"{m}({first}, {second})", f"{m}(x, y)")
             for first, second in ((f"{o}(x, y)", f"{m}(x, y)"), (f"{m}(x, y)", f"{o}(x, y)"),
                                   (f"{m}(x, y)", f"{o}(y, x)"))]  # fmt: skip
    rows += [
        (f"{m}({o}(y, x), {m}(x, y))", f"{m}(y, x)"),
        (f"{m}({o}(x, y), x)", "x"),
        (f"{m}({o}(x, y), y)", "y"),
        (f"{m}({m}(x, y), x)", f"{m}(x, y)"),
        (f"{m}({m}(x, y), y)", f"{m}(x, y)"),
        (f"{m}(x, {o}(x, y))", "x"),
        (f"{m}(y, {o}(x, y))", "y"),
        (f"{m}(x, {m}(x, y))", f"{m}(x, y)"),
        (f"{m}(y, {m}(x, y))", f"{m}(x, y)"),
        (f"{m}({m}({m}(x, y), z), y)", f"{m}({m}(x, y), z)"),
        (f"{m}({m}({m}({m}(x, y), z), s), y)", f"{m}({m}({m}(x, y), z), s)"),
        (f"{m}({m}({m}({m}({m}(x, y), z), s), t), y)", f"{m}({m}({m}({m}(x, y), z), s), t)"),
    ]
    for inner in (o, m):  # a shared operand moves out
        outer = f"{inner}({m}(y, z), x)"
        rows += [(f"{m}({inner}({a}), {inner}({b}))", outer) for a in ("x, y", "y, x") for b in ("x, z", "z, x")]
    rows += [(f"{m}({a}, {b})", f"{m}(y, z) + x") for a in ("x + y", "y + x") for b in ("x + z", "z + x")]
    rows += [
        (f"{m}(y - x, z - x)", f"{m}(y, z) - x"),
        (f"{m}(x - y, x - z)", f"x - {o}(y, z)"),
        (f"{m}({m}(x, c1), c2)", f"{m}(x, {m}(c1, c2))"),
    ]
    for div, _ in DIVISIONS:  # division is monotone
        rows += [(f"{m}({div}(x, c1), {div}(y, c1))", f"{div}({m}(x, y), c1)", "c1 > 0"),
                 (f"{m}({div}(x, c1), {div}(y, c1))", f"{div}({o}(x, y), c1)", "c1 < 0")]  # fmt: skip
    rows += [
        (f"{m}(x*c1, y*c1)", f"{m}(x, y)*c1", "c1 > 0"),
        (f"{m}(x*c1, y*c1)", f"{o}(x, y)*c1", "c1 < 0"),
        (f"{m}(x*c1, c2)", f"{m}(x, c2 // c1)*c1", "c1 > 0 and c2 % c1 == 0"),
        (f"{m}(x*c1, c2)", f"{o}(x, c2 // c1)*c1", "c1 < 0 and c2 % c1 == 0"),
    ]
    return rows


EXTREME: list[tuple[str, ...]] = [row for m, o in EXTREMES for row in _extremes(m, o)]


def _rounded(div: str, mod: str) -> list[tuple[str, ...]]:
    """Compare a number with its rounded-down part."""
    return [
        (f"{div}(x, c1)*c1 < x", f"0 < {mod}(x, c1)", "c1 > 0"),
        (f"{div}(x, c1)*c1 < x + y", f"0 < {mod}(x, c1) + y", "c1 > 0"),
        (f"{div}(x, c1)*c1 < x - y", f"y < {mod}(x, c1)", "c1 > 0"),
        (f"{div}(x + c2, c1)*c1 < x", f"c2 < {mod}(x + c2, c1)", "c1 > 0"),
        (f"{div}(x + c2, c1)*c1 < x + y", f"c2 < {mod}(x + c2, c1) + y", "c1 > 0"),
        (f"{div}(x + c2, c1)*c1 < x - y", f"y < {mod}(x + c2, c1) + (0 - c2)", "c1 > 0"),
    ]


COMPARISONS: list[tuple[str, ...]] = [
    ("x - c1 == 0", "x == c1"),
    ("c1 - x == 0", "x == c1"),
    ("x + c1 == 0", "x == 0 - c1"),
    ("x*y == 0", "(x == 0) | (y == 0)"),
    ("x + y < x + z", "y < z"),
    ("x + y < z + x", "y < z"),
    ("y + x < x + z", "y < z"),
    ("y + x < z + x", "y < z"),
    ("y - x < z - x", "y < z"),
    ("x - y < x - z", "z < y"),
    ("x < x + z", "0 < z"),
    ("x < z + x", "0 < z"),
    ("x < x - z", "z < 0"),
    ("c1 < x + c2", "c1 - c2 < x"),
    ("c1 < c2 - x", "x < c2 - c1"),
    ("x*c1 < y*c1", "x < y", "c1 > 0"),
    ("x*c1 < y*c1", "y < x", "c1 < 0"),
    ("x*c2 < c1", "x < (c1 - 1) // c2 + 1", "c1 > 0 and c2 > 0"),
    ("x*c2 < c1", "x < 0 - (0 - c1) // c2", "c1 <= 0 and c2 > 0"),
    ("x*c2 < c1", "0 - (c1 - 1) // (0 - c2) - 1 < x", "c1 > 0 and c2 < 0"),
    ("x*c2 < c1", "c1 // c2 < x", "c1 <= 0 and c2 < 0"),
    ("c1 < x*c2", "0 - (0 - c1 - 1) // c2 - 1 < x", "c1 < 0 and c2 > 0"),
    ("c1 < x*c2", "c1 // c2 < x", "c1 >= 0 and c2 > 0"),
    ("c1 < x*c2", "x < (c1 + 1) // c2 + 1", "c1 < 0 and c2 < 0"),
    ("c1 < x*c2", "x < 0 - c1 // (0 - c2)", "c1 >= 0 and c2 < 0"),
    ("truncdiv(x, c1) < c2", "x < c1*c2", "c1 > 0 and c2 > 0"),
    ("truncdiv(x, c1) < c2", "x < c1*(c2 - 1) + 1", "c1 > 0 and c2 <= 0"),
    ("c1 < truncdiv(x, c2)", "(c1 + 1)*c2 - 1 < x", "c1 >= 0 and c2 > 0"),
    ("c1 < truncdiv(x, c2)", "c1*c2 < x", "c1 < 0 and c2 > 0"),
    ("floordiv(x, c1) < c2", "x < c1*c2", "c1 > 0"),
    ("c1 < floordiv(x, c2)", "(c1 + 1)*c2 - 1 < x", "c2 > 0"),
    *[row for div, mod in DIVISIONS for row in _rounded(div, mod)],
    ("x - c1 < 0", "x < c1"),
]

SELECTIONS: list[tuple[str, ...]] = [
    ("select(p, x, x)", "x"),
    ("select(p, x, y) + select(p, s, t)", "select(p, x + s, y + t)"),
    ("select(p, x, y) - select(p, s, t)", "select(p, x - s, y - t)"),
    *[(f"{m}(select(p, x, y), select(p, s, t))", f"select(p, {m}(x, s), {m}(y, t))") for m, _ in EXTREMES],
]

_WHOLE_STEPS = "c2 > 0 and c1 >= 0 and c1 % c2 == 0 and lower(x) >= 0"
_ONE_BLOCK = "c2 > 0 and c1 > 0 and lower(x) >= 0 and fits_block(x, c2, c1*(n - 1))"

VECTORS: list[tuple[str, ...]] = [
    ("broadcast(x, n) + ramp(y, s, n)", "ramp(x + y, s, n)"),
    *[(f"{m}({m}(x, broadcast(y, n)), broadcast(z, n))", f"{m}(x, broadcast({m}(y, z), n))") for m, _ in EXTREMES],
    *[(f"{f}(broadcast(x, n), broadcast(y, n))", f"broadcast({f}(x, y), n)") for pair in DIVISIONS for f in pair],
    ("truncdiv(ramp(x, c1, n), broadcast(c2, n))", "ramp(truncdiv(x, c2), c1 // c2, n)", _WHOLE_STEPS),
    ("truncmod(ramp(x, c1, n), broadcast(c2, n))", "broadcast(truncmod(x, c2), n)", _WHOLE_STEPS),
    ("truncdiv(ramp(x, c1, n), broadcast(c2, n))", "broadcast(truncdiv(x, c2), n)", _ONE_BLOCK),
    ("truncmod(ramp(x, c1, n), broadcast(c2, n))", "ramp(truncmod(x, c2), c1, n)", _ONE_BLOCK),
]

AGAIN: list[tuple[str, ...]] = [
    *[
        row
        for m, o in EXTREMES
        for row in [
            (f"{m}({m}(x, c1), y)", f"{m}({m}(x, y), c1)"),
            (f"{m}(c1 - x, c2)", f"c1 - {o}(x, c1 - c2)", "c2 != 0"),
        ]
    ],
    ("min(x, y) < z", "(x < z) | (y < z)"),
    ("max(x, y) < z", "(x < z) & (y < z)"),
    ("z < min(x, y)", "(z < x) & (z < y)"),
    ("z < max(x, y)", "(z < x) | (z < y)"),
    ("x < c1 - y", "x + y < c1"),
    ("x < c1 + y", "x - y < c1"),
    ("c1 - y < x", "c1 < x + y"),
    ("c1 + y < x", "c1 < x - y"),
    ("x + c1 < c2", "x < c2 - c1"),
    ("x - c1 < c2", "x < c2 + c1"),
]
