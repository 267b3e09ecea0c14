"""``tvm.contrib.cuda_graph``."""
