"""How evenly kernels share their work among cores, by a model of their loops: nothing runs, and no core is needed.

    python -m benchmarks.imbalance                                   # all of the zoo
    python -m benchmarks.imbalance --models resnet50 bert_base --cores 4 8 32 64 --kernels 5
    python -m benchmarks.imbalance --compiled-for 2                  # code for 2 cores, on more

Each network is lowered for its target and as many cores (``-num-cores``), and the vector instructions of each
iteration of each parallel loop are counted (``tilewright.tir.parallel_work``). *imbalance*: by how much a run takes
longer than if all its work were shared evenly among the cores. ``--kernels`` tells those that lose most.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tilewright import relay, tir
from tilewright.relay.backend.lower_te import LowerTE
from tilewright.relay.build_module import to_kernels
from tilewright.relay.expr import Call
from tilewright.relay.visitor import post_order
from tilewright.target import Target
from tilewright.target.features import features
from tilewright.testing import zoo
from tilewright.tir.parallel_work import Part, imbalance, least_of_task, parts_of
from tilewright.transform import PassContext

Kernels = dict[str, tuple[list[Part], int]]


def kernels_of(module: Any, params: Any, target: str = "llvm") -> Kernels:
    """Return the parts of each kernel that a run calls, and how often."""
    with PassContext(opt_level=3):
        lowered = LowerTE(target)(to_kernels(module, target, params))
    cpu = features(Target(target))
    lanes = cpu.lanes(32)
    least = least_of_task(cpu.processor.threads.least_work, lanes)
    called = [e for e in post_order(lowered["main"]) if isinstance(e, Call)]
    names = [e.op.name_hint for e in called if hasattr(e.op, "name_hint") and "run_once" not in (e.attrs or {})]
    found: Kernels = {}
    for var, func in lowered.functions.items():
        if isinstance(func, tir.PrimFunc) and var.name_hint in names:
            found[var.name_hint] = parts_of(func, lanes * 32, least), names.count(var.name_hint)
    return found


def worst(kernels: Kernels, cores: int, count: int) -> list[tuple[str, float, int]]:
    """Return the kernels that lose most: name, share of the network's time, and the most iterations of a loop."""
    whole = sum(part.total * calls for parts, calls in kernels.values() for part in parts) / cores
    lost = [
        (
            name,
            sum((part.on(cores) - part.total / cores) * calls for part in parts) / whole,
            max((len(part.costs) for part in parts), default=0),
        )
        for name, (parts, calls) in kernels.items()
    ]
    return sorted(lost, key=lambda item: -item[1])[:count]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(zoo.names()), choices=list(zoo.names()))
    parser.add_argument("--cores", nargs="+", type=int, default=[4, 8, 32, 64])
    parser.add_argument("--kernels", type=int, default=0, help="how many kernels to tell of each network")
    parser.add_argument("--target", default="llvm")
    parser.add_argument(
        "--compiled-for", type=int, help="the number of cores that the code is for; by default, as many"
    )
    options = parser.parse_args(arguments)
    print("| network | " + " | ".join(f"{n} cores" for n in options.cores) + " |")
    print("|---|" + "---:|" * len(options.cores))
    for name in options.models:
        network = relay.frontend.from_onnx(str(zoo.export(name)))
        row, told = [], []
        for cores in options.cores:
            kernels = kernels_of(*network, f"{options.target} -num-cores={options.compiled_for or cores}")
            row.append(f"{100 * imbalance(list(kernels.values()), cores):.1f} %")
            told += [
                f"  {cores} cores: {100 * share:.1f} % {kernel}, {most} iterations"
                for kernel, share, most in worst(kernels, cores, options.kernels)
            ]
        print(f"| {name} | " + " | ".join(row) + " |", *told, sep="\n", flush=True)


if __name__ == "__main__":
    main()
