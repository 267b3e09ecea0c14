"""Select (both values are evaluated) and if_then_else (only the chosen one is)."""

RULES: list[tuple[str, ...]] = [
    ("select(p, x, x)", "x"),  # no choice
    ("select(~p, x, y)", "select(p, y, x)"),  # drop the negation
    ("select(p, select(p, x, y), z)", "select(p, x, z)"),  # known inside
    ("select(p, x, select(p, y, z))", "select(p, x, z)"),  # known inside
    ("select(p, select(q, x, y), y)", "select(p & q, x, y)"),  # one choice for two
    ("select(p, x, select(q, x, y))", "select(p | q, x, y)"),  # one choice for two
    ("if_then_else(~p, x, y)", "if_then_else(p, y, x)"),  # drop the negation
    ("if_then_else(p, if_then_else(p, x, y), z)", "if_then_else(p, x, z)"),  # known inside
    ("if_then_else(p, x, if_then_else(p, y, z))", "if_then_else(p, x, z)"),  # known inside
    ("if_then_else(p, if_then_else(q, x, y), y)", "if_then_else(p & q, x, y)"),  # one choice for two
]

INDEX_RULES: list[tuple[str, ...]] = [
    ("select(x < y, x, y)", "min(x, y)"),  # definition
    ("select(x <= y, x, y)", "min(x, y)"),  # definition
    ("select(x < y, y, x)", "max(x, y)"),  # definition
    ("select(x <= y, y, x)", "max(x, y)"),  # definition
    ("select(x == y, y, x)", "x"),  # equal anyway
    ("select(p, x + y, x + z)", "x + select(p, y, z)"),  # common term
]

BOOL_RULES: list[tuple[str, ...]] = [
    ("select(p, true, false)", "p"),  # definition
    ("select(p, false, true)", "~p"),  # definition
    ("select(p, q, false)", "p & q"),  # definition
    ("select(p, true, q)", "p | q"),  # definition
]
