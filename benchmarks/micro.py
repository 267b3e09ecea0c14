"""MLPerf Tiny's networks as C: workspace, size of the code, and instructions of a run on Cortex-M processors.

python -m benchmarks.micro                        # all networks of tests/micro/tiny_networks.py
python -m benchmarks.micro resnet8 --emx /tmp/emx # beside what emx-onnx-cgen of that virtual environment writes

It needs Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-user and gcc. Instructions are those of the second
run in a process, counted by qemu (``micro_count.c``), which knows no clock cycles.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx
from tests.micro.tiny_networks import NETWORKS

import tilewright as tvm
from tilewright import relay
from tilewright.micro import export_bundle
from tilewright.micro.boards.records import board_named
from tilewright.micro.boards.support import emulator_command, linker_flags, support_files

_CORES = ("cortex-m3", "cortex-m4", "cortex-m55+nomve", "cortex-m55")
PROCESSORS = {core: f"-mcpu={core} -mthumb" + ("" if core.endswith("3") else " -mfloat-abi=hard") for core in _CORES}
_START = """
extern int main(void);
void leave(int code);
__asm__(".thumb_func\\n.global leave\\nleave: mov r7, #1\\nsvc #0\\n");
void begin(void) { leave(main()); }
__asm__(".thumb\\n.thumb_func\\n.global _start\\n_start: bl begin\\n");
"""
_BOARD_START = '#include "board.h"\n'
_FILL = """
static _Alignas(16) unsigned char in[27648], out[640];
static void fill(void) { for (int i = 0; i < 27648; i++) in[i] = (unsigned char)(i * 89 + (i >> 5) * 7); }
"""
_MAIN = """
#include "net.h"
static _Alignas(64) uint8_t workspace[NET_WORKSPACE_BYTES];
int main(void) {
  const struct net_inputs inputs = {(const void*)in};
  const struct net_outputs outputs = {(void*)out};
  int status = 0;
  fill();
  for (int i = 0; i < RUNS; i++) status |= net_run(&inputs, &outputs, workspace, sizeof workspace);
  return status != 0;
}
"""
_EMX_MAIN = """
#include <stdint.h>
void model(const void* x, void* y);
int main(void) {
  fill();
  for (int i = 0; i < RUNS; i++) model(in, out);
  return 0;
}
"""


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout + done.stderr


def _instructions(folder: Path, main: str, sources: Sequence[str], flags: str) -> int:
    """Instructions of a run: of a program that runs twice, less those of one that runs once."""
    return _count(folder, main, sources, flags, 2) - _count(folder, main, sources, flags, 1)


def _count(folder: Path, main: str, sources: Sequence[str], flags: str, runs: int) -> int:
    """Instructions of a program; of Cortex-M55 on the whole board, which qemu's user mode lacks."""
    on_board, count = "cortex-m55" in flags, str(folder.parent / "count.so")
    (folder / "main.c").write_text((_BOARD_START if on_board else _START) + _FILL + main)
    link = ["-nostartfiles", "--specs=nosys.specs", "-static", "-Wl,-Ttext-segment=0x100000"]
    run = ["qemu-arm", "-cpu", "max", "-plugin", count, "program"]
    if on_board:
        board = board_named("mps3_an547")
        for name, text in support_files(board).items():
            (folder / name).write_text(text)
        link, sources = [*linker_flags(board)], [*sources, "board.c"]
        run = [*emulator_command(board)[:-1], "-plugin", count, "-kernel", "program"]
    made = ["arm-none-eabi-gcc", *flags.split(), "-std=gnu11", f"-DRUNS={runs}", "-DNDEBUG", "main.c", *sources]
    _run(*made, *link, "-o", "program", "-lm", folder=folder)
    return int(re.findall(r"instructions (\d+)", _run(*run, folder=folder))[0])


def _text_bytes(folder: Path, source: str) -> int:
    """Bytes of a source's code without its weights."""
    flags = PROCESSORS["cortex-m4"].split()
    _run("arm-none-eabi-gcc", "-Os", *flags, "-c", source, "-o", "code.o", folder=folder)
    return int(_run("arm-none-eabi-size", "code.o", folder=folder).splitlines()[1].split()[0])


def _products(model: onnx.ModelProto) -> int:
    """Multiplications of the convolutions and dense layers."""
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in
              onnx.shape_inference.infer_shapes(model).graph.value_info}  # fmt: skip
    total = 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            _, *weight = shapes[node.input[1]]
            each = 1
            for extent in (*shapes[node.output[0]], *weight):
                each *= extent
            total += each
    return total


def _emx(folder: Path, model: onnx.ModelProto, python: Path) -> dict[str, int]:
    """Instructions of the code of emx-onnx-cgen."""
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    plain = ["--large-weight-threshold", "0", "--large-temp-threshold", "0"]
    _run(str(python / "bin" / "emx-onnx-cgen"), "compile", "model.onnx", "model.c", *plain, folder=folder)
    text = (folder / "model.c").read_text()
    name = re.findall(r"^void (\w+)\(", text, re.MULTILINE)[-1]
    main = _EMX_MAIN.replace("model(", f"{name}(")
    return {p: _instructions(folder, main, ["model.c"], f"-O2 {flags}") for p, flags in PROCESSORS.items()}


def _row(name: str, folder: Path, emx: Path | None, room: int | None) -> str:
    model = NETWORKS[name]().model()
    mod, params = relay.frontend.from_onnx(model)
    target = "c -runtime=c" if room is None else f"c -runtime=c -workspace-pools=workspace:{room}"
    with tvm.transform.PassContext(opt_level=3):
        factory = relay.build(mod, target, params=params, executor="aot", mod_name="net")
    bundle = folder / name
    export_bundle(factory, bundle, "net")
    products = _products(model)
    cells = [name, str(factory.layout.workspace_bytes), str(_text_bytes(bundle, "net.c"))]
    others = {} if emx is None else _emx(folder / f"{name}_emx", model, emx)
    for processor, flags in PROCESSORS.items():
        count = _instructions(bundle, _MAIN, ["net.c", "net_weights.c"], f"-O2 {flags}")
        cells.append(f"{count / 1e6:.2f} ({count / products:.2f})")
        cells += [f"{others[processor] / 1e6:.2f}"] if others else []
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--emx", type=Path, help="a virtual environment that has emx-onnx-cgen")
    parser.add_argument("--room", type=int, help="bytes of workspace: layers are computed in bands to keep them")
    args = parser.parse_args()
    heads = ["network", "workspace (bytes)", "code (bytes)"]
    for processor in PROCESSORS:
        heads += [f"{processor}: million instructions (each product)"] + (["emx-onnx-cgen"] if args.emx else [])
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plugin = str(Path(__file__).with_name("micro_count.c"))
        _run("gcc", "-shared", "-fPIC", "-O1", plugin, "-o", "count.so", folder=folder)
        for network in args.networks or NETWORKS:
            print(_row(network, folder, args.emx, args.room), flush=True)


if __name__ == "__main__":
    main()
