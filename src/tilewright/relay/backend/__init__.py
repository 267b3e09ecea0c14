"""From a fused module to a library.

lower_te.py lowered.py          LowerTE; the form of a lowered module and its verifier
te_compiler.py                  one primitive function to a kernel; compile_engine.py is its older name
graph_codegen.py                the graph executor's graph; its storage is planned in ``relay/transform/memory``
executors.py graph_executor.py  the registry of executors; the graph executor's code generator
graph_executor_codegen.py function_metadata.py  TVM's interface to it; sizes and sources of each function
executor.py interpreter.py      ``relay.create_executor``, and values
calibration.py runtime.py       inputs and outputs of a module's functions; the runtime of a library
progress.py                     progress and report of a build
utils.py                        names of modules, where TVM has them
"""

from tilewright.relay.backend.runtime import Executor, Runtime
from tilewright.runtime.executor import factory as executor_factory

__all__ = ["Executor", "Runtime", "executor_factory"]
