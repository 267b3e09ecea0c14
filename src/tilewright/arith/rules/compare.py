"""Comparisons of index expressions; sums have been cancelled and divided by common factors before."""

RULES: list[tuple[str, ...]] = [
    ("x // c1 < c2", "x < c1*c2", "c1 > 0"),  # multiply out
    ("x // c1 <= c2", "x < c1*(c2 + 1)", "c1 > 0"),  # multiply out
    ("c2 < x // c1", "c1*(c2 + 1) <= x", "c1 > 0"),  # multiply out
    ("c2 <= x // c1", "c1*c2 <= x", "c1 > 0"),  # multiply out
    ("truncdiv(x, c1) < c2", "x < c1*c2", "c1 > 0 and c2 > 0"),  # multiply out
    ("truncdiv(x, c1) < c2", "x < c1*(c2 - 1) + 1", "c1 > 0 and c2 <= 0"),  # multiply out
    ("truncdiv(x, c1) <= c2", "x < c1*(c2 + 1)", "c1 > 0 and c2 >= 0"),  # multiply out
    ("truncdiv(x, c1) <= c2", "x <= c1*c2", "c1 > 0 and c2 < 0"),  # multiply out
    ("c2 < truncdiv(x, c1)", "c1*(c2 + 1) <= x", "c1 > 0 and c2 >= 0"),  # multiply out
    ("c2 < truncdiv(x, c1)", "c1*c2 < x", "c1 > 0 and c2 < 0"),  # multiply out
    ("c2 <= truncdiv(x, c1)", "c1*c2 <= x", "c1 > 0 and c2 > 0"),  # multiply out
    ("c2 <= truncdiv(x, c1)", "c1*(c2 - 1) < x", "c1 > 0 and c2 <= 0"),  # multiply out
    ("min(x, c1) < c2", "x < c2", "c1 >= c2"),  # the literal does not decide
    ("min(x, c1) < c2", "true", "c1 < c2"),  # the literal decides
    ("max(x, c1) < c2", "false", "c1 >= c2"),  # the literal decides
    ("max(x, c1) < c2", "x < c2", "c1 < c2"),  # the literal does not decide
    ("c2 < max(x, c1)", "true", "c1 > c2"),  # the literal decides
    ("c2 < max(x, c1)", "c2 < x", "c1 <= c2"),  # the literal does not decide
    ("c2 < min(x, c1)", "false", "c1 <= c2"),  # the literal decides
    ("c2 < min(x, c1)", "c2 < x", "c1 > c2"),  # the literal does not decide
    ("min(x, c1) <= c2", "x <= c2", "c1 > c2"),  # the literal does not decide
    ("min(x, c1) <= c2", "true", "c1 <= c2"),  # the literal decides
    ("max(x, c1) <= c2", "false", "c1 > c2"),  # the literal decides
    ("max(x, c1) <= c2", "x <= c2", "c1 <= c2"),  # the literal does not decide
    ("c2 <= max(x, c1)", "true", "c1 >= c2"),  # the literal decides
    ("c2 <= max(x, c1)", "c2 <= x", "c1 < c2"),  # the literal does not decide
    ("c2 <= min(x, c1)", "false", "c1 < c2"),  # the literal decides
    ("c2 <= min(x, c1)", "c2 <= x", "c1 >= c2"),  # the literal does not decide
    ("min(x, y) <= x", "true"),  # the smaller of both
    ("x <= max(x, y)", "true"),  # the larger of both
    ("x < min(x, y)", "false"),  # the smaller of both
    ("max(x, y) < x", "false"),  # the larger of both
    ("min(x, y) < x", "y < x"),  # only the other can be below
    ("x < max(x, y)", "x < y"),  # only the other can be above
    ("x <= min(x, y)", "x <= y"),  # the other must not be below
    ("max(x, y) <= x", "y <= x"),  # the other must not be above
    ("x*x < 0", "false"),  # a square
    ("x*y == 0", "(x == 0) | (y == 0)"),  # no divisors of zero
    ("x*y != 0", "(x != 0) & (y != 0)"),  # no divisors of zero
]
