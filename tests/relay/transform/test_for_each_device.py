"""ForEachDevice: what passes are given of a program on several devices, and what becomes of it."""

from __future__ import annotations

import pytest
from tests.relay.transform.texts import parse

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.relay.analysis import device_types
from tilewright.relay.expr import Call, Function
from tilewright.relay.transform import ForEachDevice, FuseOps, InferType, PlanDevices, SimplifyExpr
from tilewright.relay.visitor import post_order
from tilewright.target import Target

TARGETS = {1: Target("llvm -mcpu=x86-64"), 3: Target("c")}
X = "%x: Tensor[(5, 7), float32]"


class Seen:
    """A pass that changes nothing and notes what it is given, and under which target."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def as_pass(self) -> object:
        @tvm.transform.module_pass(opt_level=0, name="Seen")
        def note(mod: tvm.IRModule, ctx: object) -> tvm.IRModule:
            target = Target.current()
            assert target is not None
            self.given.append((target.kind.name, str(mod)))
            return mod

        return note


def body_of(mod: tvm.IRModule) -> str:
    return str(InferType()(mod))


def test_each_part_is_given_under_its_target() -> None:
    mod = parse(f"""
        def @main({X}, param_device_types=[1], result_device_type=1) {{
          %0 = exp(%x);
          %1 = device_copy(%0, src_dev_type=1, dst_dev_type=3);
          %2 = tanh(%1);
          %3 = device_copy(%2, src_dev_type=3, dst_dev_type=1);
          subtract(%3, %0)
        }}
        """)
    seen = Seen()
    found = ForEachDevice(TARGETS, [seen.as_pass()])(mod)
    assert [kind for kind, _ in seen.given] == ["llvm", "c", "llvm"]
    first, second, third = (text for _, text in seen.given)
    assert "exp(" in first and "result_device_type=1" in first and "tanh" not in first
    assert (
        "tanh(" in second and "param_device_types=[3], result_device_type=3" in second and "device_copy" not in second
    )
    assert "subtract(" in third and "param_device_types=[1, 1]" in third
    assert str(found) == str(mod)


def test_copies_to_no_purpose_go() -> None:
    mod = parse(f"""
        def @main({X}, param_device_types=[1], result_device_type=1) {{
          %0 = exp(%x);
          %1 = device_copy(%0, src_dev_type=1, dst_dev_type=3);
          %2 = add(%1, 0f);
          %3 = device_copy(%2, src_dev_type=3, dst_dev_type=1);
          subtract(%3, %0)
        }}
        """)
    once = ForEachDevice(TARGETS, [SimplifyExpr()])(mod)
    twice = ForEachDevice(TARGETS, [])(once)
    assert body_of(twice) == body_of(
        parse(f"""
        def @main({X}, param_device_types=[1], result_device_type=1) {{ %0 = exp(%x); subtract(%0, %0) }}
        """)
    )


def test_one_copy_serves_all_users_on_a_device() -> None:
    mod = parse(f"def @main({X}) {{ %0 = exp(%x); %1 = on_device(%0, device_type=3); add(%1, %1) }}")
    found = ForEachDevice(TARGETS, [])(PlanDevices(1)(mod))
    assert str(found).count("device_copy") == 1 and "on_device" not in str(found)


def test_a_tuple_is_copied_field_by_field() -> None:
    mod = parse(f"""
        def @main({X}) {{
          %0 = split(%x, indices_or_sections=7, axis=1);
          %1 = on_device(%0, device_type=3);
          concatenate(%1, axis=0)
        }}
        """)
    found = ForEachDevice(TARGETS, [])(PlanDevices(1)(mod))
    copies = [
        e for e in post_order(found["main"]) if isinstance(e, Call) and getattr(e.op, "name", "") == "device_copy"
    ]
    assert len(copies) == 7 and all(isinstance(c.checked_type, tvm.relay.TensorType) for c in copies)


def test_a_constant_is_on_the_device_of_each_user() -> None:
    x, shared = relay.var("x", shape=(3,)), relay.const([1.0, 2.0, 3.0])
    marked = relay.annotation.on_device(relay.add(x, shared), 3)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.multiply(marked, shared)))
    found = ForEachDevice(TARGETS, [])(PlanDevices(1)(mod))
    devices = device_types(found["main"])
    assert sorted(d for e, d in devices.items() if isinstance(e, relay.Constant)) == [1, 3]


def test_functions_made_on_a_device_carry_its_target_and_never_reach_over() -> None:
    mod = parse(f"def @main({X}) {{ %0 = exp(%x); %1 = on_device(%0, device_type=3); %2 = tanh(%1); negative(%2) }}")
    found = ForEachDevice(TARGETS, [FuseOps()])(PlanDevices(1)(mod))
    functions = [e for e in post_order(found["main"].body) if isinstance(e, Function)]
    made = {f.body.op.name if isinstance(f.body, Call) else "": f.attrs["target"] for f in functions}
    assert made == {"exp": str(TARGETS[3]), "negative": str(TARGETS[1])}
    text = body_of(found)
    assert text.index("exp(") < text.index("device_copy(") < text.index("tanh(") < text.index("negative(")


def test_a_part_with_several_results_and_tuples_of_others() -> None:
    mod = parse(f"""
        def @main({X}) {{
          %0 = split(%x, indices_or_sections=7, axis=1);
          %1 = exp(%0.0);
          %2 = on_device(%1, device_type=3);
          %3 = tanh(%2);
          %4 = on_device(%3, device_type=3);
          %5 = add(%4, %0.1);
          (%5, %0.0, %0)
        }}
        """)
    planned = PlanDevices(1)(mod)
    found = ForEachDevice(TARGETS, [SimplifyExpr()])(planned)
    assert found["main"].checked_type == planned["main"].checked_type
    assert str(ForEachDevice(TARGETS, [])(found)) == str(found)


def test_devices_without_a_target_and_programs_that_are_more_than_data_flow() -> None:
    mod = parse(f"def @main({X}) {{ %0 = exp(%x); %1 = on_device(%0, device_type=2); tanh(%1) }}")
    with pytest.raises(TilewrightError, match=r"run on cuda \(2\), which has no target.*found: cpu \(1\)"):
        ForEachDevice(TARGETS, [])(PlanDevices(1)(mod))
    branching = parse(f"def @main(%c: bool, {X}) {{ if (%c) {{ exp(%x) }} else {{ %x }} }}")
    with pytest.raises(UnsupportedError, match=r"is data flow.*found an If"):
        ForEachDevice(TARGETS, [])(PlanDevices(1)(branching))
    unplanned = parse(
        f"def @main({X}) {{ %0 = exp(%x); %1 = device_copy(%0, src_dev_type=3, dst_dev_type=1); add(%0, %1) }}"
    )
    with pytest.raises(TilewrightError, match="a value is used on two devices, 1 and 3"):
        device_types(unplanned["main"])


def test_long_programs() -> None:
    x = relay.var("x", shape=(3,))
    body = x
    for i in range(2_000):
        body = relay.negative(body)
        if i % 50 == 25:
            body = relay.annotation.on_device(body, 1 + 2 * (i // 50 % 2))
    found = ForEachDevice(TARGETS, [])(PlanDevices(1)(tvm.IRModule.from_expr(relay.Function([x], body))))
    devices = device_types(found["main"])
    assert {d for d in devices.values()} == {1, 3}
