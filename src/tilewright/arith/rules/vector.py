"""Ramp and Broadcast: vectors that are affine stay a Ramp, so that loads and stores of them stay contiguous."""

_LANEWISE = ["{x} + {y}", "{x} - {y}", "{x} * {y}", "min({x}, {y})", "max({x}, {y})"]
_COMPARE = ["{x} < {y}", "{x} <= {y}", "{x} == {y}", "{x} != {y}"]
_LOGIC = ["{x} & {y}", "{x} | {y}"]


def _of_broadcasts(form: str, x: str = "x", y: str = "y") -> tuple[str, ...]:
    """An operation on two broadcasts is the broadcast of the operation."""
    pattern = form.format(x=f"broadcast({x}, n)", y=f"broadcast({y}, n)")
    return pattern, f"broadcast({form.format(x=x, y=y)}, n)"


RULES: list[tuple[str, ...]] = [
    *[_of_broadcasts(form) for form in _LANEWISE + _COMPARE],
    *[_of_broadcasts(form, "p", "q") for form in _LOGIC],
    ("~broadcast(p, n)", "broadcast(~p, n)"),
    ("select(broadcast(p, n), broadcast(x, n), broadcast(y, n))", "broadcast(select(p, x, y), n)"),
    ("likely(broadcast(p, n))", "broadcast(likely(p), n)"),
    ("broadcast(broadcast(x, n), m)", "broadcast(x, n*m)"),  # copies of copies
    ("ramp(x, 0, n)", "broadcast(x, n)"),  # no step
    ("ramp(x, s, n) + ramp(y, t, n)", "ramp(x + y, s + t, n)"),  # affine
    ("ramp(x, s, n) - ramp(y, t, n)", "ramp(x - y, s - t, n)"),  # affine
    ("ramp(x, s, n) + broadcast(y, n)", "ramp(x + y, s, n)"),  # affine
    ("ramp(x, s, n) - broadcast(y, n)", "ramp(x - y, s, n)"),  # affine
    ("broadcast(x, n) - ramp(y, t, n)", "ramp(x - y, 0 - t, n)"),  # affine
    ("ramp(x, s, n) * broadcast(y, n)", "ramp(x*y, s*y, n)"),  # affine
    ("ramp(x, s, n) < ramp(y, s, n)", "broadcast(x < y, n)"),  # the same step
    ("ramp(x, s, n) <= ramp(y, s, n)", "broadcast(x <= y, n)"),  # the same step
    ("ramp(x, s, n) == ramp(y, s, n)", "broadcast(x == y, n)"),  # the same step
]

DIVISION_RULES: list[tuple[str, ...]] = [
    (*_of_broadcasts("{x} // {y}", "x", "c1"), "c1 != 0"),
    (*_of_broadcasts("{x} % {y}", "x", "c1"), "c1 != 0"),
    (*_of_broadcasts("truncdiv({x}, {y})", "x", "c1"), "c1 != 0"),
    (*_of_broadcasts("truncmod({x}, {y})", "x", "c1"), "c1 != 0"),
    ("ramp(x, c1, n) // broadcast(c2, n)", "ramp(x // c2, c1 // c2, n)", "c2 > 0 and c1 % c2 == 0"),  # whole steps
    ("ramp(x, c1, n) % broadcast(c2, n)", "broadcast(x % c2, n)", "c2 > 0 and c1 % c2 == 0"),  # whole steps
    (
        "ramp(x, c1, n) // broadcast(c2, n)",
        "broadcast(x // c2, n)",
        "c2 > 0 and c1 > 0 and fits_block(x, c2, c1*(n - 1))",
    ),  # inside one block
    (
        "ramp(x, c1, n) % broadcast(c2, n)",
        "ramp(x % c2, c1, n)",
        "c2 > 0 and c1 > 0 and fits_block(x, c2, c1*(n - 1))",
    ),  # inside one block
]
