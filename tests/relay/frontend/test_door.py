"""Front ends are found by file suffix and by the type of an object; packages add theirs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.frontend import door
from tilewright.relay.frontend.door import FrontEndError, frontend_of, import_model, register_frontend
from tilewright.runtime import plugins

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


class Doubling:
    """A network of a framework of the tests."""

    size = 3


class FlatDoubling(Doubling):
    size = 1


def load_doubling(source: Any, shape: dict[str, Any] | None = None) -> tuple[tvm.IRModule, dict[str, Any]]:
    size = source.size if isinstance(source, Doubling) else int(Path(source).read_text())
    x = relay.var("x", shape=(shape or {}).get("x", (size,)))
    factor = relay.var("factor", shape=())
    mod = tvm.IRModule.from_expr(relay.Function([x, factor], x * factor))
    return mod, {"factor": np.float32(2.0)}


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(door, "_front_ends", {"onnx": door._front_ends["onnx"]})
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setattr(plugins, "_failures", {})
    return


def _install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    entries = EntryPoints(EntryPoint(f"e{i}", v, door.GROUP) for i, v in enumerate(values))
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries.select(group=group))


def register() -> None:
    """What an entry point of the tests names."""
    register_frontend("doubling", load_doubling, suffixes=[".dbl"], types=[Doubling])


def register_broken() -> None:
    raise ImportError("no module named libdoubling")


def test_onnx_files_and_models_come_by_the_door() -> None:
    by_path, weights = import_model(DIGITS)
    expected, _ = relay.frontend.from_onnx(str(DIGITS))
    assert tvm.ir.structural_equal(by_path, expected)
    assert weights
    import onnx

    assert frontend_of(onnx.load(str(DIGITS))).name == "onnx"


def test_a_registered_front_end_reads_files_of_its_suffix(tmp_path: Path) -> None:
    register()
    (tmp_path / "net.DBL").write_text("4")
    mod, params = import_model(tmp_path / "net.DBL")
    assert [int(d) for d in mod["main"].params[0].type_annotation.shape] == [4]
    assert params == {"factor": 2.0}


def test_objects_are_known_by_the_nearest_class() -> None:
    register()
    flat = register_frontend("flat", load_doubling, types=[f"{__name__}.FlatDoubling"])
    assert frontend_of(FlatDoubling()) is flat
    assert frontend_of(Doubling()).name == "doubling"


def test_the_longest_suffix_wins() -> None:
    register_frontend("packed", load_doubling, suffixes=[".gz"])
    longer = register_frontend("doubling", load_doubling, suffixes=[".dbl.gz"])
    assert frontend_of("a.dbl.gz") is longer


def test_a_front_end_is_named_for_a_file_of_another_suffix(tmp_path: Path) -> None:
    renamed = tmp_path / "digits.xyz"
    renamed.write_bytes(DIGITS.read_bytes())
    mod, _ = import_model(renamed, frontend="onnx")
    assert tvm.ir.structural_equal(mod, import_model(DIGITS)[0])


def test_a_front_end_of_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(FrontEndError, match="no front end is called 'tflite'; there is onnx"):
        import_model(DIGITS, frontend="tflite")


def test_override_takes_over_a_suffix() -> None:
    other = register_frontend("other", load_doubling, suffixes=[".onnx"], override=True)
    assert frontend_of("a.onnx") is other


def test_a_file_without_a_suffix_is_read_as_onnx() -> None:
    assert frontend_of("folder.d/model").name == "onnx"


def test_compile_takes_what_a_front_end_takes() -> None:
    register()
    model = tvm.compile(Doubling(), input_shapes={"x": (2,)})
    np.testing.assert_array_equal(model(np.float32([1, 3])), np.float32([2, 6]))


def test_a_package_is_asked_when_nothing_known_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, f"{__name__}:register")
    assert frontend_of("a.dbl").name == "doubling"


def test_a_known_suffix_loads_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, f"{__name__}:register_broken")
    frontend_of("a.onnx")
    assert not plugins.plugin_failures(door.GROUP)


def test_an_unknown_suffix_lists_what_is_known_and_how_to_add_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, f"{__name__}:register")
    with pytest.raises(FrontEndError) as raised:
        frontend_of("a.xyz")
    assert str(raised.value) == (
        "a.xyz: no front end reads files that end in '.xyz'; known are .onnx (onnx), .dbl (doubling). "
        "Name one (--frontend, frontend=) for a file of another suffix; a package adds others under the entry-point "
        "group tilewright.frontends (docs/frontends.md)"
    )


def test_an_object_of_an_unknown_type_lists_what_is_known() -> None:
    with pytest.raises(FrontEndError, match=r"no front end takes a builtins.int; known are onnx\.onnx_ml_pb2\."):
        import_model(3)


def test_a_broken_package_is_named_in_the_error(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    _install(monkeypatch, f"{__name__}:register_broken")
    with pytest.raises(FrontEndError, match=r"'e0' \(.*:register_broken\) of the package .* ImportError: no mod"):
        frontend_of("a.dbl")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda source: 1 / 0, "the front end bad of .* failed on a.bad: ZeroDivisionError"),
        (lambda source: None, "returned NoneType; expected a module and parameters"),
        (lambda source: (1, {}), "returned int and dict; expected an IRModule and a mapping"),
    ],
)
def test_a_front_end_that_is_wrong_is_named(made: Any, message: str) -> None:
    register_frontend("bad", made, suffixes=[".bad"])
    with pytest.raises(FrontEndError, match=message):
        import_model("a.bad")


def test_an_error_of_the_model_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(relay.frontend.onnx.importer.OnnxImportError, match="no such file"):
        import_model(tmp_path / "none.onnx")


def test_options_that_a_front_end_does_not_take_are_refused() -> None:
    register()
    with pytest.raises(FrontEndError, match=r"doubling of .* does not take dims; it takes shape"):
        import_model(Doubling(), dims={"n": 3})
    import_model(Doubling(), dims=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "onnx", "suffixes": [".x"]}, "want the same"),
        ({"name": "x", "suffixes": [".ONNX"]}, r"onnx \(.onnx, .*want the same; override=True replaces"),
        ({"name": "x", "types": [Doubling]}, "want the same"),
        ({"name": "x"}, "takes suffixes such as '.x', or types"),
        ({"name": "x", "suffixes": ["x"]}, "takes suffixes such as '.x'"),
        ({"name": "x", "suffixes": ".x"}, "suffixes and types are lists"),
    ],
)
def test_what_cannot_be_registered_is_said(arguments: dict[str, Any], message: str) -> None:
    register()
    with pytest.raises(FrontEndError, match=message):
        register_frontend(load=load_doubling, **arguments)


def test_a_folder_of_no_front_end_is_refused(tmp_path: Path) -> None:
    register_frontend("kit", load_doubling, suffixes=[".kit"], folders=["kit.json"])
    with pytest.raises(FrontEndError, match=r"no front end reads this folder; one would that holds .*kit.json \(kit\)"):
        frontend_of(tmp_path)
