"""The Python face of the native runtime: everything a deployed model needs, and nothing of the compiler.

_ffi.py          the native library                       dtype.py       element types
device.py        devices                                  ndarray.py     arrays
packed_func.py registry.py   functions                    module.py      modules, the protocol for compiled code
container.py     containers by TVM's names                error.py       errors
model.py         ``Model``, a model that is called        interface.py   its inputs and outputs, for any executor
generator.py     tokens of decoders                       state.py       inputs kept from run to run
executor/ vm.py  executors, the virtual machine           bytecode.py    its programs in TVM 0.8's form
profiling.py profiler_vm.py   reports of time             params.py      parameter files
loaders.py       reading libraries                        library_info.py  what is in one, without running it
export.py        writing libraries                        compilers.py   the C compilers of this machine
elf_library.py elf_objects.py elf_relocations.py elf_segments.py windows_library.py   linking without a linker
weights_file.py  weights that libraries share             checksum.py    checksums of files
partial_files.py saving.py   files that appear whole      mapped_files.py  files that arrays are views of
environment.py   environment variables                    plugins.py onednn.py   packages that add to it, oneDNN
fork.py interrupt.py parallel.py   forks, Ctrl-C, threads     text.py    names from files on a terminal
renamed.py       names of the last release
"""

from typing import TYPE_CHECKING, Any

from . import container as container  # what packed functions give objects as
from . import loaders as loaders  # registers what reads modules from files
from . import onednn as onednn  # registers where oneDNN is
from . import profiler_vm as profiler_vm
from . import vm as vm
from ._ffi import native_dir
from .container import ADT, Object, ShapeTuple, String
from .device import Device, cl, cpu, cuda, device, ext_dev, gpu, load_device_plugin, metal, opencl, rocm, vulkan
from .dtype import DataType, DataTypeCode
from .error import ExportError, TVMError
from .executor import GraphExecutorFactoryModule, GraphModule
from .library_info import LibraryInfo, library_info
from .module import (
    BenchmarkResult,
    CompiledCode,
    Module,
    ModuleStream,
    context_symbols,
    create_module,
    enabled,
    from_compiled,
    host_cpu_features,
    load_module,
    num_threads,
    set_num_threads,
    set_thread_pool,
    system_lib,
)
from .ndarray import NDArray, array, empty, from_dlpack, numpy_dtype, numpyasarray
from .packed_func import PackedFunc, register_extension
from .params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from .profiling import Report
from .registry import (
    ObjectGeneric,
    const,
    convert,
    convert_to_object,
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)

if TYPE_CHECKING:
    from .generator import Generator


def __getattr__(name: str) -> Any:
    if name != "Generator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .generator import Generator  # models load with it, which functions and arrays do without

    return Generator


__all__ = [
    "ADT",
    "BenchmarkResult",
    "CompiledCode",
    "DataType",
    "DataTypeCode",
    "Device",
    "ExportError",
    "Generator",
    "GraphExecutorFactoryModule",
    "GraphModule",
    "LibraryInfo",
    "Module",
    "ModuleStream",
    "NDArray",
    "Object",
    "ObjectGeneric",
    "PackedFunc",
    "Report",
    "ShapeTuple",
    "String",
    "TVMError",
    "array",
    "cl",
    "const",
    "context_symbols",
    "convert",
    "convert_to_object",
    "cpu",
    "create_module",
    "cuda",
    "device",
    "empty",
    "enabled",
    "ext_dev",
    "from_compiled",
    "from_dlpack",
    "get_global_func",
    "gpu",
    "host_cpu_features",
    "library_info",
    "list_global_func_names",
    "load_device_plugin",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "metal",
    "native_dir",
    "num_threads",
    "numpy_dtype",
    "numpyasarray",
    "opencl",
    "register_extension",
    "register_func",
    "remove_global_func",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "set_num_threads",
    "set_thread_pool",
    "system_lib",
    "vulkan",
]
