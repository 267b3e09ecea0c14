"""Kinds of targets are registered, by whoever has one; tags stand for whole targets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest
from tests.target.codegen_helpers import elementwise, module

import tilewright as tvm
from tilewright.auto_scheduler.task import HardwareParams
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.runtime import plugins
from tilewright.target import BlockLimits, Capabilities, Target, kind, list_tags, register_tag, register_target_kind
from tilewright.target.target import TAGS


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kind, "_kinds", dict(kind._kinds))
    monkeypatch.setattr(plugins, "_loaded", set())
    tags = dict(TAGS)
    yield
    TAGS.clear()
    TAGS.update(tags)


def test_a_registered_kind_has_options_keys_and_a_device() -> None:
    made = register_target_kind(
        "dsp",
        default_keys=["dsp", "accel"],
        options={"lanes": int, "clock": float, "units": list, "fast": bool},
        defaults={"lanes": "16", "units": "mul,add"},
        device=12,
    )
    dsp = Target("dsp -fast -clock=1.5 -model=small")
    assert dsp.kind is made
    assert dsp.keys == ("dsp", "accel")
    assert dsp.attrs == {"lanes": 16, "units": ("mul", "add"), "fast": True, "clock": 1.5, "model": "small"}
    assert dsp.device_type == 12
    assert str(dsp) == "dsp -keys=dsp,accel -clock=1.5 -fast=1 -lanes=16 -model=small -units=mul,add"
    assert Target(str(dsp)) == dsp == Target(dsp.export())
    assert Target({"kind": "dsp", "lanes": 4}).attrs["lanes"] == 4
    assert "dsp" in Target.list_kinds()


def test_the_name_is_the_key_and_the_device_a_cpu_unless_it_is_said() -> None:
    register_target_kind("plain")
    assert str(Target("plain")) == "plain -keys=plain"
    assert Target("plain").device_type == 1


def test_what_kinds_there_are_is_told_by_their_attributes() -> None:
    llvm = Target("llvm").kind
    assert (llvm.name, llvm.default_keys, llvm.device_type) == ("llvm", ("cpu",), 1)
    assert llvm.options["mcpu"] is str
    assert llvm.defaults == {"link-params": False}
    assert Target("nvptx").kind.device_type == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "llvm"}, "there is a target kind 'llvm' already; pass override=True"),
        ({"name": "two words"}, "'two words' cannot be the name of a target kind"),
        ({"name": ""}, "'' cannot be the name"),
        ({"name": "-x"}, "'-x' cannot be the name"),
        ({"name": "x", "options": {"shape": tuple}}, "option -shape of target kind 'x': the types are str, int"),
        ({"name": "x", "options": {"n": int}, "defaults": {"n": "many"}}, "option -n of target kind 'x' takes int"),
        ({"name": "x", "options": {"lanes": int}, "defaults": {"lane": 1}}, "no option -lane .did you mean -lanes"),
    ],
)
def test_what_cannot_be_registered(arguments: dict[str, object], message: str) -> None:
    before = dict(kind._kinds)
    with pytest.raises(TilewrightError, match=message):
        register_target_kind(**arguments)  # type: ignore[arg-type]
    assert kind._kinds == before


def test_a_kind_is_replaced_where_that_is_meant() -> None:
    register_target_kind("dsp", options={"lanes": int})
    register_target_kind("dsp", options={"rows": int}, override=True)
    assert Target("dsp -rows=3").attrs == {"rows": 3}


@pytest.mark.parametrize("given", ["dsp -fast=maybe", {"kind": "dsp", "libs": {"a": "b"}}, "dsp -n=1.5"])
def test_values_of_the_wrong_type_are_refused(given: object) -> None:
    register_target_kind("dsp", options={"fast": bool, "n": int})
    with pytest.raises(TilewrightError, match="of target kind 'dsp' takes "):
        Target(given)  # type: ignore[arg-type]


# ---- installed packages ----


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Makes a function the entry point of a package."""

    def add(register: Callable[[], object]) -> None:
        package = ModuleType("a_package_with_a_target")
        package.register = register  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, package.__name__, package)
        entry = EntryPoint("dsp", f"{package.__name__}:register", kind.GROUP)
        monkeypatch.setattr(
            "importlib.metadata.entry_points", lambda group: EntryPoints([entry] if group == kind.GROUP else [])
        )

    return add


def test_a_package_brings_its_kind_when_that_is_asked_for(install: Callable[[Callable[[], object]], None]) -> None:
    calls = []

    def register() -> None:
        calls.append(1)
        register_target_kind("dsp")

    install(register)
    Target("llvm")
    assert calls == []
    for _ in range(2):
        assert Target("dsp").kind.name == "dsp"
    with pytest.raises(TilewrightError, match=r"unknown target kind 'nothing'; there is llvm, .*dsp"):
        Target("nothing")
    assert calls == [1]


def test_kinds_are_listed_with_those_of_packages(install: Callable[[Callable[[], object]], None]) -> None:
    install(lambda: register_target_kind("dsp"))
    assert Target.list_kinds()[-1] == "dsp"


def test_a_package_brings_the_code_generator_of_a_known_kind(
    install: Callable[[Callable[[], object]], None],
) -> None:
    name = "target.build.hybrid"
    made = tvm.runtime.create_module("made", {}.get)
    install(lambda: tvm.register_func(name, lambda mod, target: made))
    try:
        func = elementwise(lambda x: x, ["float32"], "float32", 3)
        assert tvm.build({"hybrid": module(func)}).type_key == "made"
    finally:
        tvm.runtime.remove_global_func(name)


def test_a_package_that_fails_is_a_warning_and_the_kind_unknown(
    install: Callable[[Callable[[], object]], None],
) -> None:
    def register() -> None:
        raise OSError("no such board")

    install(register)
    with (
        pytest.warns(RuntimeWarning, match=r"plug-in 'dsp' \(a_package_with_a_target:register\).*no such board"),
        pytest.raises(TilewrightError, match="unknown target kind 'dsp'"),
    ):
        Target("dsp")
    assert Target("llvm").kind.name == "llvm"


# ---- tags ----


def test_a_tag_stands_for_a_target() -> None:
    board = register_tag("acme/board", {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    assert Target("acme/board") == board
    assert (board.mcpu, board.tag) == ("cortex-a72", "acme/board")
    assert Target(str(board)) == board == Target(board.export())
    assert list_tags()["acme/board"] == board
    assert Target("cuda", host="acme/board").host == board
    with pytest.raises(TilewrightError, match=r"'acme/board' stands for .* already; pass override=True"):
        register_tag("acme/board", {"kind": "c"})
    assert register_tag("acme/board", {"kind": "c"}, override=True).kind.name == "c"
    with pytest.raises(TilewrightError, match="unknown target kind 'nothing'"):
        register_tag("acme/other", {"kind": "nothing"})
    assert "acme/other" not in list_tags()


def test_known_boards_have_tags() -> None:
    nano = Target("nvidia/jetson-nano")
    assert (nano.kind.name, nano.attrs["arch"], nano.attrs["registers_per_block"]) == ("cuda", "sm_53", 32768)
    assert nano.thread_warp_size == 32


# ---- options that name what is not done ----


@pytest.mark.parametrize("name", ["llvm", "c"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-runtime=rust", r"option -runtime=rust of \w+: there are c\+\+, and c"),
        ("-interface-api=rust", "option -interface-api=rust .* there are packed and c"),
        ("-workspace-byte-alignment=128", "workspaces are aligned to 64 bytes"),
        ("-workspace-byte-alignment=48", "-workspace-byte-alignment=48 of .*: expected a power of two"),
        ("-mtriple=armv7l-linux-gnueabihf -mattr=+neon -mfloat-abi=soft", "triple armv7l-linux-gnueabihf says hard"),
    ],
)
def test_options_without_effect_are_refused(name: str, option: str, message: str) -> None:
    if name == "c" and "mfloat-abi" in option:
        message = "target kind 'c' has no option -mfloat-abi"
    func = elementwise(lambda x: x + 1.0, ["float32"], "float32", 3)
    with pytest.raises((UnsupportedError, TilewrightError), match=message):
        tvm.build({f"{name} {option}": module(func)})


@pytest.mark.parametrize(
    "option",
    [
        "-runtime=c++",
        "-runtime=c",
        "-unpacked-api=0",
        "-interface-api=c",
        "-interface-api=packed",
        "-workspace-byte-alignment=16",
        "-link-params=1",
    ],
)
def test_options_that_ask_for_what_is_done_anyway_are_taken(option: str) -> None:
    func = elementwise(lambda x: x + 1.0, ["float32"], "float32", 3)
    assert tvm.build({f"llvm {option}": module(func)}).implements_function("f")


def test_a_kind_can_nothing_special_unless_it_says_so() -> None:
    assert register_target_kind("plain").capabilities == Capabilities()


def test_a_kind_of_a_package_has_the_capabilities_that_it_states() -> None:
    able = Capabilities(threads=True, warp_shuffles=True, block=BlockLimits(96, 1 << 10, warp=16, virtual_threads=3))
    register_target_kind("simt", default_keys=["simt", "gpu"], capabilities=able)
    found = HardwareParams(target="simt")
    assert (found.max_threads_per_block, found.max_shared_memory_per_block) == (96, 1 << 10)
    assert (found.warp_size, found.max_vthread_extent, found.num_cores) == (16, 3, -1)


def test_a_device_given_by_number_is_called_as_its_kind() -> None:
    assert register_target_kind("numbered", device=70).device_name == "numbered"


@pytest.mark.parametrize(("text", "name"), [("llvm", "cpu"), ("c", "cpu"), ("nvptx", "cuda"), ("opencl", "opencl")])
def test_a_kind_knows_the_device_that_runs_its_code(text: str, name: str) -> None:
    assert Target(text).kind.device_name == name
