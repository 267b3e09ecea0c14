"""TVM's place of what ``topi.utils`` says about padding."""

from tilewright.topi.utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d

__all__ = ["get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d"]
