"""What only an NVIDIA GPU can show, by ``make test-gpu``: no machine of continuous integration has one."""

import pytest

from tilewright import runtime

only_on_nvidia = [
    pytest.mark.soak,
    pytest.mark.skipif(not runtime.cuda(0).exist, reason="there is no NVIDIA GPU"),
]
