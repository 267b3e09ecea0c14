"""From a fused module to a library.

lower_te.py lowered.py          LowerTE; the form of a lowered module and its verifier
te_compiler.py                  one primitive function to a kernel; compile_engine.py is its older name
graph_codegen.py                the graph executor's graph; its storage is planned in ``relay/transform/memory``
executors.py graph_executor.py  the registry of executors; the graph executor's code generator
graph_executor_codegen.py function_metadata.py  TVM's interface to it; sizes and sources of each function
executor.py interpreter.py      ``relay.create_executor``, and values
calibration.py runtime.py       inputs and outputs of a module's functions; the runtime of a library
progress.py needs.py            progress and report of a build; the memory and disk that it takes
executor_choice.py target_map.py  the executor and the targets of a network
symbolic.py wide.py             shapes known at run time; more elements than 32 bits count
kernel_key.py run_primitive.py  what a kernel depends on; operators run one at a time
kernel_task.py conv2d_task.py dense_task.py open_task.py   kernels as tasks of a tuner
external.py external_shapes.py  functions of other code generators, and the shapes of their results
ccompiler.py json_serializer.py contrib/  such generators
aot.py aot_main.py aot_library.py aot_memory.py aot_refusal.py c_region.py   ahead-of-time programs
vm.py vm_build.py vm_codegen.py vm_memory.py vm_parts.py vm_regions.py vm_specialize.py   the virtual machine's programs
interface.py                    named dimensions of inputs and outputs, as the machine checks them
utils.py                        names of modules, where TVM has them
"""

from tilewright.relay.backend.runtime import Executor, Runtime
from tilewright.runtime.executor import factory as executor_factory

__all__ = ["Executor", "Runtime", "executor_factory"]
