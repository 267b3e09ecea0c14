"""What this back end is, for ``python -m tilewright.testing.backend_kit tilewright_guarded.kit``."""

from tilewright import runtime
from tilewright.testing.backend_kit import Backend


def held() -> tuple[int, int]:
    """Bytes given out, and executors."""
    numbers = [runtime.get_global_func(f"guarded.{name}") for name in ("allocated", "executors")]
    return numbers[0](), numbers[1]()


BACKEND = Backend("guarded", device="guarded", target="guarded", devices=("guarded",), held=held)
