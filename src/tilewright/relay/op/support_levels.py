"""How central operators are (``Op.support_level``), as TVM's reference lists them; those that it leaves out are at 10.

1: what a multilayer perceptron takes. 2: convolutional networks. 3: more mathematics and moving of elements.
4: broadcasts and reductions. 5: vision. 6: sorting.
"""

from tilewright.ir.op import Op

_LEVELS = {
    1: "log sqrt rsqrt exp sigmoid add subtract multiply divide mod floor_divide floor_mod tanh concatenate "
    "expand_dims nn.softmax nn.log_softmax nn.relu nn.dropout nn.batch_norm nn.bias_add nn.dense",
    2: "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.max_pool1d "
    "nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool2d nn.global_avg_pool2d "
    "nn.upsampling nn.upsampling3d nn.batch_flatten nn.pad nn.lrn nn.l2_normalize nn.bitserial_conv2d nn.correlation",
    3: "nn.leaky_relu nn.prelu reshape copy transpose squeeze floor ceil sign trunc clip round abs negative take zeros "
    "zeros_like ones ones_like full full_like gather gather_nd cast reinterpret split arange repeat tile reverse stack",
    4: "right_shift left_shift equal not_equal greater greater_equal less less_equal all any logical_and logical_or "
    "logical_not logical_xor maximum minimum power where argmax argmin sum max min mean variance prod strided_slice "
    "broadcast_to",
    5: "image.resize1d image.resize2d image.resize3d image.crop_and_resize image.dilation2d vision.multibox_prior "
    "vision.multibox_transform_loc vision.non_max_suppression vision.yolo_reorg",
    6: "topk sort argsort",
}

for _level, _names in _LEVELS.items():
    for _name in _names.split():
        Op.get(_name).set_support_level(_level)
