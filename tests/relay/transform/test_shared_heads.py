"""Keys and values repeated for the heads of a group are read once: attention takes them before their repetition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tilewright as tvm
from tilewright import relay
from tilewright.ir.transform import PassContext
from tilewright.relay import transform
from tilewright.relay.build_module import optimize
from tilewright.relay.frontend.torch import from_exported_program
from tilewright.relay.interpreter import interpret
from tilewright.relay.transform.infer_type import infer_type
from tilewright.testing.language_models import TINY, decoder

BATCH, HEADS, GROUPS, KEYS, SIZE = 2, 6, 2, 7, 5
EACH = HEADS // GROUPS
WIDE = (BATCH, HEADS, KEYS, SIZE)

Spelling = Callable[[relay.Expr], relay.Expr]


def hugging_face(x: relay.Expr) -> relay.Expr:
    """``repeat_kv``."""
    return relay.reshape(relay.broadcast_to(relay.expand_dims(x, 2), (BATCH, GROUPS, EACH, KEYS, SIZE)), WIDE)


SHARED: dict[str, Spelling] = {
    "Hugging Face": hugging_face,
    "interleaved": lambda x: relay.repeat(x, EACH, axis=1),
    "a new axis repeated": lambda x: relay.reshape(relay.repeat(relay.expand_dims(x, 2), EACH, axis=2), WIDE),
    "scaled behind": lambda x: relay.multiply(relay.repeat(x, EACH, axis=1), relay.const(0.5)),
    "cast behind": lambda x: relay.cast(relay.repeat(relay.cast(x, "float16"), EACH, axis=1), "float32"),
    "turned twice": lambda x: relay.transpose(
        relay.reshape(
            relay.repeat(relay.transpose(relay.expand_dims(x, 2), [0, 1, 2, 4, 3]), EACH, axis=2),
            (BATCH, HEADS, SIZE, KEYS),
        ),
        [0, 1, 3, 2],
    ),
}
APART: dict[str, Spelling] = {
    "groups in turns": lambda x: relay.tile(x, (1, EACH, 1, 1)),
    "groups in turns by a new axis": lambda x: relay.reshape(
        relay.broadcast_to(relay.expand_dims(x, 1), (BATCH, EACH, GROUPS, KEYS, SIZE)), WIDE
    ),
    "scaled by head": lambda x: relay.multiply(
        relay.repeat(x, EACH, axis=1), relay.const(np.arange(1.0, 7.0, dtype="float32").reshape(6, 1, 1))
    ),
}


def program(key: Spelling, value: Spelling) -> tvm.IRModule:
    q = relay.var("q", shape=(BATCH, HEADS, 3, SIZE))
    k, v = (relay.var(name, shape=(BATCH, GROUPS, KEYS, SIZE)) for name in "kv")
    made = relay.nn.attention(q, infer_type(key(k)), infer_type(value(v)), scale=0.3)
    return transform.InferType()(tvm.IRModule.from_expr(relay.Function([q, k, v], made)))


def recognised(mod: tvm.IRModule) -> tvm.IRModule:
    with PassContext(opt_level=3):
        return transform.InferType()(transform.RecognizeAttention()(mod))


def groups_of(mod: tvm.IRModule) -> list[int]:
    """The groups of keys in each attention."""
    found = []

    def note(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and expr.op == tvm.ir.Op.get("nn.attention"):
            found.append(int(expr.args[1].checked_type.shape[1]))

    relay.analysis.post_order_visit(mod["main"], note)
    return found


def arrays(mod: tvm.IRModule) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.checked_type.concrete_shape, dtype="float32") for p in mod["main"].params]


@pytest.mark.parametrize("name", SHARED)
def test_a_repetition_for_the_heads_of_a_group_goes(name: str) -> None:
    mod = program(SHARED[name], SHARED[name])
    found = recognised(mod)
    assert groups_of(found) == [GROUPS]
    np.testing.assert_allclose(interpret(found, arrays(mod)), interpret(mod, arrays(mod)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", APART)
def test_other_repetitions_stay(name: str) -> None:
    assert groups_of(recognised(program(APART[name], APART[name]))) == [HEADS]


def test_keys_alone_repeated_stay() -> None:
    q, k = (relay.var(name, shape=(BATCH, n, KEYS, SIZE)) for name, n in (("q", HEADS), ("k", GROUPS)))
    v = relay.var("v", shape=WIDE)
    made = relay.nn.attention(q, hugging_face(k), v)
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.Function([q, k, v], made)))
    assert groups_of(recognised(mod)) == [HEADS]


def test_spelled_attention_of_repeated_keys_and_values() -> None:
    q = relay.var("q", shape=(BATCH, HEADS, 3, SIZE))
    k, v = (relay.var(name, shape=(BATCH, GROUPS, KEYS, SIZE)) for name in "kv")
    turned = relay.transpose(hugging_face(k), [0, 1, 3, 2])
    joined = [relay.reshape(x, (-3, 0, 0)) for x in (q, relay.transpose(turned, [0, 1, 3, 2]), hugging_face(v))]
    shares = relay.nn.softmax(relay.nn.batch_matmul(joined[0], joined[1]))
    made = relay.nn.batch_matmul(shares, relay.transpose(joined[2], [0, 2, 1]))
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.Function([q, k, v], made)))
    found = recognised(mod)
    assert groups_of(found) == [BATCH * GROUPS]  # scores of rank 3: the batch is part of the heads
    np.testing.assert_allclose(interpret(found, arrays(mod)), interpret(mod, arrays(mod)), rtol=1e-5, atol=1e-6)


def test_decoders_of_onnx_operators_repeat_no_cache() -> None:
    """As Hugging Face's exporters write them, with caches over named lengths."""
    mod = relay.frontend.from_onnx(decoder(TINY, grouped=False), freeze_params=True)[0]
    with PassContext(opt_level=3):
        found, _ = optimize(mod, "llvm", fuse=False)
    assert groups_of(found) == [TINY.groups] * TINY.layers
    assert "repeat(" not in str(found)


@pytest.mark.parametrize("by_torch", [True, False])
def test_torch_repeats_no_keys(by_torch: bool) -> None:
    class Attention(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            if by_torch:
                return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            wide = [x[:, :, None].expand(BATCH, GROUPS, EACH, KEYS, SIZE).reshape(WIDE) for x in (k, v)]
            shares = torch.softmax(q @ wide[0].transpose(2, 3) * SIZE**-0.5, -1)
            return shares @ wide[1]

    shapes = [(BATCH, n, KEYS, SIZE) for n in (HEADS, GROUPS, GROUPS)]
    exported = torch.export.export(Attention(), tuple(torch.randn(s) for s in shapes))
    with PassContext(opt_level=3):
        found, _ = optimize(*from_exported_program(exported)[:1], "llvm", fuse=False)
    assert groups_of(found) == [GROUPS]
