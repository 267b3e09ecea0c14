"""What tests and benchmarks share.

`zoo`: real networks with random weights, exported to ONNX. `light`: the graphs that the onnx package carries.
`compiled`: compiling and running a model in a test. `torch_relay`: Relay evaluated by PyTorch.
"""
