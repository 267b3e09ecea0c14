"""The options ``topi.*`` of ``PassContext``, declared when one of them is first used."""

from __future__ import annotations

from tilewright.ir.transform import PassContext

OPTION = "topi.matmul_precision"
HIGHEST, MEDIUM = "highest", "medium"

PassContext.register_option(
    OPTION,
    str,
    HIGHEST,
    'how float32 products are computed where the processor has AMX: "highest", to float32\'s error; "high", to 16 bits '
    'of each factor; "medium", to 8 (bfloat16)',
)
