"""``tvm.topi.testing``: numpy references of operators, and schedules by target.

common.py        schedules by target, and a comparison
references.py    the operators' meaning in numpy, under TVM's names
"""

from tilewright.topi.testing.common import *  # noqa: F403
from tilewright.topi.testing.references import *  # noqa: F403
