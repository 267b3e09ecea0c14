"""AMX's tiles in C programs: small signal stacks, threads, forks, several libraries, and single steps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.processors.x86 import runs_here

import tilewright as tvm
from tilewright import relay, runtime
from tilewright.relay.transform.precision.halve_weights import precision_config

AMX = "llvm -mcpu=sapphirerapids"
ROWS, DEPTH = 32, 64

# argv: what happens, then libraries. Factors are 2 and 1, so that every sum is 2 * DEPTH, exactly.
PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tilewright_model.h>
#include <unistd.h>

enum { ROWS = 32, DEPTH = 64 };
static const DLDevice cpu = {kDLCPU, 0};
static char small[4096];
static volatile sig_atomic_t steps;
static char** libraries;
static int count;

static void check(int rc) {
  if (rc == 0) return;
  printf("%s\n", TVMGetLastError());
  fflush(stdout);
  _exit(3);
}

static TilewrightModel* load(const char* path) {
  TilewrightModel* m;
  check(TilewrightModelOpen(path, cpu, &m));
  return m;
}

static void run(TilewrightModel* m) { check(TilewrightModelRun(m)); }

static void set(TilewrightModel* m) {
  static float data[ROWS * DEPTH];
  int64_t shape[2] = {ROWS, DEPTH};
  for (int i = 0; i < ROWS * DEPTH; ++i) data[i] = 2;
  DLTensor x = {data, cpu, 2, {kDLFloat, 32, 1}, shape, NULL, 0};
  check(TilewrightModelSetInput(m, "x", &x));
}

static void compare(TilewrightModel* m) {
  TVMArrayHandle out;
  check(TilewrightModelOutput(m, 0, &out));
  int64_t size = out->shape[0] * out->shape[1];
  for (int64_t i = 0; i < size; ++i)
    if (((float*)out->data)[i] != 2 * DEPTH) printf("wrong\n"), _exit(4);
  TVMArrayFree(out);
}

static void all(void) {
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < count; ++i) {
      TilewrightModel* m = load(libraries[i]);
      set(m), run(m), compare(m);
      TilewrightModelFree(m);
    }
}

static int shrink(void) {
  stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
  return sigaltstack(&stack, NULL) == 0 ? 0 : errno;
}

static void* work(void* go) {
  pthread_mutex_lock(go);
  pthread_mutex_unlock(go);
  all();
  return NULL;
}

static void* waits(void* go) {
  if (shrink() != 0) printf("no small stack\n");
  *(volatile int*)go = 1;
  for (;;) pause();
  return NULL;
}

static void step(int signal) {
  (void)signal;
  ++steps;
}

int main(int argc, char** argv) {
  const char* what = argv[1];
  libraries = argv + 2, count = argc - 2;
  if (!strcmp(what, "before")) {
    if (shrink() != 0) return 5;
    all();
  } else if (!strcmp(what, "after")) {
    all();
    if (shrink() == 0) all();
    all(); /* where the system refused, it is as before */
  } else if (!strcmp(what, "other thread")) {
    volatile int ready = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, waits, (void*)&ready);
    while (!ready) usleep(100);
    all();
  } else if (!strcmp(what, "threads")) {
    pthread_t threads[2];
    pthread_mutex_t go = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&go);
    for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, &go);
    all(); /* asks for tiles after the threads were made */
    pthread_mutex_unlock(&go);
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  } else if (!strcmp(what, "fork")) {
    TilewrightModel* m = load(libraries[0]);
    set(m), run(m), compare(m);
    pid_t child = fork();
    if (child == 0) {
      run(m), compare(m), all();
      printf("right\n");
      fflush(stdout);
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    run(m), compare(m);
    if (status != 0) return 6;
  } else if (!strcmp(what, "steps")) {
    TilewrightModel* m = load(libraries[0]);
    set(m), run(m), compare(m);
    signal(SIGTRAP, step);
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc"); /* a signal an instruction */
    int rc = TilewrightModelRun(m);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    check(rc), compare(m);
    if (steps < 100) return 7;
  }
  printf("right\n");
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not runs_here(AMX):
        pytest.skip("no AMX on this processor")
    folder = tmp_path_factory.mktemp("tiles")
    (folder / "tiles.c").write_text(PROGRAM)
    native = runtime.native_dir()
    command = ["gcc", "-std=gnu11", "-O1", "-mno-red-zone", f"-I{native / 'include'}", folder / "tiles.c"]
    libraries = [native / "libtilewright_runtime.a", "-lpthread", "-ldl", "-lm"]
    subprocess.run([*command, *libraries, "-rdynamic", "-o", folder / "tiles"], check=True)
    return folder / "tiles"


def product(x: relay.Expr) -> relay.Expr:
    """A dense layer: tiles of 16 rows."""
    return relay.nn.dense(x, relay.const(np.ones((256, DEPTH), "float32")))


def convolution(x: relay.Expr) -> relay.Expr:
    """A convolution of two rows of 15 positions: tiles of 15 rows, another configuration."""
    columns = relay.strided_slice(relay.transpose(x, (1, 0)), begin=[0, 0], end=[DEPTH, 30])
    weight = relay.const(np.ones((64, DEPTH, 1, 1), "float32"))
    sums = relay.nn.conv2d(relay.reshape(columns, (1, DEPTH, 2, 15)), weight, channels=64, kernel_size=(1, 1))
    return relay.reshape(sums, (64, 30))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, paths = tmp_path_factory.mktemp("libraries"), []
    for layer in (product, convolution):
        x = relay.var("x", shape=(ROWS, DEPTH))
        with tvm.transform.PassContext(opt_level=3, config=precision_config("bf16")):
            lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], layer(x))), AMX)
        assert "tdpbf16ps" in lib.get_lib().get_source("asm")
        paths.append(folder / f"{layer.__name__}.so")
        lib.export_library(str(paths[-1]))
    return paths


@pytest.mark.parametrize("what", ["after", "threads", "fork", "steps"])
def test_answers_are_right(what: str, program: Path, libraries: list[Path]) -> None:
    done = subprocess.run([program, what, *libraries], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == {"right"}


@pytest.mark.parametrize("what", ["before", "other thread"])
def test_a_small_signal_stack_gives_one_error(what: str, program: Path, libraries: list[Path]) -> None:
    done = subprocess.run([program, what, *libraries], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert len(done.stdout.splitlines()) == 1
    assert "sigaltstack, is too small" in done.stdout
