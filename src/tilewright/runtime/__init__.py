"""The Python face of the native runtime: everything a deployed model needs, and nothing of the compiler.

``dtype.py`` element types, ``device.py`` devices, ``ndarray.py`` arrays, ``packed_func.py`` and
``registry.py`` functions, ``module.py`` modules (with the protocol for compiled code), ``export.py`` writing
libraries, ``loaders.py`` reading them, ``onednn.py`` where oneDNN is, ``plugins.py`` installed packages that add to it,
``params.py`` parameter files, ``generator.py`` tokens of decoders, ``profiling.py`` reports, ``executor/`` executors,
``_ffi.py`` the library itself.
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
