"""What tests and benchmarks share: `zoo` holds real networks with random weights, exported to ONNX."""
