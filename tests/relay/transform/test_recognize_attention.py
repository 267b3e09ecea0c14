"""Attention spelled out in the ways that exporters do becomes one operator; what is not quite attention stays."""

from __future__ import annotations

import numpy as np
import pytest
from tests.relay.transform.texts import check, parse

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.interpreter import interpret

INPUTS = {
    "q": (6, 5, 8), "k": (6, 7, 8), "v": (6, 7, 4), "m": (2, 1, 1, 7), "n": (6, 5, 7), "c": (2, 1, 5, 7),
    "z": (3, 1, 5, 7),
}  # fmt: skip
LOWEST = "-3.4028235e+38f"


def module(
    scores: str, before: str = "", softmax: str = "nn.softmax(%s, axis=-1)", after: str = "", result: str = "%o"
) -> str:
    params = ", ".join(f"%{k}: Tensor[{s}, {'bool' if k == 'c' else 'float32'}]" for k, s in INPUTS.items())
    return f"""
        def @main({params}) {{
          {before or "%p = nn.batch_matmul(%q, %k, transpose_b=True);"}
          {scores}
          %w = {softmax};
          {after or "%u = reshape(%w, newshape=[6, 5, 7]); %o = nn.batch_matmul(%u, %v, transpose_b=False);"}
          {result}
        }}"""


def numbered(text: str) -> tvm.IRModule:
    """Relay's text has numbers for values; these tests use letters."""
    names = [n for n in "psabdwuo" if f"%{n} =" in text]
    for index, name in enumerate(names):
        text = (
            text.replace(f"%{name} ", f"%{index} ")
            .replace(f"%{name},", f"%{index},")
            .replace(f"%{name})", f"%{index})")
        )
        text = text.replace(f"%{name}\n", f"%{index}\n")
    return parse(text)


WIDE = "%a = reshape(%p, newshape=[2, 3, 5, 7]);"
RECOGNISED = {
    "no mask": "%s = reshape(%p, newshape=[2, 3, 5, 7]);",
    "scaled": f"{WIDE} %s = multiply(%a, 0.5f);",
    "divided, then masked": f"{WIDE} %b = divide(%a, 2f); %s = add(%b, %m);",
    "masked, then scaled": f"{WIDE} %b = add(%m, %a); %s = multiply(0.5f, %b);",
    "scaled twice": "%a = multiply(%p, 0.5f); %b = reshape(%a, newshape=[2, 3, 5, 7]); %d = divide(%b, 4f); "
    "%s = add(%d, %m);",
    "masked as a matrix": "%a = add(%p, %n); %s = reshape(%a, newshape=[2, 3, 5, 7]);",
    "two masks": f"{WIDE} %b = add(%a, %m); %d = multiply(%b, 2f); %s = add(%d, %m);",
    "overwritten": f"{WIDE} %s = where(%c, {LOWEST}, %a);",
    "kept": f"{WIDE} %b = divide(%a, 2f); %s = where(%c, %b, {LOWEST});",
    "masked by windows": "%a = reshape(%p, newshape=[1, 2, 3, 5, 7]); %d = reshape(%m, newshape=[1, 2, 1, 1, 7]); "
    "%b = add(%a, %d); %s = reshape(%b, newshape=[2, 3, 5, 7]);",
    "masked by windows of two pictures": "%a = reshape(%p, newshape=[2, 3, 1, 5, 7]); %b = add(%a, %z); "
    "%s = reshape(%b, newshape=[6, 1, 5, 7]);",
    "one mask for all windows": "%a = reshape(%p, newshape=[2, 1, 3, 5, 7]); "
    "%d = strided_slice(%z, begin=[0], end=[1], axes=[0]); %b = add(%a, %d); %s = reshape(%b, newshape=[2, 3, 5, 7]);",
    "overwritten by windows": f"%a = reshape(%p, newshape=[1, 2, 3, 5, 7]); "
    f"%d = reshape(%c, newshape=[1, 2, 1, 5, 7]); %b = where(%d, {LOWEST}, %a); "
    "%s = reshape(%b, newshape=[2, 3, 5, 7]);",
    "rank 3": "%s = multiply(%p, 0.5f);",
    "rank 3 with a mask": "%s = add(%p, %n);",
}
STAYS = {
    "a scale that is no constant": f"{WIDE} %s = multiply(%a, %m);",
    "a mild penalty": f"{WIDE} %s = where(%c, -10f, %a);",
    "an activation": f"{WIDE} %s = tanh(%a);",
    "windows of other heads": "%a = reshape(%p, newshape=[2, 3, 1, 5, 7]); %b = add(%a, %z); "
    "%s = reshape(%b, newshape=[2, 3, 5, 7]);",
    "other rows": "%a = reshape(%p, newshape=[2, 3, 7, 5]); %s = reshape(%a, newshape=[2, 3, 5, 7]);",
}


def recognised(mod: tvm.IRModule) -> tvm.IRModule:
    with PassContext(opt_level=3):
        return transform.RecognizeAttention()(mod)


def arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    made = [rng.standard_normal(s, dtype=np.float32) for s in INPUTS.values()]
    made[5] = rng.random(INPUTS["c"]) < 0.5
    made[5][0, 0, 2] = True  # a row that is masked altogether, or not at all
    return made


def test_text() -> None:
    check(
        transform.RecognizeAttention(),
        """
        def @main(%q: Tensor[(6, 5, 8), float32], %k: Tensor[(6, 7, 8), float32], %v: Tensor[(6, 4, 7), float32],
                  %m: Tensor[(2, 1, 1, 7), float32]) {
          %0 = nn.batch_matmul(%q, %k, transpose_b=True);
          %1 = reshape(%0, newshape=[2, 3, 5, 7]);
          %2 = divide(%1, 8f);
          %3 = add(%2, %m);
          %4 = nn.softmax(%3, axis=-1);
          %5 = reshape(%4, newshape=[6, 5, 7]);
          nn.batch_matmul(%5, %v, transpose_b=True)
        }""",
        """
        def @main(%q: Tensor[(6, 5, 8), float32], %k: Tensor[(6, 7, 8), float32], %v: Tensor[(6, 4, 7), float32],
                  %m: Tensor[(2, 1, 1, 7), float32]) {
          %0 = transpose(%v, axes=[0, 2, 1]);
          %1 = reshape(%q, newshape=[2, 3, 5, 8]);
          %2 = reshape(%k, newshape=[2, 3, 7, 8]);
          %3 = reshape(%0, newshape=[2, 3, 7, 4]);
          %4 = reshape(%m, newshape=[2, 1, 1, 7]);
          %5 = nn.attention(%1, %2, %3, %4, scale=0.125f);
          %6 = transpose(%5, axes=[0, 2, 1, 3]);
          reshape(%6, newshape=[6, 5, 4])
        }""",
    )


@pytest.mark.parametrize("name", RECOGNISED)
def test_every_spelling_keeps_its_value(name: str) -> None:
    mod = numbered(module(RECOGNISED[name]))
    found = recognised(mod)
    assert "nn.attention" in str(found)
    np.testing.assert_allclose(interpret(found, arrays()), interpret(mod, arrays()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["no mask", "two masks", "overwritten", "rank 3 with a mask"])
@pytest.mark.parametrize("threads", [1, 4])
def test_built(name: str, threads: int) -> None:
    mod = numbered(module(RECOGNISED[name]))
    with PassContext(opt_level=3):
        lib = relay.build(mod, "llvm")
    assert "attention.cpu" in lib.build_report.implementations.values()
    run = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    for key, value in zip(INPUTS, arrays(), strict=True):
        if key in [p.name_hint for p in mod["main"].params]:
            run.set_input(key, value)
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(1, threads)
    run.run()
    configure(1, 0)
    np.testing.assert_allclose(run.get_output(0).numpy(), interpret(mod, arrays()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STAYS)
def test_near_misses_stay(name: str) -> None:
    assert "nn.attention" not in str(recognised(numbered(module(STAYS[name]))))


@pytest.mark.parametrize(
    "changes",
    [
        {"softmax": "nn.softmax(%s, axis=2)"},
        {"softmax": "nn.log_softmax(%s, axis=-1)"},
        {"result": "(%o, %w)"},  # the probabilities are a result too
        {"result": "(%o, %s)"},
        {"before": "%p = nn.batch_matmul(%k, %q, transpose_b=True);"},  # 7 x 5: the reshape mixes rows
        {
            "after": "%u = reshape(%w, newshape=[6, 7, 5]); "
            "%o = nn.batch_matmul(%u, %v, transpose_a=True, transpose_b=False);"
        },
    ],
)  # fmt: skip
def test_other_uses_stay(changes: dict[str, str]) -> None:
    assert "nn.attention" not in str(recognised(numbered(module(RECOGNISED["scaled"], **changes))))
