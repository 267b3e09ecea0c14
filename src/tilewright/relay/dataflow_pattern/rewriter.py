"""Rewriting: each match of a pattern is replaced by a callback's result, until nothing changes.

Before, with a callback for ``is_op("add")(wildcard(), is_expr(const(0)))`` that returns the first argument::

    add(nn.relu(%x), 0)

after::

    nn.relu(%x)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import RelayExpr
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_equal
from tilewright.relay.dataflow_pattern.groups import Group, PatternGrouper
from tilewright.relay.dataflow_pattern.language import DFPattern
from tilewright.relay.dataflow_pattern.matcher import Bindings
from tilewright.relay.expr import TupleWrapper
from tilewright.relay.type_infer import infer_expr
from tilewright.relay.visitor import ExprMutator

_MOST_ROUNDS = 100


class DFPatternCallback:
    """Base of rewrites: set ``self.pattern``, and override ``callback``, which replaces the pattern's matches.

    ``require_type`` types the expression before each search. With ``rewrite_once`` the results of the callback are not
    searched again.
    """

    pattern: DFPattern

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: RelayExpr) -> RelayExpr:
        """Return ``expr`` with the matches replaced."""
        return rewrite(self, expr)

    def callback(self, pre: RelayExpr, post: RelayExpr, node_map: Bindings) -> RelayExpr:
        """Return the replacement of one match.

        Parameters
        ----------
        pre : the match as it was found
        post : the match after those below it have been replaced
        node_map : for each pattern the expressions that it matched, as they are after replacing below
        """
        raise NotImplementedError(f"{type(self).__name__} does not define callback(pre, post, node_map)")


class _Replacer(ExprMutator):
    def __init__(self, callback: DFPatternCallback, groups: dict[RelayExpr, Group]) -> None:
        super().__init__()
        self.callback = callback
        self.groups = groups

    def dispatch(self, expr: RelayExpr) -> RelayExpr:
        post = super().dispatch(expr)
        group = self.groups.get(expr)
        if group is None:
            return post
        known = {**{e: self.memo_map.get(e, e) for es in group.bindings.values() for e in es}, expr: post}
        node_map = {pattern: [known[e] for e in exprs] for pattern, exprs in group.bindings.items()}
        return _checked(self.callback, self.callback.callback(expr, post, node_map))


def _checked(callback: DFPatternCallback, result: Any) -> RelayExpr:
    if isinstance(result, TupleWrapper):
        return result.astuple()
    if not isinstance(result, RelayExpr):
        raise TilewrightError(
            f"{type(callback).__name__}.callback returned a {type(result).__name__}; expected the expression that "
            "replaces the match, which is post where nothing is to change"
        )
    return result


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: RelayExpr, mod: IRModule | None = None
) -> RelayExpr:
    """Replace all matches of all callbacks in ``expr``, each callback in turn, until nothing changes.

    Parameters
    ----------
    callbacks : one or several; those with ``rewrite_once`` take part in the first round only
    mod : the global functions and types that ``expr`` uses, for callbacks with ``require_type``

    Raises
    ------
    TilewrightError where the callbacks keep changing the expression without end.
    """
    pending = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for _ in range(_MOST_ROUNDS):
        before = expr
        for callback in pending:
            if callback.require_type:
                expr = infer_expr(expr, mod)
            expr = _Replacer(callback, PatternGrouper(callback.pattern, expr).groups).visit(expr)
        pending = [c for c in pending if not c.rewrite_once]
        if not pending or structural_equal(before, expr):
            return expr
    names = ", ".join(type(c).__name__ for c in pending)
    raise TilewrightError(
        f"the expression still changes after {_MOST_ROUNDS} rounds of {names}: some callback's result matches again; "
        "return post where nothing is to change, or use rewrite_once"
    )
