"""What a session does: calls, arrays, files, modules, whole models; in this process and on a server."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import nd, relay, rpc, te
from tilewright.runtime import GraphModule, TVMError
from tilewright.runtime.error import RPCError


def plus_one(n: int = 102) -> tvm.runtime.Module:
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    return tvm.build(te.create_schedule(b.op), [a, b], "llvm", name="plus_one")


@pytest.mark.parametrize(
    "value", [0, -1, 1 << 62, 0.5, float("inf"), "", "text", "Grüße", b"", b"\0\1", b"x" * 300_000, None]
)
def test_values_come_back_as_they_went(session: rpc.RPCSession, value: object) -> None:
    assert session.get_function("testing.echo")(value, 2) == value


def test_functions_and_their_errors(session: rpc.RPCSession) -> None:
    assert session.get_function("rpc.test.add_to_lhs")(10)(12) == 22
    with pytest.raises(AttributeError):
        session.get_function("no function has this name")
    with pytest.raises((RPCError, ValueError), match="the reason"):
        session.get_function("rpc.test.except")("the reason")
    assert session.get_function("rpc.test.addone")(1) == 2  # the session goes on


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5), (70_001,)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16", "bool", "float64"])
def test_arrays_round_trip(session: rpc.RPCSession, shape: tuple[int, ...], dtype: str) -> None:
    values = (np.arange(int(np.prod(shape))) % 2).reshape(shape).astype(dtype)
    array = nd.array(values, session.cpu())
    assert str(array.device).startswith("remote[") and str(array.device).endswith(":cpu(0)")
    np.testing.assert_array_equal(array.numpy(), values)
    np.testing.assert_array_equal(array.copyto(tvm.cpu()).numpy(), values)
    np.testing.assert_array_equal(array.copyto(session.cpu()).numpy(), values)


def test_arrays_that_are_returned_live_as_long_as_they_are_used(session: rpc.RPCSession) -> None:
    functions = session.get_function("rpc.test.remote_return_nd")
    array = functions("get_arr")()
    assert functions("get_arr_elem")(array, 3) == 0.0
    np.testing.assert_array_equal(array.numpy(), np.zeros(10, "float32"))


def test_what_is_not_of_the_session_is_refused(session: rpc.RPCSession) -> None:
    echo = session.get_function("testing.echo")
    other = rpc.LocalSession()
    with pytest.raises(RPCError, match=r"argument 0 is an array on cpu\(0\).*copy it there first"):
        echo(nd.array(np.ones(3)))
    with pytest.raises(RPCError, match="argument 1 is an array on remote"):
        echo(1, nd.array(np.ones(3), other.cpu()))
    with pytest.raises(RPCError, match="argument 0 is a device"):
        echo(tvm.cpu())
    with pytest.raises(RPCError, match="argument 0 is a module that is not remote"):
        echo(plus_one())
    assert echo(5) == 5


def test_a_module_runs_and_is_timed(session: rpc.RPCSession, tmp_path: Path) -> None:
    plus_one().export_library(tmp_path / "plus_one.so")
    session.upload(tmp_path / "plus_one.so")
    module = session.load_module("plus_one.so")
    a = nd.array(np.arange(102, dtype="float32"), session.cpu())
    b = nd.array(np.zeros(102, "float32"), session.cpu())
    module["plus_one"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(102) + 1)
    timing = module.time_evaluator(module.entry_name, session.cpu(), number=3, repeat=2)(a, b)
    assert len(timing.results) == 2 and 0 < timing.mean < 1
    with pytest.raises(ValueError, match="different machines"):
        module.time_evaluator("plus_one", tvm.cpu())


def test_objects_are_linked_there(session: rpc.RPCSession, tmp_path: Path) -> None:
    plus_one().export_library(tmp_path / "parts.tar")
    session.upload(tmp_path / "parts.tar")
    (tmp_path / "linked.so").write_bytes(session.download_linked_module("parts.tar"))
    b = nd.array(np.zeros(102, "float32"))
    tvm.runtime.load_module(str(tmp_path / "linked.so"))(nd.array(np.ones(102, "float32")), b)
    np.testing.assert_array_equal(b.numpy(), np.full(102, 2))


def small_network() -> tuple[tvm.IRModule, dict[str, np.ndarray]]:
    x = relay.var("x", shape=(1, 3, 9, 7))
    w = relay.var("w", shape=(5, 3, 3, 3))
    y = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    z = relay.Tuple([y, relay.sum(y, axis=(2, 3))])
    weights = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype("float32")
    return tvm.IRModule.from_expr(relay.Function([x, w], z)), {"w": weights}


def test_a_network_gives_what_it_gives_here(session: rpc.RPCSession, tmp_path: Path) -> None:
    mod, params = small_network()
    lib = relay.build(mod, "llvm", params=params)
    lib.export_library(tmp_path / "net.so")
    x = np.random.default_rng(1).standard_normal((1, 3, 9, 7)).astype("float32")
    here = GraphModule(lib["default"](tvm.cpu()))
    here.run(x=x)
    session.upload(tmp_path / "net.so")
    there = GraphModule(session.load_module("net.so")["default"](session.cpu()))
    there.set_input("x", x.astype("float64"))  # cast, as for one that is here
    there.run()
    for index in range(2):
        np.testing.assert_array_equal(there.get_output(index).numpy(), here.get_output(index).numpy())
    out = nd.empty((1, 5), device=tvm.cpu())
    np.testing.assert_array_equal(there.get_output(1, out).numpy(), here.get_output(1).numpy())
    inferred = there.infer({"x": x})
    np.testing.assert_array_equal(inferred["output_0"], here.get_output(0).numpy())
    assert there.benchmark(session.cpu(), number=2, repeat=2).mean > 0


def test_threads_share_a_session(remote: rpc.RPCSession) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        echo = remote.get_function("testing.echo")
        for i in range(100):
            if echo(number * 1000 + i) != number * 1000 + i:
                wrong.append((number, i))
            array = nd.array(np.full(100, number), remote.cpu())
            if not (array.numpy() == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_server_in_front_of_another(server: rpc.Server) -> None:
    front = rpc.Server(key="front", silent=True)
    way = ["rpc.Connect", "127.0.0.1", server.port, "board"]
    session = rpc.connect("127.0.0.1", front.port, "front", session_constructor_args=way)
    assert session.get_function("testing.echo")("through") == "through"
    values = np.arange(100_000, dtype="int32")
    np.testing.assert_array_equal(nd.array(values, session.cpu()).numpy(), values)
    with pytest.raises(RPCError, match="out of reach"):
        session.get_function("rpc.test.except")("out of reach")
    with pytest.raises(RPCError, match="no session constructor"):
        del session
        rpc.connect("127.0.0.1", front.port, "front", session_constructor_args=["rpc.Nothing"])
    front.terminate()


def test_a_program_serves_its_pipes(tmp_path: Path) -> None:
    from tilewright.contrib import cc

    a = te.placeholder((10,), name="a")
    b = te.compute((10,), lambda i: a[i] * 2.0, name="b")
    code = tvm.build(te.create_schedule(b.op), [a, b], "llvm --system-lib", name="twice")
    program = tmp_path / "board"
    code.export_library(str(program), rpc.with_minrpc(cc.create_executable))
    for session in (rpc.PopenSession(str(program)), rpc.PopenSession(program.read_bytes())):
        x, y = (nd.array(np.ones(10, "float32"), session.cpu()) for _ in range(2))
        session.system_lib()["twice"](x, y)
        np.testing.assert_array_equal(y.numpy(), np.full(10, 2))
    with pytest.raises(RPCError, match="no program"):
        rpc.PopenSession(str(tmp_path / "nothing"))
    program.chmod(0o400)
    with pytest.raises(RPCError, match="cannot run"):
        rpc.PopenSession(str(program)).get_function("testing.echo")


def test_attributes_of_remote_devices(session: rpc.RPCSession) -> None:
    assert session.cpu().exist
    metal = session.device("metal")
    assert not metal.exist
    with pytest.raises(TVMError, match="metal"):
        nd.array(np.ones(3), metal)
    session.cpu().sync()


def test_a_device_keeps_its_session(server: rpc.Server) -> None:
    device = rpc.connect("127.0.0.1", server.port, "board").cpu()
    np.testing.assert_array_equal(nd.array(np.arange(3), device).numpy(), np.arange(3))


def test_executors_that_have_the_functions_of_tvm_alone(tmp_path: Path) -> None:
    mod, params = small_network()
    relay.build(mod, "llvm", params=params).export_library(tmp_path / "net.so")
    of_tvm = {"set_input", "get_input", "get_output", "run", "get_num_inputs", "get_num_outputs", "get_input_index"}
    of_tvm |= {"load_params", "share_params"}

    def executor(library: tvm.runtime.Module) -> tvm.runtime.Module:
        full = library["default"](tvm.cpu())
        return tvm.runtime.create_module("of_tvm", lambda name: full[name] if name in of_tvm else None)

    tvm.register_func("test.executor_of_tvm", executor, override=True)
    session = rpc.LocalSession()
    session.upload(tmp_path / "net.so")
    there = GraphModule(session.get_function("test.executor_of_tvm")(session.load_module("net.so")))
    there.run(x=np.ones((1, 3, 9, 7)))
    assert there.get_output(0).numpy().shape == (1, 5, 9, 7)
