"""What is known of a target's processor."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.ir.errors import TilewrightError
from tilewright.target import Target, features
from tilewright.target.features import _ARM_CPUS, _X86_CPUS, host_features
from tilewright.target.processors import families


def test_llvm_means_this_machine() -> None:
    host = features("llvm")
    assert host.is_host
    assert host.cpu not in ("", "generic")
    assert host.l1_bytes >= 8 << 10
    assert host.l2_bytes >= host.l1_bytes
    assert host.lanes(32) * 32 == host.vector_bits


@pytest.mark.parametrize(
    ("target", "arch", "bits", "registers", "fma"),
    [
        ("llvm -mcpu=x86-64", "x86", 128, 16, False),
        ("llvm -mcpu=core-avx2", "x86", 256, 16, True),
        ("llvm -mcpu=sandybridge", "x86", 256, 16, False),
        ("llvm -mcpu=skylake-avx512", "x86", 512, 32, True),
        ("llvm -mcpu=skylake-avx512 -mattr=-avx512f", "x86", 256, 16, True),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "aarch64", 128, 32, True),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", "arm", 128, 16, False),
        ("llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+m,+f,+d,+v", "riscv", 128, 32, True),
    ],
)
def test_vector_units(target: str, arch: str, bits: int, registers: int, fma: bool) -> None:
    found = features(target)
    assert (found.arch, found.vector_bits, found.vector_registers, found.has_fma) == (arch, bits, registers, fma)
    assert not found.is_host


@pytest.mark.parametrize(
    ("cpu", "halves"), [("znver1", True), ("znver3", False), ("znver4", True), ("znver4 -mattr=-avx512f", False)]
)
def test_which_processors_compute_their_vectors_in_halves(cpu: str, halves: bool) -> None:
    assert features(f"llvm -mcpu={cpu}").halves_vectors is halves


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ("llvm -mcpu=znver4", "Zen 4"),
        ("llvm -mcpu=sapphirerapids", "Sapphire Rapids"),
        ("llvm -mcpu=skylake-avx512", "Intel server"),
        ("llvm -mcpu=core-avx2", "Intel client"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=apple-m1", "Apple"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "Neoverse"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "default"),
        ("llvm -mcpu=x86-64-v3", "default"),
    ],
)
def test_the_record_of_a_processor_is_that_of_its_family(target: str, family: str) -> None:
    assert features(target).processor.name == family


def test_a_processor_that_is_named_is_the_same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even on one of that name, whose caches may have other sizes."""
    zen4 = features("llvm -mcpu=znver4")
    assert (zen4.l1_bytes, zen4.l2_bytes, zen4.l3_bytes, zen4.cores) == (32 << 10, 1 << 20, 32 << 20, 4)
    assert features("llvm -mcpu=haswell").l2_bytes == 512 << 10
    processors = sys.modules["tilewright.target.features"]
    monkeypatch.setattr(processors, "_host_cpu", lambda: ("znver4", zen4.names, ""))
    monkeypatch.setattr(processors, "_host_caches", lambda: (1, 2, 3))
    fresh = processors._features.__wrapped__  # without what was found before
    assert fresh("llvm -mcpu=znver4", None) == zen4
    assert fresh("llvm -mcpu=haswell", None) == features("llvm -mcpu=haswell")
    assert fresh("llvm", None).l2_bytes == 2


@pytest.mark.parametrize(
    ("says", "has", "name"),
    [
        ("rocketlake", ("amx-tile", "avx512f"), "sapphirerapids"),  # seen in a virtual machine
        ("x86-64-v4", ("amx-tile",), "sapphirerapids"),
        ("rocketlake", ("avx512f",), "rocketlake"),
        ("graniterapids", ("amx-tile",), "graniterapids"),  # of the family
        ("one-of-next-year", ("amx-tile",), "one-of-next-year"),
        ("znver5", ("avx512f",), "znver5"),
    ],
)
def test_features_tell_a_processor_that_hides_behind_an_older_name(says: str, has: tuple[str, ...], name: str) -> None:
    assert sys.modules["tilewright.target.features"]._named(says, has) == name


def test_a_variable_names_the_processor_that_llvm_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CPU", "x86-64-v2")
    found = features("llvm")
    assert (found.cpu, found.vector_bits, found.cores) == ("x86-64-v2", 128, host_features().cores)
    assert features("llvm -mcpu=native") == features("llvm -mcpu=x86-64-v2 -num-cores=4")
    assert features("llvm -mcpu=haswell").cpu == "haswell"
    assert host_features().cpu != "x86-64-v2"
    monkeypatch.delenv("TILEWRIGHT_CPU")
    assert features("llvm") == host_features()


def test_llvm_stands_for_no_processor_whose_code_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    sandybridge = features("llvm -mcpu=sandybridge")
    monkeypatch.setattr(sys.modules["tilewright.target.features"], "host_features", lambda: sandybridge)
    monkeypatch.setenv("TILEWRIGHT_CPU", "cooperlake")
    with pytest.raises(
        TilewrightError, match=r"TILEWRIGHT_CPU=cooperlake .*avx2.* this machine's \(sandybridge\) lacks"
    ):
        features("llvm")
    monkeypatch.setenv("TILEWRIGHT_CPU", "pentium5")
    with pytest.raises(TilewrightError, match=r"unknown x86 processor -mcpu=pentium5"):
        features("llvm")


def test_records_are_for_processors_that_targets_may_name() -> None:
    assert set(families._BY_NAME) <= {*_X86_CPUS, *_ARM_CPUS}


def test_needed_features_have_the_names_of_llvm() -> None:
    assert features("llvm -mcpu=x86-64").names == ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
    assert features("llvm -mcpu=core-avx2").has("avx2")
    assert not features("llvm -mcpu=core-avx2 -mattr=-avx2").has("avx2")


@pytest.mark.parametrize(
    ("cpu", "has", "lacks"),
    [
        ("", ["neon", "fp-armv8"], ["lse", "dotprod"]),
        (" -mcpu=cortex-a72", ["neon"], ["lse", "fullfp16"]),
        (" -mcpu=neoverse-n1", ["lse", "dotprod"], ["sve", "bf16"]),
        (" -mcpu=neoverse-v1", ["sve", "bf16"], ["sve2"]),
        (" -mcpu=cortex-a72 -mattr=+lse", ["lse"], ["dotprod"]),
    ],
)
def test_features_of_aarch64_processors(cpu: str, has: list[str], lacks: list[str]) -> None:
    found = features("llvm -mtriple=aarch64-linux-gnu" + cpu)
    assert all(found.has(name) for name in has)
    assert not any(found.has(name) for name in lacks)


def test_the_current_target_counts() -> None:
    with Target("llvm -mcpu=core-avx2"):
        assert features().cpu == "core-avx2"
    assert features().is_host


def test_llvm_knows_the_names_of_all_processors() -> None:
    program = """
from tilewright.target import llvm_compile
from tilewright.target.features import _ARM_CPUS, _X86_CPUS, host_features
for triple, names in (("aarch64-linux-gnu", _ARM_CPUS), ("x86_64-linux-gnu", _X86_CPUS)):
    for cpu in names:
        llvm_compile.compile_ir("define void @f() { ret void }", triple, cpu, "", 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(TilewrightError, match=r"unknown x86 processor -mcpu=pentium5; known: .*core-avx2"):
        features("llvm -mcpu=pentium5")
    with pytest.raises(TilewrightError, match=r"unknown aarch64 processor -mcpu=haswell; known: .*cortex-a53"):
        features("llvm -mtriple=aarch64-linux-gnu -mcpu=haswell")
