"""min and max of index expressions."""

RULES: list[tuple[str, ...]] = [
    ("min(x, max(x, y))", "x"),  # absorption
    ("max(x, min(x, y))", "x"),  # absorption
    ("min(x, min(x, y))", "min(x, y)"),  # idempotence
    ("max(x, max(x, y))", "max(x, y)"),  # idempotence
    ("min(min(x, c1), c2)", "min(x, min(c1, c2))"),  # association of literals
    ("max(max(x, c1), c2)", "max(x, max(c1, c2))"),  # association of literals
    ("min(max(x, c1), c2)", "c2", "c2 <= c1"),  # clip to an empty interval
    ("max(min(x, c1), c2)", "c2", "c1 <= c2"),  # clip to an empty interval
    ("min(max(x, y), max(x, z))", "max(x, min(y, z))"),  # distributivity
    ("max(min(x, y), min(x, z))", "min(x, max(y, z))"),  # distributivity
    ("min(min(x, y), min(x, z))", "min(min(x, y), z)"),  # association
    ("max(max(x, y), max(x, z))", "max(max(x, y), z)"),  # association
    ("max(min(x, y), max(x, y))", "max(x, y)"),  # the larger of both
    ("min(min(x, y), max(x, y))", "min(x, y)"),  # the smaller of both
    ("min(x, y) + max(x, y)", "x + y"),  # both, in either order
    ("min(x, y)*max(x, y)", "x*y"),  # both, in either order
    ("min(x, y) - x", "min(0, y - x)"),  # into the choice
    ("max(x, y) - x", "max(0, y - x)"),  # into the choice
    ("x - min(x, y)", "max(0, x - y)"),  # into the choice
    ("x - max(x, y)", "min(0, x - y)"),  # into the choice
    ("min(x + y, z) - x", "min(y, z - x)"),  # into the choice
    ("max(x + y, z) - x", "max(y, z - x)"),  # into the choice
    ("min(x, y - z) + z", "min(x + z, y)"),  # into the choice
    ("max(x, y - z) + z", "max(x + z, y)"),  # into the choice
    ("min((x // c1)*c1, x)", "(x // c1)*c1", "c1 > 0"),  # rounding down
    ("max((x // c1)*c1, x)", "x", "c1 > 0"),  # rounding down
    ("min(((x + c2) // c1)*c1, x)", "x", "c1 > 0 and c2 == c1 - 1"),  # rounding up
    ("max(((x + c2) // c1)*c1, x)", "((x + c2) // c1)*c1", "c1 > 0 and c2 == c1 - 1"),  # rounding up
    ("min(((x + c2) // c1)*c1 - c3, x - c3)", "x - c3", "c1 > 0 and c2 == c1 - 1"),  # last of rounded up
    ("max(((x + c2) // c1)*c1 - c3, x - c3)", "((x + c2) // c1)*c1 - c3", "c1 > 0 and c2 == c1 - 1"),  # last of those
    ("min(x*c1, y*c1)", "min(x, y)*c1", "c1 > 0"),  # monotone
    ("max(x*c1, y*c1)", "max(x, y)*c1", "c1 > 0"),  # monotone
    ("min(x*c1, y*c1)", "max(x, y)*c1", "c1 < 0"),  # antitone
    ("max(x*c1, y*c1)", "min(x, y)*c1", "c1 < 0"),  # antitone
    ("min(x*c1, c2)", "min(x, c2 // c1)*c1", "c1 > 0 and c2 % c1 == 0"),  # common factor
    ("max(x*c1, c2)", "max(x, c2 // c1)*c1", "c1 > 0 and c2 % c1 == 0"),  # common factor
    ("min(x*c1, c2)", "max(x, c2 // c1)*c1", "c1 < 0 and c2 % c1 == 0"),  # common factor, antitone
    ("max(x*c1, c2)", "min(x, c2 // c1)*c1", "c1 < 0 and c2 % c1 == 0"),  # common factor, antitone
    ("min(truncdiv(x, c1), truncdiv(y, c1))", "truncdiv(min(x, y), c1)", "c1 > 0"),  # monotone
    ("max(truncdiv(x, c1), truncdiv(y, c1))", "truncdiv(max(x, y), c1)", "c1 > 0"),  # monotone
    ("min(x // c1, y // c1)", "min(x, y) // c1", "c1 > 0"),  # monotone
    ("max(x // c1, y // c1)", "max(x, y) // c1", "c1 > 0"),  # monotone
]
