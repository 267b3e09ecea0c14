"""Relay modules from text, and passes compared by text before and after."""

from __future__ import annotations

from textwrap import dedent

import tilewright as tvm
from tilewright import relay
from tilewright.ir.transform import Pass, PassContext

VERSION = '#[version = "0.0.5"]\n'


def parse(body: str) -> tvm.IRModule:
    return relay.transform.InferType()(tvm.parser.fromtext(VERSION + dedent(body)))


def check(step: Pass, before: str, after: str, opt_level: int = 3) -> None:
    with PassContext(opt_level=opt_level):
        result = step(parse(before))
    assert str(relay.transform.InferType()(result)) == str(parse(after))
