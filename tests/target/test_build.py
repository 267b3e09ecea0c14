"""``tvm.build``: inputs, modules, files, cross targets, sources."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.target.codegen_helpers import TARGETS, elementwise, function, module

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import TilewrightError, UnsupportedError
from tilewright.target.build import ModuleBuilder
from tilewright.tir import For, ForKind, Load, Store, Var, decl_buffer
from tilewright.tir import op as T

INCLUDE = Path(__file__).resolve().parents[2] / "native" / "include"
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O3"]


def vector_add():  # type: ignore[no-untyped-def]
    n = te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[0], factor=64)
    s[c].parallel(outer)
    s[c].vectorize(inner)
    return s, [a, b, c]


def check_add(func: object, n: int = 1000) -> None:
    x, y = (np.random.default_rng(i).standard_normal(n).astype("float32") for i in range(2))
    out = tvm.nd.array(np.zeros(n, "float32"))
    func(tvm.nd.array(x), tvm.nd.array(y), out)  # type: ignore[operator]
    np.testing.assert_array_equal(out.numpy(), x + y)


@pytest.mark.parametrize("target", TARGETS)
def test_a_schedule(target: str) -> None:
    s, args = vector_add()
    built = tvm.build(s, args, target, name="add")
    assert built.type_key == target.split()[0]
    for n in (1, 63, 64, 1000):
        check_add(built, n)
    check_add(built["add"])


def test_the_current_target_is_the_default() -> None:
    s, args = vector_add()
    with tvm.target.Target("c"):
        assert tvm.build(s, args).type_key == "c"
    assert tvm.build(s, args).type_key == "llvm"


def test_a_lowered_module_and_a_function() -> None:
    s, args = vector_add()
    lowered = tvm.lower(s, args, name="add")
    check_add(tvm.build(lowered, target="llvm")["add"])
    check_add(tvm.build(lowered["add"], target="llvm")["add"])


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_many_functions_the_first_is_the_entry(target: str) -> None:
    funcs = [elementwise(lambda x, k=k: x + float(k), ["float32"], "float32", 4, name=f"add{k}") for k in range(20)]
    built = tvm.build({target: module(*funcs)})
    out = tvm.nd.array(np.zeros(4, "float32"))
    for k in range(20):
        built[f"add{k}"](tvm.nd.array(np.zeros(4, "float32")), out)
        np.testing.assert_array_equal(out.numpy(), k)
    built(tvm.nd.array(np.ones(4, "float32")), out)
    np.testing.assert_array_equal(out.numpy(), 1)


def test_functions_for_two_targets() -> None:
    one = elementwise(lambda x: x + 1.0, ["float32"], "float32", 4, name="one")
    two = elementwise(lambda x: x + 2.0, ["float32"], "float32", 4, name="two")
    built = tvm.build({"llvm": module(one), "c": module(two)})
    assert [m.type_key for m in built.imported_modules] == ["c"]
    out = tvm.nd.array(np.zeros(4, "float32"))
    built.get_function("two", query_imports=True)(tvm.nd.array(np.zeros(4, "float32")), out)
    np.testing.assert_array_equal(out.numpy(), 2)


def test_code_lives_as_long_as_a_function_of_it() -> None:
    s, args = vector_add()
    func = tvm.build(s, args, "llvm", name="add")["add"]
    check_add(func)


def test_equal_input_gives_equal_code() -> None:
    s, args = vector_add()
    first, second = (tvm.build(s, args, "llvm", name="add") for _ in range(2))
    assert first.get_source("ll") == second.get_source("ll")
    assert first.compiled_code.objects() == second.compiled_code.objects()  # type: ignore[union-attr]


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_an_exported_library_runs(target: str, tmp_path: Path) -> None:
    s, args = vector_add()
    path = tmp_path / "add.so"
    tvm.build(s, args, target, name="add").export_library(str(path))
    loaded = tvm.runtime.load_module(str(path))
    check_add(loaded["add"])
    check_add(loaded)
    symbols = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True)
    assert "TVM" not in symbols.stdout


def test_sources_and_files(tmp_path: Path) -> None:
    s, args = vector_add()
    built = tvm.build(s, args, "llvm", name="add")
    assert 'define i32 @"add"' in built.get_source("ll")
    assert "add:" in built.get_source("asm")
    starts = {"o": b"\x7fELF", "bc": b"BC", "ll": b";", "s": b"\t"}
    for suffix, start in starts.items():
        path = tmp_path / f"add.{suffix}"
        built.save(str(path))
        assert path.read_bytes().startswith(start)
    with pytest.raises(TilewrightError, match=r"\.xyz"):
        built.save(str(tmp_path / "add.xyz"))


@pytest.mark.parametrize("suffix", ["ll", "bc", "o"])
def test_a_saved_module_is_loaded(suffix: str, tmp_path: Path) -> None:
    s, args = vector_add()
    path = tmp_path / f"add.{suffix}"
    tvm.build(s, args, "llvm", name="add").save(str(path))
    loaded = tvm.runtime.load_module(path)
    check_add(loaded["add"])
    check_add(loaded)
    check_add(tvm.runtime.load_module(loaded.export_library(tmp_path / "add.so"))) if suffix != "o" else None


def test_llvm_ir_is_loaded_where_nothing_was_compiled_before(tmp_path: Path) -> None:
    s, args = vector_add()
    tvm.build(s, args, "llvm", name="add").save(str(tmp_path / "add.ll"))
    program = (
        "from tilewright import runtime\n"
        f"print(runtime.load_module({str(tmp_path / 'add.ll')!r}).implements_function('add'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.ll", "nonsense", r"cannot load .*x\.ll: it is no LLVM IR"),
        ("x.bc", "nonsense", r"cannot load .*x\.bc: it is no LLVM IR"),
        ("x.ll", "define i32 @f() { ret i32 0 }", "defines no function with the signature of a packed function"),
        ("x.ll", 'target triple = "riscv64-unknown-linux-gnu"', "is for riscv64-unknown-linux-gnu, and this machine"),
        ("missing.ll", None, "cannot load .*missing.ll: No such file"),
    ],
)
def test_files_that_are_no_module_are_refused(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(TilewrightError, match=message):
        tvm.runtime.load_module(tmp_path / name)


def test_a_saved_object_is_complete(tmp_path: Path) -> None:
    s, args = vector_add()
    tvm.build(s, args, "llvm", name="add").save(str(tmp_path / "add.o"))
    library = tmp_path / "add.so"
    subprocess.run(["cc", "-shared", "-Wl,--no-undefined", "-o", library, tmp_path / "add.o", "-lm"], check=True)
    check_add(tvm.runtime.load_module(str(library))["add"])


@pytest.mark.parametrize(
    ("target", "machine"),
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", 183),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", 40),
        ("llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+m,+a,+f,+d", 243),
    ],
)
def test_cross_targets_give_objects_and_refuse_to_run_here(target: str, machine: int) -> None:
    s, args = vector_add()
    built = tvm.build(s, args, target, name="add")
    for data in built.compiled_code.objects():  # type: ignore[union-attr]
        assert data[:4] == b"\x7fELF"
        assert int.from_bytes(data[18:20], "little") == machine
    with pytest.raises(tvm.TVMError, match=r"add was compiled for .*and this machine is .*export the library"):
        check_add(built)


def test_missing_processor_features_are_named() -> None:
    from tilewright.target.codegen.llvm.code import LLVMCode
    from tilewright.target.features import features

    target = "llvm -mattr=+avx512fp16,+amx-tile" if not features("llvm").has("amx-tile") else "llvm -mattr=+xop"
    s, args = vector_add()
    built = tvm.build(s, args, target + " -mcpu=x86-64", name="add")
    assert isinstance(built.compiled_code, LLVMCode)
    with pytest.raises(tvm.TVMError, match=r"this machine lacks .*(amx-tile|xop)"):
        check_add(built)


def test_needed_features_are_in_the_artifact(tmp_path: Path) -> None:
    s, args = vector_add()
    path = tmp_path / "add.so"
    tvm.build(s, args, "llvm -mcpu=core-avx2", name="add").export_library(str(path))
    assert b"avx2" in path.read_bytes()


def test_errors() -> None:
    s, args = vector_add()
    with pytest.raises(UnsupportedError, match="no code generator for the target kind 'rocm'"):
        tvm.build(s, args, "rocm")
    with pytest.raises(TilewrightError, match="empty"):
        tvm.build({})
    one = elementwise(lambda x: x + 1.0, ["float32"], "float32", 4, name="one")
    builder = ModuleBuilder("llvm")
    builder.add(one)
    with pytest.raises(TilewrightError, match="two functions named one"):
        builder.add(one)


def test_a_missing_c_compiler_is_reported_when_the_code_is_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tilewright.runtime.compilers._has_ziglang", lambda: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    s, args = vector_add()
    built = tvm.build(s, args, "c", name="add")
    assert "TVM_DLL int32_t add(" in built.get_source()
    with pytest.raises(tvm.TVMError, match=r"add cannot run: .*C compiler"):
        check_add(built)


def tiled_product():  # type: ignore[no-untyped-def]
    m, n, k = 37, 48, 29
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((m, n), lambda i, j: te.max(c[i, j] * 0.5, 0.0) + te.exp(-c[i, j]), name="D")
    s = te.create_schedule(d.op)
    outer, inner = s[d].split(d.op.axis[0], factor=4)
    s[c].compute_at(s[d], outer)
    s[d].parallel(outer)
    s[d].vectorize(s[d].split(d.op.axis[1], factor=16)[1])
    s[c].vectorize(s[c].split(c.op.axis[1], factor=16)[1])
    s[d].unroll(inner)
    return s, [a, b, d]


@pytest.mark.parametrize("target", [*TARGETS, "llvm -mcpu=core-avx2"])
def test_a_fused_product_with_remainders(target: str) -> None:
    s, args = tiled_product()
    func = tvm.build(s, args, target, name="product")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((37, 29)).astype("float32"), rng.standard_normal((29, 48)).astype("float32")
    out = tvm.nd.array(np.zeros((37, 48), "float32"))
    func(tvm.nd.array(x), tvm.nd.array(y), out)
    c = x.astype("float64") @ y
    np.testing.assert_allclose(out.numpy(), np.maximum(c * 0.5, 0) + np.exp(-c), rtol=1e-4, atol=1e-5)


def test_c_source_begins_with_its_target_as_tvms_does() -> None:
    source = tvm.build(*vector_add(), "c", name="add").get_source()
    assert source.splitlines()[0] == "// tvm target: c -keys=cpu -link-params=0"


def test_code_in_c_says_nothing_when_the_interpreter_ends() -> None:
    program = (
        "import numpy as np, tilewright as tvm\n"
        "from tilewright import te\n"
        "a = te.placeholder((3,), name='a')\n"
        "b = te.compute((3,), lambda i: a[i] + 1.0, name='b')\n"
        "class Keeper: pass\n"
        "keeper = Keeper(); keeper.me = keeper\n"
        "keeper.built = tvm.build(te.create_schedule(b.op), [a, b], 'c')\n"
        "keeper.built(tvm.nd.array(np.zeros(3, 'float32')), tvm.nd.empty((3,)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _c_samples():  # type: ignore[no-untyped-def]
    yield tvm.build(*vector_add(), "c", name="add")
    yield tvm.build(*tiled_product(), "c", name="product")
    yield tvm.build(*vector_add(), "c -system-lib", name="add")
    dtypes = [
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "bfloat16",
        "float64",
        "bool",
    ]
    funcs = [
        elementwise(
            lambda x, d=d: T.if_then_else(x > x, x, x) if d == "bool" else T.maximum(x + x, x * x),
            [d],
            d,
            8,
            name=f"f_{d}",
        )
        for d in dtypes
    ]
    yield tvm.build({"c": module(*funcs)})
    a, i = decl_buffer((4,), "float32", "A"), Var("i", "int32")
    value = (
        T.tanh(Load("float32", a.data, i)) + T.sigmoid(Load("float32", a.data, i)) + T.floor(Load("float32", a.data, i))
    )
    yield tvm.build({"c": module(function("math", [a], For(i, 0, 4, ForKind.PARALLEL, Store(a.data, value, i))))})


def test_c_source_compiles_without_a_warning(tmp_path: Path) -> None:
    for number, built in enumerate(_c_samples()):
        path = tmp_path / f"source{number}.c"
        built.save(str(path))
        done = subprocess.run(
            ["gcc", *WARNINGS, f"-I{INCLUDE}", "-c", "-o", tmp_path / "out.o", path], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_c_source_is_c_plus_plus_too(tmp_path: Path) -> None:
    built = tvm.build(*tiled_product(), "c", name="product")
    path = tmp_path / "source.cc"
    path.write_text(built.get_source())
    command = [
        "g++",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        f"-I{INCLUDE}",
        "-c",
        "-o",
        str(tmp_path / "out.o"),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("kind", "pieces"), [("llvm", "one object"), ("llvm", "objects"), ("c", "one object")])
def test_a_system_library_registers_itself_with_the_program(tmp_path: Path, kind: str, pieces: str) -> None:
    from tilewright.runtime._ffi import find_library

    name = f"system_add_{kind}_{pieces.replace(' ', '_')}"
    s, args = vector_add()
    built = tvm.build(s, args, f"{kind} -system-lib", name=name)
    check_add(built)  # in this process it is a module like any other
    files = [tmp_path / "add.o"]
    if pieces == "one object":
        built.save(str(files[0]))
    else:
        files = [tmp_path / f"add{i}.o" for i in range(9)]
        objects = built.compiled_code.objects()  # type: ignore[union-attr]
        files = files[: len(objects)]
        for file, data in zip(files, objects, strict=True):
            file.write_bytes(data)
    program = tmp_path / "program.so"
    subprocess.run(["cc", "-shared", "-o", program, *files, str(find_library())], check=True)
    ctypes.CDLL(str(program))
    check_add(tvm.get_global_func("runtime.SystemLib")()[name])


@pytest.mark.parametrize("kind", ["llvm", "c"])
def test_an_exported_system_library_loads_beside_the_runtime_that_it_calls(kind: str, tmp_path: Path) -> None:
    program = (
        "import numpy as np, tilewright as tvm\n"
        "from tilewright import te\n"
        "a = te.placeholder((3,), name='a')\n"
        "b = te.compute((3,), lambda i: a[i] * 2, name='b')\n"
        f"tvm.build(te.create_schedule(b.op), [a, b], '{kind} -system-lib', name='twice').export_library('twice.so')\n"
        "loaded = tvm.runtime.load_module('twice.so')\n"
        "for f in (loaded['twice'], tvm.runtime.system_lib()['twice']):\n"
        "    x, y = tvm.nd.array(np.arange(3.0, dtype='float32')), tvm.nd.array(np.zeros(3, 'float32'))\n"
        "    f(x, y)\n"
        "    np.testing.assert_array_equal(y.numpy(), [0, 2, 4])\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def _call_of(name: str) -> tvm.IRModule:
    """``f(A)``: A[0] = name(A[0])."""
    data = decl_buffer((1,), "float64", "A")
    store = Store(data.data, T.call_extern("float64", name, Load("float64", data.data, 0)), 0)
    return module(tvm.tir.PrimFunc([data], store).with_attr("global_symbol", "f"))


def test_code_may_call_what_only_the_exported_library_is_linked_with(tmp_path: Path) -> None:
    built = tvm.build(_call_of("tw_of_another_library"), target="llvm")
    value = tvm.nd.array(np.array([20.0]))
    with pytest.raises(tvm.TVMError, match=r"f cannot run here: f calls tw_of_another_library, which is not in this"):
        built["f"](value)
    source, library = tmp_path / "other.c", tmp_path / "f.so"
    source.write_text("double tw_of_another_library(double x) { return x + 1; }\n")
    built.export_library(str(library), options=[str(source)])
    tvm.runtime.load_module(str(library))["f"](value)
    assert value.numpy()[0] == 21


def test_first_code_of_a_process_may_call_the_c_library() -> None:
    program = (
        "import numpy as np, tilewright as tvm\n"
        "from tilewright import te, topi\n"
        "a, b = te.placeholder((3,), name='a'), te.placeholder((3,), name='b')\n"
        "c = topi.power(a, b)\n"
        "power = tvm.build(te.create_schedule(c.op), [a, b, c], 'llvm')\n"
        "arrays = [tvm.nd.array(np.array(v, 'float32')) for v in ([1, 2, 3], [2.5, 2.5, 2.5], [0, 0, 0])]\n"
        "power(*arrays)\n"
        "np.testing.assert_allclose(arrays[2].numpy(), np.array([1, 2, 3]) ** 2.5, rtol=1e-5)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
