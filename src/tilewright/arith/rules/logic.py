"""And, Or, Not; the comparisons inside are of integers."""

RULES: list[tuple[str, ...]] = [
    ("p & ~p", "false"),  # contradiction
    ("p | ~p", "true"),  # excluded middle
    ("p & (p & q)", "p & q"),  # idempotence
    ("p | (p | q)", "p | q"),  # idempotence
    ("p & (p | q)", "p"),  # absorption
    ("p | (p & q)", "p"),  # absorption
    ("p & (~p | q)", "p & q"),  # the first side is known
    ("p | (~p & q)", "p | q"),  # the first side is known
    ("~(p & q)", "~p | ~q"),  # De Morgan
    ("~(p | q)", "~p & ~q"),  # De Morgan
]

COMPARE_RULES: list[tuple[str, ...]] = [
    ("~(x < y)", "y <= x"),  # total order
    ("~(x <= y)", "y < x"),  # total order
    ("~(x == y)", "x != y"),  # definition
    ("~(x != y)", "x == y"),  # definition
    ("(x < y) & (y < x)", "false"),  # antisymmetry
    ("(x < y) & (y <= x)", "false"),  # total order
    ("(x < y) | (y <= x)", "true"),  # total order
    ("(x <= y) | (y <= x)", "true"),  # total order
    ("(x <= y) & (y <= x)", "x == y"),  # antisymmetry
    ("(x == y) & (x != y)", "false"),  # contradiction
    ("(x == y) | (x != y)", "true"),  # excluded middle
    ("(x < y) & (x <= y)", "x < y"),  # the stronger
    ("(x < y) | (x <= y)", "x <= y"),  # the weaker
    ("(x < c1) & (x < c2)", "x < min(c1, c2)"),  # the stronger
    ("(x <= c1) & (x <= c2)", "x <= min(c1, c2)"),  # the stronger
    ("(x < c1) & (x <= c2)", "x < min(c1, c2 + 1)"),  # the stronger
    ("(c1 < x) & (c2 < x)", "max(c1, c2) < x"),  # the stronger
    ("(c1 <= x) & (c2 <= x)", "max(c1, c2) <= x"),  # the stronger
    ("(c1 < x) & (c2 <= x)", "max(c1 + 1, c2) <= x"),  # the stronger
    ("(x < c1) | (x < c2)", "x < max(c1, c2)"),  # the weaker
    ("(x <= c1) | (x <= c2)", "x <= max(c1, c2)"),  # the weaker
    ("(c1 < x) | (c2 < x)", "min(c1, c2) < x"),  # the weaker
    ("(c1 <= x) | (c2 <= x)", "min(c1, c2) <= x"),  # the weaker
    ("(x < c1) & (c2 < x)", "false", "c1 <= c2 + 1"),  # empty interval
    ("(x < c1) & (c2 <= x)", "false", "c1 <= c2"),  # empty interval
    ("(x <= c1) & (c2 < x)", "false", "c1 <= c2"),  # empty interval
    ("(x <= c1) & (c2 <= x)", "false", "c1 < c2"),  # empty interval
    ("(x < c1) | (c2 < x)", "true", "c2 < c1"),  # everything
    ("(x < c1) | (c2 <= x)", "true", "c2 <= c1"),  # everything
    ("(x <= c1) | (c2 < x)", "true", "c2 <= c1"),  # everything
    ("(x <= c1) | (c2 <= x)", "true", "c2 <= c1 + 1"),  # everything
    ("(x == c1) & (x == c2)", "false", "c1 != c2"),  # one value only
    ("(x == c1) & (x != c2)", "x == c1", "c1 != c2"),  # one value only
    ("(x != c1) | (x == c2)", "x != c1", "c1 != c2"),  # one value only
    ("(x != c1) | (x != c2)", "true", "c1 != c2"),  # one value only
    ("(x == c1) & (x < c2)", "x == c1", "c1 < c2"),  # one value only
    ("(x == c1) & (x < c2)", "false", "c1 >= c2"),  # one value only
    ("(x == c1) & (c2 < x)", "x == c1", "c2 < c1"),  # one value only
    ("(x == c1) & (c2 < x)", "false", "c2 >= c1"),  # one value only
]
