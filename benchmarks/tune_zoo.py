"""Make the records that ship with the package for this machine's processor: ``make tune-zoo``.

    python -m benchmarks.tune_zoo --models resnet18 mobilenet_v2 --minutes 10

Each network is tuned by ``tilewright tune``, so that only records stand by which kernels and the whole network are
faster, in turns, than untuned. The best of each kernel go to ``src/tilewright/autotvm/shipped``, with those that are
there already and whose templates are of the same version. Where no record stands, no file is written. Run it on a
machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tilewright.autotvm.record import best_records, load_from_file
from tilewright.autotvm.store import save_shipped, shipped_file
from tilewright.target import Target
from tilewright.testing import zoo

MODELS = ("resnet18", "resnet50", "mobilenet_v2", "squeezenet1_1", "densenet121", "inception_v3", "bert_base")


def main() -> None:
    """Tune, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS, help="names of the zoo")
    parser.add_argument("--minutes", type=float, default=20.0, help="of each network")
    parser.add_argument("--trials", type=int, default=2000, help="of each network, at most")
    parser.add_argument("--folder", type=Path, default=Path("build/tune_zoo"), help="for records of each network")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    records = []
    for name in options.models:
        output = options.folder / f"{name}.jsonl"
        program = [sys.executable, "-m", "tilewright", "tune", str(zoo.export(name)), "-o", str(output)]
        limits = ["--minutes", str(options.minutes), "--trials", str(options.trials)]
        environment = {**os.environ, "TILEWRIGHT_SHIPPED_RECORDS": "0", "TILEWRIGHT_RECORDS": ""}
        subprocess.run([*program, *limits], check=True, env=environment)
        records += load_from_file(output)
    target = Target("llvm")
    if not records:
        print(f"nothing was faster than untuned; {shipped_file(target).name} stays as it is")
        return
    path = save_shipped(target, best_records(records))
    print(f"{len(records)} records of {len(options.models)} networks in {path} ({path.stat().st_size >> 10} KiB)")


if __name__ == "__main__":
    main()
