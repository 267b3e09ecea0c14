"""From a fused module to what runs.

te_compiler.py                            primitive functions to kernels
graph_codegen.py views.py memory_plan.py  the graph executor's graph and its storage
executor.py interpreter.py                ``relay.create_executor``, and values
progress.py                               what a build tells while it runs, and afterwards
"""
