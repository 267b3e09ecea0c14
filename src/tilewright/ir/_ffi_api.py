"""TVM 0.8's names of functions that its Python reaches in C++, for programs that call them."""

from tilewright.ir.json import load_json as LoadJSON
from tilewright.ir.json import save_json as SaveJSON

__all__ = ["LoadJSON", "SaveJSON"]
