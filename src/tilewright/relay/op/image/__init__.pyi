# Written by `python -m tests.relay.op.builder_stubs`; a test compares it.
from tilewright.ir.expr import RelayExpr
from tilewright.relay.expr import Call
from tilewright.relay.op.attributes import Ints, Operand, Shape

__all__ = ['affine_grid', 'crop_and_resize', 'dilation2d', 'grid_sample', 'resize1d', 'resize2d', 'resize3d']

def affine_grid(data: Operand, target_shape: Ints | None = None) -> Call: 'The points of a grid over [-1, 1] x [-1, 1], mapped by affine transformations.'
def crop_and_resize(data: Operand, boxes: Operand, box_indices: Operand, crop_size: Ints, layout: str, method: str = 'bilinear', extrapolation_value: float = 0.0, out_dtype: str | None = None) -> Call: 'The parts ``boxes`` of images ``data``, each resized to ``crop_size``.'
def dilation2d(data: Operand, weight: Operand, strides: Ints = (1, 1), padding: Ints = (0, 0), dilations: Ints = (1, 1), data_layout: str = 'NCHW', kernel_layout: str = 'IHW', out_dtype: str = '') -> Call: 'Morphological dilation: the greatest of ``data`` + ``weight`` over each window, channel by channel.'
def grid_sample(data: Operand, grid: Operand, method: str = 'bilinear', layout: str = 'NCHW', padding_mode: str = 'zeros', align_corners: bool = True) -> Call: 'Values of ``data`` (batch, channels, height, width) at the points of ``grid`` (batch, 2, ...), x before y.'
def resize1d(data: Operand, size: Shape, layout: str = 'NCW', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, out_dtype: str | None = None) -> Call: '``data`` resized to ``size``; parameters as in ``resize2d``.'
def resize2d(data: Operand, size: RelayExpr | Shape, layout: str = 'NCHW', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, out_dtype: str | None = None) -> Call: '``data`` resized to ``size`` (height, width).'
def resize3d(data: Operand, size: Shape, layout: str = 'NCDHW', method: str = 'linear', coordinate_transformation_mode: str = 'half_pixel', rounding_method: str = '', cubic_alpha: float = -0.5, cubic_exclude: int = 0, out_dtype: str | None = None) -> Call: '``data`` resized to ``size`` (depth, height, width); parameters as in ``resize2d``.'
