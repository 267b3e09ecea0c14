"""From a fused module to what runs.

lower_te.py lowered.py          LowerTE; what a lowered module is, and its verifier
te_compiler.py                  one primitive function to a kernel; compile_engine.py is its older name
graph_codegen.py                the graph executor's graph; its storage is planned in ``relay/transform/memory``
executors.py graph_executor.py   what a network is compiled for, by name; the graph executor's part
graph_executor_codegen.py function_metadata.py  TVM's interface to it; what is known of each function
executor.py interpreter.py      ``relay.create_executor``, and values
calibration.py runtime.py       what flows through a module's functions; under which runtime a library is to run
progress.py                     what a build tells while it runs, and afterwards
"""

from tilewright.relay.backend.runtime import Runtime

__all__ = ["Runtime"]
