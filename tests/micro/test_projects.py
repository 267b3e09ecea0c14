"""Projects of the two templates: made, built and run by remote calls, on this machine and on an emulated board."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.micro.test_boards import board_here
from tests.tiers import full

import tilewright as tvm
from tilewright import autotvm, relay, te
from tilewright.micro import (
    AutoTvmModuleLoader,
    Session,
    SessionTerminatedError,
    autotvm_build_func,
    create_local_graph_executor,
    generate_project,
    get_microtvm_template_projects,
)
from tilewright.micro.project import GeneratedProject, TemplateProject
from tilewright.micro.project_api.client import ProjectAPIServerNotFoundError, instantiate_from_dir
from tilewright.micro.project_api.server import ServerError
from tilewright.runtime.error import RPCError, TVMError

RNG = np.random.default_rng(3)


def target(platform: str) -> tvm.target.Target:
    return tvm.target.target.micro("host" if platform == "crt" else "mps2_an386")


def needed(platform: str) -> None:
    if platform == "qemu":
        board_here("mps2_an386")


def built(module: Any, platform: str, folder: Path) -> Any:
    needed(platform)
    project = generate_project(get_microtvm_template_projects(platform), module, folder / "project", {})
    project.build()
    return project


def session(module: Any, platform: str, folder: Path) -> Session:
    project = built(module, platform, folder)
    project.flash()
    return Session(project.transport())


def network() -> tvm.IRModule:
    """Two kernels and a tensor between them."""
    a, b = (relay.var(name, shape=(1, 17)) for name in "ab")
    return tvm.IRModule.from_expr(relay.Function([a, b], relay.nn.softmax(a + relay.nn.relu(b))))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[], Session]]:
    """A program of the network on this machine, and what opens a session of it."""
    folder = tmp_path_factory.mktemp("network")
    built(relay.build(network(), target("crt")), "crt", folder)
    place = folder / "project"
    return place / "build" / "main", lambda: Session(GeneratedProject.from_directory(place, {}).transport())


@pytest.fixture(scope="module")
def add(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session of a program on this machine with the functions add and clear."""
    a = te.placeholder((7,), "int8", "a")
    b = te.compute((7,), lambda i: a[i] + tvm.tir.const(3, "int8"))
    module = tvm.build(te.create_schedule(b.op), [a, b], target("crt"), name="add")
    with session(module, "crt", tmp_path_factory.mktemp("add")) as opened:
        yield opened


@pytest.mark.parametrize("platform", ["qemu", *full("crt")])
def test_a_graph_runs_with_its_kernels_and_arrays_on_the_board(platform: str, tmp_path: Path) -> None:
    factory = relay.build(network(), target(platform))
    a, b = (RNG.normal(size=(1, 17)).astype("float32") for _ in range(2))
    with session(factory, platform, tmp_path) as board:
        graph = create_local_graph_executor(factory.get_graph_json(), board.get_system_lib(), board.device)
        graph.run(a=a, b=tvm.nd.array(b, board.device))
        found = graph.get_output(0).numpy()
    powers = np.exp(a + np.maximum(b, 0))
    np.testing.assert_allclose(found, powers / powers.sum(), rtol=1e-5)


def test_times_on_an_emulated_board_are_its_instructions_and_the_same_each_time(tmp_path: Path) -> None:
    def timed(count: int, board: Session) -> float:
        arrays = [tvm.nd.array(np.zeros(4096, "float32"), board.device) for _ in range(2)]
        evaluate = board.get_system_lib().time_evaluator(f"scale{count}", board.device, number=count, repeat=2)
        first, second = evaluate(*arrays).results
        assert first == pytest.approx(second, rel=0.01)
        return first

    a = te.placeholder((4096,), "float32", "a")
    b = te.compute((4096,), lambda i: a[i] * 3.0)
    schedule = te.create_schedule(b.op)
    module = tvm.build(schedule, [a, b], target("qemu"), name="scale4")
    with session(module, "qemu", tmp_path) as board:
        seconds = timed(4, board)
    assert 4096 * 1e-9 < seconds < 4096 * 20e-9  # a load, a product and a store at least, one nanosecond each


@pytest.mark.parametrize("platform", ["crt", *full("qemu")])
def test_an_ahead_of_time_program_is_one_function_on_the_board(platform: str, tmp_path: Path) -> None:
    factory = relay.build(network(), f"{target(platform)} -executor=aot")
    a, b = (RNG.normal(size=(1, 17)).astype("float32") for _ in range(2))
    with session(factory, platform, tmp_path) as board:
        arrays = [tvm.nd.array(values, board.device) for values in (a, b, np.zeros_like(a))]
        library = board.get_system_lib()
        library["tvmgen_default_run"](*arrays)
        powers = np.exp(a + np.maximum(b, 0))
        np.testing.assert_allclose(arrays[2].numpy(), powers / powers.sum(), rtol=1e-5)
        evaluate = library.time_evaluator(library.entry_name, board.device, number=3, repeat=2)
        assert all(0 < seconds < 1e-2 for seconds in evaluate(*arrays).results)


def test_functions_and_arrays_of_the_program(add: Session) -> None:
    values = np.arange(-3, 4, dtype="int8")
    there, result = tvm.nd.array(values, add.device), tvm.nd.empty((7,), "int8", add.device)
    add.get_system_lib()["add"](there, result)
    np.testing.assert_array_equal(result.numpy(), values + 3)
    np.testing.assert_array_equal(there.numpy(), values)
    with pytest.raises(AttributeError, match="missing"):
        add.get_system_lib()["missing"]


def test_what_the_function_refuses_comes_back_as_its_words(add: Session) -> None:
    there = tvm.nd.array(np.zeros(5, "int8"), add.device)
    with pytest.raises(RPCError, match=r"add.*\b5\b.*\b7\b|add.*\b7\b.*\b5\b"):
        add.get_system_lib()["add"](there, there)


def test_memory_that_the_board_lacks_is_refused_and_the_session_goes_on(add: Session) -> None:
    with pytest.raises(RPCError, match="no room for the array"):
        tvm.nd.empty((1 << 30,), "int8", add.device)
    blocks = [tvm.nd.empty((10 << 20,), "int8", add.device) for _ in range(6)]  # of 64 MiB
    kept = tvm.nd.array(np.arange(9, dtype="int8"), add.device)
    with pytest.raises(RPCError, match="no room for the array"):
        tvm.nd.empty((20 << 20,), "int8", add.device)
    del blocks[2:4]  # neighbours, which become one
    blocks.append(tvm.nd.empty((20 << 20,), "int8", add.device))
    np.testing.assert_array_equal(kept.numpy(), np.arange(9))


def test_more_arguments_than_a_board_takes_are_refused(add: Session) -> None:
    with pytest.raises(RPCError, match="too many arguments"):
        add.get_system_lib()["add"](*range(100))
    with pytest.raises(RPCError, match="too large for the board"):
        add._rpc.get_function("x" * 10000)
    assert tvm.nd.array(np.ones(3, "int8"), add.device).numpy().sum() == 3


def test_a_reset_ends_the_session(here: tuple[Path, Callable[[], Session]]) -> None:
    ends = pytest.raises(SessionTerminatedError, match="ended the session")
    with here[1]() as board, ends:
        board._rpc.get_function("tvm.testing.reset_server")()


def test_the_processes_of_a_session_end_with_it(here: tuple[Path, Callable[[], Session]]) -> None:
    program, opened = here
    with opened():
        assert str(program) in running()
    end = time.monotonic() + 5
    while str(program) in running() and time.monotonic() < end:
        time.sleep(0.01)
    assert str(program) not in running()


def running() -> str:
    """The commands of all processes."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            found.append(Path("/proc", entry, "cmdline").read_text() if entry.isdigit() else "")
        except OSError:
            continue
    return " ".join(found)


def test_what_a_template_refuses(tmp_path: Path) -> None:
    template = get_microtvm_template_projects("crt")
    factory = relay.build(network(), "c -runtime=c")
    with pytest.raises(ServerError, match="register with no system library"):
        generate_project(template, factory, tmp_path / "a")
    with pytest.raises(ValueError, match=r"\['borad'\] include non valid ProjectOptions.*verbose"):
        generate_project(template, factory, tmp_path / "b", {"borad": "x"})
    qemu = get_microtvm_template_projects("qemu")
    with pytest.raises(ValueError, match="the option board is 'uno'; it may be mps2_an386"):
        generate_project(qemu, factory, tmp_path / "c", {"board": "uno"})
    with pytest.raises(ValueError, match="platform zephyr is not supported; there are crt, qemu"):
        get_microtvm_template_projects("zephyr")
    with pytest.raises(ProjectAPIServerNotFoundError, match="No Project API server"):
        instantiate_from_dir(tmp_path)


def test_a_program_that_does_not_build_is_told_with_the_compilers_words(tmp_path: Path) -> None:
    factory = relay.build(network(), target("crt"))
    project = generate_project(get_microtvm_template_projects("crt"), factory, tmp_path / "project")
    (tmp_path / "project" / "main.c").write_text("int main(void) { return nothing; }")
    with pytest.raises(ServerError, match=r"does not build:[\s\S]*nothing"):
        project.build()
    with pytest.raises(Exception, match="generated project, not a template"):
        TemplateProject.from_directory(tmp_path / "project")


@pytest.mark.parametrize("platform", ["qemu", *full("crt")])
def test_autotvm_tunes_on_a_board(platform: str, tmp_path: Path) -> None:
    needed(platform)
    x, weight = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    function = relay.Function([x, weight], relay.nn.conv2d(x, weight, padding=(1, 1), channels=4, kernel_size=(3, 3)))
    (task,) = autotvm.task.extract_from_program(tvm.IRModule.from_expr(function), {}, target(platform))
    builder = autotvm.LocalBuilder(n_parallel=1, build_func=autotvm_build_func)
    loader = AutoTvmModuleLoader(get_microtvm_template_projects(platform), {})
    runner = autotvm.LocalRunner(number=1, repeat=1, timeout=60, module_loader=loader)
    log = str(tmp_path / "log")
    tuner = autotvm.tuner.RandomTuner(task)
    options = autotvm.measure_option(builder=builder, runner=runner)
    tuner.tune(n_trial=2, measure_option=options, callbacks=[autotvm.callback.log_to_file(log)])
    runner.close()
    builder.close()
    costs = [json.loads(line)["result"][0][0] for line in Path(log).read_text().splitlines()]
    assert len(costs) == 2 and all(0 < cost < 1e-2 for cost in costs)


def test_a_line_that_says_nothing_ends_the_session_in_time(tmp_path: Path) -> None:
    factory = relay.build(network(), target("crt"))
    project = generate_project(get_microtvm_template_projects("crt"), factory, tmp_path / "project")
    (tmp_path / "project" / "main.c").write_text("#include <unistd.h>\nint main(void) { sleep(60); return 0; }")
    (tmp_path / "project" / "Makefile").write_text("build/main: main.c\n\tmkdir -p build; cc main.c -o build/main\n")
    project.build()
    limits = tvm.micro.transport.TransportTimeouts(0, 0.2, 0.2)
    silent = Session(project.transport(), timeout_override=limits)
    with pytest.raises(TVMError, match=r"not answered for 0\.2 seconds"), silent:
        pass
