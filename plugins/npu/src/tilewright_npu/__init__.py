"""An emulated NPU for Tilewright: its driver, device, and the parts of a compiler that a vendor brings.

Entry points make it known: ``tvm.device("npu")``, ``Target("npu")``, ``relay.ext.npu`` are found once it is installed.
"""
