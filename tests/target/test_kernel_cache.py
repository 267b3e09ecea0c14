"""The cache of compiled kernels."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from tilewright.target import cache as cache_module
from tilewright.target.cache import KernelCache, cache_key, clear_cache, current_cache
from tilewright.target.features import features
from tilewright.target.workers import CompileJob, compile_cached

IR = "define i32 @seven() { ret i32 7 }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_CACHE", raising=False)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_the_second_compilation_comes_from_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CompileJob("seven", IR, features("llvm"))
    first = compile_cached(job)
    assert len(files(folder)) == 1
    monkeypatch.setattr("tilewright.target.llvm_compile.compile_ir", lambda *a, **k: pytest.fail("compiled again"))
    assert compile_cached(job) == first


@pytest.mark.parametrize("damage", [b"", b"short", None])
def test_a_damaged_entry_is_built_again(folder: Path, damage: bytes | None) -> None:
    job = CompileJob("seven", IR, features("llvm"))
    first = compile_cached(job)
    (path,) = files(folder)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage is None else damage)
    assert compile_cached(job) == first
    assert path.read_bytes() == content


def test_the_key_depends_on_text_processor_and_level() -> None:
    host, plain = features("llvm"), features("llvm -mcpu=x86-64")
    keys = [
        CompileJob("a", IR, host).key(),
        CompileJob("a", IR + " ", host).key(),
        CompileJob("a", IR, plain).key(),
        CompileJob("a", IR, host, 1).key(),
    ]
    assert len(set(keys)) == 4
    assert keys[0] == CompileJob("b", IR, host).key()
    assert cache_key("ab", "c") != cache_key("a", "bc")


def test_the_least_recently_used_entries_go_first(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, 10_000)
    keys = [cache_key(str(i)) for i in range(9)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        path = tmp_path / key[:2] / key[2:]
        os.utime(path, (1_000_000 + age, 1_000_000 + age))
    assert cache.get(keys[0]) is not None  # used now: the youngest
    cache.put(cache_key("new"), bytes(1000))
    cache.put(cache_key("newer"), bytes(1000))
    cache.evict()
    kept = [cache.get(k) is not None for k in keys]
    assert kept[0] and kept[-1]
    assert not kept[1]
    assert sum(p.stat().st_size for p in files(tmp_path)) <= 10_000


def test_the_environment_turns_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    assert current_cache() is None
    compile_cached(CompileJob("seven", IR, features("llvm")))
    assert files(folder) == []


def test_clearing(folder: Path) -> None:
    compile_cached(CompileJob("seven", IR, features("llvm")))
    clear_cache()
    assert files(folder) == []


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = KernelCache(tmp_path / "file" / "cache", 1000)
    cache.put(cache_key("x"), b"data")
    assert cache.get(cache_key("x")) is None


def _write_often(folder: str, number: int) -> None:
    cache = KernelCache(Path(folder), 1 << 20)
    for i in range(50):
        key = cache_key(str(i))
        cache.put(key, key.encode() * 100)
        found = cache.get(key)
        if found is not None and found != key.encode() * 100:
            os._exit(1)


def test_processes_share_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_write_often, args=(str(tmp_path), n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    cache = KernelCache(tmp_path, 1 << 20)
    assert all(cache.get(cache_key(str(i))) == cache_key(str(i)).encode() * 100 for i in range(50))
    assert not [p for p in files(tmp_path) if p.name.startswith(".")]


def test_the_default_folder_is_under_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_module.cache_directory() == tmp_path / "tilewright" / "kernels"
