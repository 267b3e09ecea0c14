"""oneDNN, which brings an OpenCL loader of its own, in one process with OpenCL devices of the system's loader."""

from __future__ import annotations

import subprocess
import sys

from tests.runtime.gpu_sources import need_opencl

PROGRAM = """
import json, os, sys
from ctypes import CDLL
import numpy as np
from tilewright import runtime

def devices():
    array = runtime.array(np.arange(3, dtype="float32"), runtime.opencl(0))
    assert array.numpy().tolist() == [0, 1, 2]

def onednn():
    attrs = {"shape": [[[2]]], "dtype": [["float32"]]}
    nodes = [{"op": "input", "name": "x", "inputs": [], "attrs": attrs},
             {"op": "kernel", "name": "nn.relu", "inputs": [[0, 0, 0]], "attrs": attrs}]
    graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2]}
    relu = runtime.get_global_func("runtime.DNNLJSONRuntimeCreate")("region", json.dumps(graph), ())["region"]
    given, result = (runtime.array(np.array([-1, 2], "float32")) for _ in range(2))
    relu(given, result)
    assert result.numpy().tolist() == [0, 2]

def another_loader():
    CDLL("libOpenCL.so.1")  # as other packages do

for step in sys.argv[1:]:
    globals()[step]()
print(runtime.opencl(0).device_name)
os.execvp("printenv", ["printenv", "OCL_ICD_FILENAMES"])  # what a process inherits
"""


def name_of_device(*steps: str) -> str:
    """The name of ``opencl(0)`` in a process that has taken some steps; oneDNN leaves its environment alone."""
    done = subprocess.run([sys.executable, "-u", "-c", PROGRAM, *steps], capture_output=True, text=True)
    assert done.stderr == ""
    name, *inherited = done.stdout.splitlines()
    assert not inherited
    return name


def test_devices_are_the_same_whichever_comes_first() -> None:
    need_opencl()
    alone = name_of_device("devices")
    assert name_of_device("devices", "onednn", "devices") == alone
    assert name_of_device("onednn", "devices", "onednn") == alone


def test_onednn_works_where_a_package_has_opened_another_loader() -> None:
    need_opencl()
    assert name_of_device("another_loader", "onednn")
