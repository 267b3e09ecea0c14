"""Division and remainder by values that are not literals (literals: ``arith.division``), and truncating division."""

RULES: list[tuple[str, ...]] = [
    ("(x*y) // y", "x", "lower(y) > 0 or upper(y) < 0"),  # cancel
    ("(x*y) % y", "0", "lower(y) > 0 or upper(y) < 0"),  # a multiple
    ("(x*y + z) // y", "x + z // y", "lower(y) > 0"),  # take the multiple out
    ("(x*y + z) % y", "z % y", "lower(y) > 0"),  # drop the multiple
    ("(x*y - z) // y", "x + (0 - z) // y", "lower(y) > 0"),  # take the multiple out
    ("(y + z) // y", "1 + z // y", "lower(y) > 0"),  # take one out
    ("(y + z) % y", "z % y", "lower(y) > 0"),  # drop one
    ("(x*c1) // (y*c1)", "x // y", "c1 > 0 and lower(y) > 0"),  # common factor
    ("(x*c1) % (y*c1)", "(x % y)*c1", "c1 > 0 and lower(y) > 0"),  # common factor
    ("(x % y) % y", "x % y", "lower(y) > 0"),  # idempotence
    ("(x % y) // y", "0", "lower(y) > 0"),  # a remainder is below the divisor
    ("(x // y)*y + x % y", "x", "lower(y) > 0"),  # quotient and remainder
    ("truncdiv(truncdiv(x, c1), c2)", "truncdiv(x, c1*c2)", "c1 > 0 and c2 > 0"),  # divide once
    ("truncdiv(truncdiv(x, c1)*c1, c2)", "truncdiv(x, c2)", "c1 > 0 and c2 > 0 and c2 % c1 == 0"),  # rounded before
    ("truncdiv(x*c1, c2)", "x*(c1 // c2)", "c2 > 0 and c1 % c2 == 0"),  # exact
    ("truncdiv(x, c1)*c1 + truncmod(x, c1)", "x", "c1 != 0"),  # quotient and remainder
    ("x - truncdiv(x, c1)*c1", "truncmod(x, c1)", "c1 != 0"),  # definition
    ("truncdiv(x, c1)*c1 - x", "0 - truncmod(x, c1)", "c1 != 0"),  # definition
    ("truncdiv(x*y, y)", "x", "lower(y) > 0 or upper(y) < 0"),  # cancel
    ("truncmod(x*y, y)", "0", "lower(y) > 0 or upper(y) < 0"),  # a multiple
    ("truncdiv(truncmod(x, c1), c2)", "0", "c1 > 0 and c2 >= c1"),  # a remainder is below the divisor
    ("truncmod(x*c1, c2)", "truncmod(x, c2 // c1)*c1", "c1 > 0 and c2 > 0 and c2 % c1 == 0"),  # common factor
    ("truncmod(x*c1, c2)", "0", "c2 > 0 and c1 % c2 == 0"),  # exact
    ("truncmod(truncmod(x, c1), c2)", "truncmod(x, c2)", "c1 > 0 and c2 > 0 and c1 % c2 == 0"),  # finer wins
]
