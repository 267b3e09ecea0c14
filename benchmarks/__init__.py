"""Measurements of Tilewright beside other engines, and of what this machine could do at best.

`latency` compares whole models across engines (``python -m benchmarks.latency --help``), `peak` measures the
machine's floating-point peak and copy bandwidth (``python -m tilewright.doctor.peak``). Below them: `engines` (how
each engine is loaded and run), `worker` and `client` (one process per engine and the pipe to it), `flops`
(the work in an ONNX model), `report` (statistics, table, JSON), `plot` (the ratios as SVG).
"""
