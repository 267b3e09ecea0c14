"""TVM's name ``tvm.contrib.cuda_graph``."""
