"""A network as a folder of WebAssembly: ``tilewright compile model.onnx -f wasm -o folder``.

=====================  ============================================================================================
``model.wasm``         kernels and the function that calls them, with vectors of 128 bits
``model_weights.bin``  the weights, where there are any
``model.mjs``          a module of JavaScript that loads both, in Node and in browsers: ``await Model.load()``
=====================  ============================================================================================

``model`` is the network's name. The code is that of a bundle (``bundle.py``), compiled by clang.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from tilewright.ir import dtype as dt
from tilewright.micro.bundle import elements_of, write_folder
from tilewright.micro.names import c_element, check_identifier
from tilewright.runtime.error import TVMError
from tilewright.runtime.executor.aot import AOTExecutorFactoryModule, AotTensor

_WEB = Path(__file__).parent / "web"
_MOST_BYTES = 4 << 30  # that addresses of 32 bits reach
_FLAGS = [
    "--target=wasm32", "-std=c11", "-O2", "-msimd128", "-mbulk-memory", "-ffreestanding", "-fno-math-errno",
    "-ffp-contract=off", "-nostdlib",
]  # fmt: skip
_LINK = ["-Wl,--no-entry", "-Wl,--export=tw_run", "-Wl,--export=__heap_base", "-Wl,-z,stack-size=1048576"]

_RUN = """\
#include <stdint.h>

extern int32_t {symbol}({parameters});

/* Runs the network on a list of addresses: inputs, outputs, weights, parts of the workspace. */
int32_t tw_run(void** at) {{ return {symbol}({arguments}); }}
"""


def export_wasm(factory: AOTExecutorFactoryModule, folder: str | Path, name: str = "model") -> list[Path]:
    """Write a compiled network as WebAssembly with its loader.

    Parameters
    ----------
    factory : the result of ``relay.build(mod, "c -runtime=c", executor="aot", mod_name=name)``
    folder : where the files go; other files there stay
    name : the network's name, with which the files begin; that of the build

    Returns
    -------
    The files.

    Raises
    ------
    TVMError : the network was not compiled for this, it takes more than 4 GiB, a tensor's type has no C type, or clang
        or its linker is missing
    ExportError : the folder cannot be written
    """
    check_identifier(name)
    if not isinstance(factory, AOTExecutorFactoryModule) or not factory.is_standalone:
        raise TVMError('WebAssembly is made of relay.build(mod, "c -runtime=c", executor="aot")')
    layout = factory.layout
    tensors = (*layout.inputs, *layout.outputs)
    total = sum(map(_bytes, tensors)) + layout.constant_bytes + layout.workspace_bytes
    if total >= _MOST_BYTES:
        raise TVMError(f"the network takes {total} bytes of memory, and WebAssembly has less than {_MOST_BYTES}")
    weights = f"{name}_weights.bin" if layout.constant_bytes else None
    files: dict[str, str | bytes] = {f"{name}.wasm": _compiled(factory)}
    if weights is not None:
        files[weights] = layout.constant_block()
    files[f"{name}.mjs"] = _loader(factory, name, weights)
    return write_folder(Path(folder), files)


def _bytes(tensor: AotTensor) -> int:
    c_element(tensor.dtype)  # raises for types that C has none of
    return elements_of(tensor) * dt.nbytes(tensor.dtype)


def _compiled(factory: AOTExecutorFactoryModule) -> bytes:
    """Return the module's bytes."""
    missing = [tool for tool in ("clang", "wasm-ld") if shutil.which(tool) is None]
    if missing:
        raise TVMError(f"WebAssembly needs {' and '.join(missing)}: on Debian, apt install clang lld")
    layout = factory.layout
    count = len(layout.inputs) + len(layout.outputs) + 1 + len(layout.pools)
    run = _RUN.format(
        symbol=layout.symbol, parameters=", ".join(["void*"] * count),
        arguments=", ".join(f"at[{i}]" for i in range(count)),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tilewright-") as temporary:
        folder = Path(temporary)
        (folder / "model.c").write_text(factory.get_source())
        (folder / "run.c").write_text(run)
        sources = [folder / "model.c", folder / "run.c", _WEB / "memory.c"]
        command = ["clang", *_FLAGS, f"-I{_WEB}", *map(str, sources), *_LINK, "-o", str(folder / "model.wasm")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TVMError(f"clang cannot make WebAssembly of the network: {done.stderr.strip()[-2000:]}")
        return (folder / "model.wasm").read_bytes()


def _loader(factory: AOTExecutorFactoryModule, name: str, weights: str | None) -> str:
    layout = factory.layout
    described = {
        "code": f"{name}.wasm",
        "weights": weights,
        "weightBytes": layout.constant_bytes,
        "alignment": max(layout.alignment, 16),
        "pools": [pool.nbytes for pool in layout.pools],
        "inputs": [_described(t) for t in layout.inputs],
        "outputs": [_described(t) for t in layout.outputs],
    }
    text = (_WEB / "model.mjs").read_text()
    return text.replace("{NAME}", name).replace("{META}", json.dumps(described, indent=2))


def _described(tensor: AotTensor) -> dict[str, object]:
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "elements": elements_of(tensor),
    }
