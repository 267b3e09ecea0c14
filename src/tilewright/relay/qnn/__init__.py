"""Quantized networks: operators that say what integers mean, and the exact arithmetic that they are computed by.

op.py           what users build programs of
operators/      each operator: its type, its meaning in numpy, and what it becomes
move_bytes.py   MoveBytes: what moves numbers moves their integers
byte_dense.py   dense layers, byte_pairs.py products of computed matrices, byte_products.py convolutions: on targets
                that multiply bytes fast
groups.py       which operators between the two are computed on the integers, and how: one description for all targets
decisions.py    which operators these are, and why not the others
exact.py        groups in operators that every target has; integer_products.py integer_steps.py on integers alone
skip_bytes.py   numbers that need not become bytes
run_time.py     products of data whose scale the program computes
transform.py    CanonicalizeOps: the groups, and what is left, in operators that every target has
fake_quantization.py   FakeQuantizationToInteger, by the rules in fake_quantization_rules.py
"""

from tilewright.ir.load_on_use import load_on_use
from tilewright.relay.qnn import op as op

__getattr__, __dir__ = load_on_use(__name__, [".groups", ".transform"])  # they load all passes
