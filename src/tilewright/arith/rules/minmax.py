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
    ("min(x*c1, y*c1)", "min(x, y)*c1", "c1 > 0"),  # monotone
    ("max(x*c1, y*c1)", "max(x, y)*c1", "c1 > 0"),  # monotone
    ("min(x*c1, y*c1)", "max(x, y)*c1", "c1 < 0"),  # antitone
    ("max(x*c1, y*c1)", "min(x, y)*c1", "c1 < 0"),  # antitone
    ("min(x*c1, c2)", "min(x, c2 // c1)*c1", "c1 > 0 and c2 % c1 == 0"),  # common factor
    ("max(x*c1, c2)", "max(x, c2 // c1)*c1", "c1 > 0 and c2 % c1 == 0"),  # common factor
    ("min(x // c1, y // c1)", "min(x, y) // c1", "c1 > 0"),  # monotone
    ("max(x // c1, y // c1)", "max(x, y) // c1", "c1 > 0"),  # monotone
]
