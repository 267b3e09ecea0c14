"""Models with named dimensions, and with shapes as inputs: one program at several shapes, beside ONNX's reference."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator
from tests.relay.frontend.dynamic_models import RNG, check, floats, ints, machine_of, model_of, numbers, outputs_of

import tilewright as tvm
from tilewright import relay


def test_dense_layer() -> None:
    weights = f"<float[4, 6] w = {{{numbers(24)}}}>"
    text = f"(float[b, s, 4] x) => (float[b, s, 6] y) {weights} {{ p = MatMul(x, w)  y = Softmax(p) }}"
    check(text, *({"x": floats(b, s, 4)} for b, s in ((1, 1), (2, 3), (5, 7))))


def test_attention_with_shapes_computed_as_exporters_do() -> None:
    text = """(float[b, s, 8] x) => (float[b, s, 8] y) {
      shape = Shape(x)  zero = Constant<value_int=0>()  one = Constant<value_int=1>()
      first = Constant<value_ints=[0]>()
      b0 = Gather(shape, zero)  s0 = Gather(shape, one)  b1 = Unsqueeze(b0, first)  s1 = Unsqueeze(s0, first)
      heads = Constant<value_ints=[2]>()  size = Constant<value_ints=[4]>()  whole = Constant<value_ints=[8]>()
      apart = Concat<axis=0>(b1, s1, heads, size)  split = Reshape(x, apart)
      q = Transpose<perm=[0, 2, 1, 3]>(split)  k = Transpose<perm=[0, 2, 3, 1]>(split)
      scores = MatMul(q, k)  p = Softmax<axis=-1>(scores)  mixed = MatMul(p, q)
      back = Transpose<perm=[0, 2, 1, 3]>(mixed)  joined = Concat<axis=0>(b1, s1, whole)  y = Reshape(back, joined) }"""
    model = model_of(text)
    mod, _ = relay.frontend.from_onnx(model)
    assert "dyn." not in str(mod)  # every shape is told by the names
    assert "Tensor[(b, s, 8), float32]" in str(mod)
    check(text, *({"x": floats(b, s, 8)} for b, s in ((1, 1), (2, 3), (5, 7))))


def test_positions_and_mask_of_a_transformer() -> None:
    text = """(int64[b, s] ids) => (float[b, s, 4] y, float[b, 1, s, s] m) <float[9, 4] table = {VALUES}> {
      shape = Shape(ids)  zero = Constant<value_int=0>()  one = Constant<value_int=1>()
      s0 = Gather(shape, one)  r = Range(zero, s0, one)  first = Constant<value_ints=[0]>()  p = Unsqueeze(r, first)
      places = Gather(table, p)  words = Gather(table, ids)  y = Add(words, places)
      middle = Constant<value_ints=[1, 2]>()  wide = Unsqueeze(ids, middle)
      b1 = Shape<start=0, end=1>(ids)  s1 = Shape<start=1>(ids)  o1 = Constant<value_ints=[1]>()
      full = Concat<axis=0>(b1, o1, s1, s1)  e = Expand(wide, full)  m = Cast<to=1>(e) }""".replace(
        "VALUES", numbers(36)
    )
    check(text, {"ids": np.array([[1, 2], [0, -1]])}, {"ids": np.array([[1, 2, 8, 8, 8, 1]])})


def test_growing_cache() -> None:
    text = """(float[b, p, 4] past, float[b, s, 4] x) => (float[b, t, 4] y, float[b, s, t] z) {
      y = Concat<axis=1>(past, x)  k = Transpose<perm=[0, 2, 1]>(y)  z = MatMul(x, k) }"""
    runs = [{"past": floats(b, p, 4), "x": floats(b, s, 4)} for b, p, s in ((1, 3, 1), (2, 0, 5))]
    check(text, *runs, dims={"p": (0, 100)})


def test_pictures_of_any_size() -> None:
    text = """(float[b, 3, h, w] x) => (float[b, 4, p, q] y) <float[4, 3, 3, 3] k = {%s}> {
      c = Conv<pads=[1, 1, 1, 1]>(x, k)  r = Relu(c)  y = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(r) }"""
    check(text % numbers(108), {"x": floats(1, 3, 8, 8)}, {"x": floats(2, 3, 7, 5)})


RUN_TIME_SHAPES = {
    "Reshape": (
        "(float[b, s] x, int64[2] to) => (float[p, q] y) { y = Reshape(x, to) }",
        [{"x": floats(2, 6), "to": ints(3, -1)}, {"x": floats(2, 6), "to": ints(0, 6)}],
    ),
    "Expand": (
        "(float[b, 1] x, int64[3] to) => (float[p, q, r] y) { y = Expand(x, to) }",
        [{"x": floats(2, 1), "to": ints(3, 1, 4)}, {"x": floats(1, 1), "to": ints(2, 5, 1)}],
    ),
    "Slice": (
        "(float[b, s] x, int64[1] a, int64[1] e) => (float[b, q] y) "
        "{ i = Constant<value_ints=[1]>()  y = Slice(x, a, e, i) }",
        [
            {"x": floats(2, 6), "a": ints(1), "e": ints(-1)},
            {"x": floats(3, 9), "a": ints(-4), "e": ints(100)},
            {"x": floats(3, 9), "a": ints(2**62), "e": ints(2**62)},
        ],
    ),
    "Range": (
        "(int64 a, int64 b, int64 c) => (int64[n] y) { y = Range(a, b, c) }",
        [dict(zip("abc", map(np.array, v), strict=True)) for v in ((0, 5, 1), (3, 10, 4), (10, 0, -3), (5, 5, 1))],
    ),
    "Range of floats": (
        "(float a, float b, float c) => (float[n] y) { y = Range(a, b, c) }",
        [dict(zip("abc", map(np.float32, v), strict=True)) for v in ((0, 5, 1), (3, 10, 0.5), (10, 0, -3))],
    ),
    "ConstantOfShape": (
        "(int64[2] s) => (float[p, q] y) { y = ConstantOfShape(s) }",
        [{"s": ints(2, 3)}, {"s": ints(1, 7)}, {"s": ints(0, 7)}],
    ),
    "Tile": (
        "(float[b, 3] x, int64[2] t) => (float[p, q] y) { y = Tile(x, t) }",
        [{"x": floats(2, 3), "t": ints(1, 2)}, {"x": floats(1, 3), "t": ints(3, 1)}],
    ),
    "Pad": (
        "(float[b, 3] x, int64[4] t) => (float[p, q] y) { y = Pad(x, t) }",
        [{"x": floats(2, 3), "t": ints(1, 2, 0, 1)}, {"x": floats(4, 3), "t": ints(0, 1, 1, 0)}],
    ),
    "Pad that repeats": (
        "(float[b, 3] x, int64[4] t) => (float[p, q] y, float[p, q] z, float[p, q] w) { "
        'y = Pad<mode = "edge">(x, t)  z = Pad<mode = "reflect">(x, t)  w = Pad<mode = "wrap">(x, t) }',
        [{"x": floats(2, 3), "t": ints(1, 0, 0, 2)}, {"x": floats(5, 3), "t": ints(4, 2, 3, 1)}],
    ),
    "Pad of chosen axes": (
        "(float[b, c] x, int64[2] t) => (float[p, q] y, float[b, q] z) { a = Constant<value_ints=[-1]>() "
        'v = Constant<value=float {2.5}>()  y = Pad(x, t, v, a)  z = Pad<mode = "edge">(x, t, v, a) }',
        [{"x": floats(2, 3), "t": ints(1, 2)}, {"x": floats(1, 4), "t": ints(0, 1)}],
    ),
    "Trilu": (
        "(float[4, 5] x, int64 k) => (float[4, 5] y) { y = Trilu<upper=1>(x, k) }",
        [{"x": floats(4, 5), "k": np.array(k)} for k in (1, -2, 0, 9)],
    ),
    "NonZero": (
        "(float[a, b] x) => (int64[2, n] y) { y = NonZero(x) }",
        [{"x": np.array([[1, 0, 2], [0, 0, 3]], "float32")}, {"x": np.zeros((3, 2), "float32")}, {"x": floats(5, 5)}],
    ),
    "OneHot": (
        "(int64[n] x, int64 d, float[2] v) => (float[n, m] y) { y = OneHot(x, d, v) }",
        [{"x": ints(0, 2, -1), "d": np.array(4), "v": floats(2)}, {"x": ints(1), "d": np.array(2), "v": floats(2)}],
    ),
    "TopK": (
        "(float[b, 9] x, int64[1] k) => (float[b, q] y, int64[b, q] z) { y, z = TopK(x, k) }",
        [{"x": floats(2, 9), "k": ints(3)}, {"x": floats(3, 9), "k": ints(1)}, {"x": floats(1, 9), "k": ints(9)}],
    ),
    "Split": (
        "(float[b, 7] x, int64[3] n) => (float[b, p] y, float[b, q] z, float[b, r] w) "
        "{ y, z, w = Split<axis=1>(x, n) }",
        [{"x": floats(2, 7), "n": ints(1, 2, 4)}, {"x": floats(3, 7), "n": ints(0, 7, 0)}],
    ),
    "Split of any extent": (
        "(float[b, s] x) => (float[b, p] y, float[b, q] z) { y, z = Split<axis=1, num_outputs=2>(x) }",
        [{"x": floats(2, 6)}, {"x": floats(3, 7)}, {"x": floats(3, 1)}],
    ),
    "Slice backwards": (
        "(float[n] x, int64[1] a, int64[1] e, int64[1] i) => (float[q] y) { z = Constant<value_ints=[0]>() "
        "y = Slice(x, a, e, z, i) }",
        [
            {"x": floats(n), "a": ints(a), "e": ints(e), "i": ints(i)}
            for n, a, e, i in ((1, 0, -2, -1), (7, -1, -(2**62), -3), (5, 2**62, 1, -1), (3, 1, 7, 1), (2, 5, -3, -2))
        ],
    ),
    "Gather": (
        "(float[a, b] x, int64[n] j) => (float[n, b] y, float[b] z) "
        "{ y = Gather(x, j)  l = Constant<value_int=-1>()  z = Gather(x, l) }",
        [{"x": floats(3, 2), "j": ints(0, -1)}, {"x": floats(5, 1), "j": ints(4, -5, 2)}],
    ),
}


@pytest.mark.parametrize("name", RUN_TIME_SHAPES)
def test_shape_that_is_an_input(name: str) -> None:
    text, runs = RUN_TIME_SHAPES[name]
    check(text, *runs)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_any_extent_also_crop(mode: str) -> None:
    """Beside numpy, of what is left: the reference crops nothing, ONNX Runtime wraps nothing."""
    text = (
        "(float[a, b] x) => (float[p, q] y) { t = Constant<value_ints=[-1, 2, 1, -2]>()  y = Pad<mode = MODE>(x, t) }"
    )
    machine = machine_of(model_of(text.replace("MODE", f'"{mode}"'), opset=19))
    for shape in ((3, 4), (2, 3)):
        x = floats(*shape)
        wanted = np.pad(x[1:, :-2], ((0, 1), (2, 0)), mode=mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(outputs_of(machine, {"x": x})[0], wanted)


def test_nothing_is_repeated_of_an_empty_axis() -> None:
    text = '(float[n, 2] x, int64[4] t) => (float[p, q] y) { y = Pad<mode = "edge">(x, t) }'
    machine = machine_of(model_of(text))
    with pytest.raises(tvm.TVMError, match="repeat what is empty"):
        machine.run(floats(3, 2), ints(-3, 0, 1, 0))
    assert machine.run(floats(3, 2), ints(-3, 0, 0, 0)).shape == (0, 2)


def test_sizes_that_are_computed_in_floating_point_are_known() -> None:
    """As exporters write ``int(math.ceil(h / 4) * 4)`` and ``int(w * 0.5)``."""
    text = """(float[b, 6, h, w] x) => (float[b, 6, p, q] y) {
      n = Shape<start=0, end=2>(x)  s = Shape<start=2>(x)  i0 = Constant<value_ints=[0]>()
      i1 = Constant<value_ints=[1]>()
      f = Cast<to=1>(s)  h = Gather(f, i0)  w = Gather(f, i1)  four = Constant<value_float=4.0>()
      part = Div(h, four)  up = Ceil(part)  hh = Mul(up, four)  half = Constant<value_float=0.5>()  ww = Mul(w, half)
      sizes = Concat<axis=0>(hh, ww)  whole = Cast<to=7>(sizes)  to = Concat<axis=0>(n, whole)
      y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , , to) }"""
    model = model_of(text, opset=18)
    found = str(relay.transform.InferType()(relay.frontend.from_onnx(model)[0])["main"].ret_type)
    assert "?" not in found and "floordiv(w, 2)" in found, found
    check(text, *({"x": floats(1, 6, h, w)} for h, w in ((8, 8), (5, 7), (1, 2))), opset=18)


def test_weights_say_how_many_channels_a_computed_shape_has() -> None:
    text = """(float[n] x, int64[4] to, float[5, 3, 3, 3] k, float[4] g) => (float[a, b, c, d] y, float[a, b, c, d] z) {
      r = Reshape(x, to)  y = Conv(r, k)  z = LayerNormalization(r, g) }"""
    model = model_of(text)
    weights = {"k": floats(5, 3, 3, 3), "g": floats(4)}
    check(text, *({"x": floats(n), "to": ints(*to)} | weights for n, to in ((48, (1, 3, 4, 4)), (144, (2, 3, 6, 4)))))
    with pytest.raises(tvm.TVMError, match=r"'r': the shape that the weights tell \(1, 3, 3, 4\) is not that of data"):
        machine_of(model).run(x=floats(48), to=ints(1, 4, 3, 4), **weights)


def test_names_and_ranges_are_checked_before_anything_runs() -> None:
    text = "(float[b, s] x, float[b, 3] z) => (float[b, s] y) { y = Mul(x, x)  w = Neg(z) }"
    machine = machine_of(model_of(text), dims={"b": (1, 4), "s": (8, 64, 8)})
    assert machine.run(floats(4, 16), floats(4, 3)).shape == (4, 16)
    for x, z, said in (
        (floats(5, 8), floats(5, 3), 'input "x": b is 5; the program was compiled for 1 to 4'),
        (floats(2, 9), floats(2, 3), 'input "x": s is 9; the program was compiled for multiples of 8'),
        (floats(2, 8), floats(3, 3), 'input "z": dimension 0, b, is 3 here and 2 in "x"'),
        (floats(2, 8), floats(2, 4), 'input "z": dimension 1 is 3, not 4'),
        (floats(2, 8, 1), floats(2, 3), 'input "x": expected 2 dimensions, (b,s), got 3'),
        (floats(2, 8).astype("float64"), floats(2, 3), 'input "x": expected float32, got float64'),
    ):
        with pytest.raises(tvm.TVMError, match=said.replace("(", r"\(").replace(")", r"\)")):
            machine.run(x, z)
    assert machine.run(floats(1, 8), floats(1, 3)).shape == (1, 8)


def test_a_dimension_may_be_given_a_number_or_another_name() -> None:
    model = model_of("(float[b, 3] x) => (float[b, 3] y) { y = Relu(x) }")
    assert "Tensor[(4, 3), float32]" in str(relay.frontend.from_onnx(model, dims={"b": 4})[0])
    assert "Tensor[(rows, 3), float32]" in str(relay.frontend.from_onnx(model, {"x": ("rows", 3)})[0])
    assert "Tensor[(?, 3), float32]" in str(relay.frontend.from_onnx(model, {"x": (relay.Any(), 3)})[0])


def test_the_graph_executor_asks_for_numbers_or_the_machine() -> None:
    mod, params = relay.frontend.from_onnx(model_of("(float[b, 3] x) => (float[b, 3] y) { y = Relu(x) }"))
    with pytest.raises(tvm.TVMError, match=r"relay\.vm\.compile"):
        relay.build(mod, "llvm", params=params)


def encoder_layer() -> onnx.ModelProto:
    """A layer of a transformer, hidden size 32, 4 heads: ids and mask in; its shapes computed as exporters do."""
    weights = {"table": (20, 32), "place": (64, 32), "wq": (32, 32), "wk": (32, 32), "wv": (32, 32), "wo": (32, 32)}
    weights |= {"w1": (32, 128), "w2": (128, 32), "bq": (32,), "b1": (128,), "g": (32,), "be": (32,)}
    text = """(int64[batch, seq] ids, int64[batch, seq] mask) => (float[batch, seq, 32] y) {
      one = Constant<value_int=1>()  zero = Constant<value_int=0>()  s = Shape(ids)  length = Gather(s, one)
      places = Range(zero, length, one)  pe = Gather(place, places)  we = Gather(table, ids)  x0 = Add(we, pe)
      x = LayerNormalization(x0, g, be)
      b1d = Shape<start=0, end=1>(ids)  s1d = Shape<start=1>(ids)
      hs = Constant<value_ints=[4, 8]>()  h = Constant<value_ints=[32]>()
      apart = Concat<axis=0>(b1d, s1d, hs)  together = Concat<axis=0>(b1d, s1d, h)
      q0 = MatMul(x, wq)  q1 = Add(q0, bq)  q2 = Reshape(q1, apart)  q = Transpose<perm=[0, 2, 1, 3]>(q2)
      k0 = MatMul(x, wk)  k1 = Add(k0, bq)  k2 = Reshape(k1, apart)  k = Transpose<perm=[0, 2, 3, 1]>(k2)
      v0 = MatMul(x, wv)  v2 = Reshape(v0, apart)  v = Transpose<perm=[0, 2, 1, 3]>(v2)
      scores = MatMul(q, k)  two = Constant<value_ints=[1, 2]>()  m0 = Unsqueeze(mask, two)  m1 = Cast<to=1>(m0)
      f1 = Constant<value_float=1.0>()  m2 = Sub(f1, m1)  low = Constant<value_float=-1e4>()  m3 = Mul(m2, low)
      masked = Add(scores, m3)  p = Softmax<axis=-1>(masked)  c0 = MatMul(p, v)
      c1 = Transpose<perm=[0, 2, 1, 3]>(c0)  c = Reshape(c1, together)  o = MatMul(c, wo)  r = Add(o, x)
      n = LayerNormalization(r, g, be)  u0 = MatMul(n, w1)  u1 = Add(u0, b1)  u = Gelu(u1)
      d = MatMul(u, w2)  z = Add(d, n)  y = LayerNormalization(z, g, be) }"""
    model = model_of(text, opset=20)
    for name, shape in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(floats(*shape) / 4, name))
    return model


def test_transformer_is_right_at_twelve_shapes_of_one_program() -> None:
    model = encoder_layer()
    with tvm.transform.PassContext(opt_level=3):
        machine = machine_of(model, dims={"batch": (1, 8), "seq": (1, 64)})
    reference = ReferenceEvaluator(model)
    for b, s in (
        *((1, 1), (1, 2), (1, 7), (1, 16), (1, 33), (1, 64)),
        *((2, 5), (3, 1), (4, 17), (5, 31), (8, 3), (8, 64)),
    ):
        mask = np.ones((b, s), "int64")
        mask[:, 1 + s // 2 :] = 0
        inputs = {"ids": RNG.integers(-20, 20, (b, s)), "mask": mask}
        (found,), (wanted,) = outputs_of(machine, inputs), reference.run(None, inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=f"{b} x {s}")


def test_transformer_with_named_dimensions_takes_the_kernels_of_known_ones() -> None:
    mod, params = relay.frontend.from_onnx(encoder_layer(), dims={"batch": (1, 8), "seq": (1, 64)})
    with tvm.transform.PassContext(opt_level=3):
        kernels = " ".join(relay.vm.compile(mod, "llvm -opt-level=0", params=params).primitive_ops)
    assert "contrib_dense_pack_add_nn_gelu" in kernels  # packed weights; the bias and the activation in one kernel
    assert "layer_norm" in kernels
    assert "nn_attention" in kernels and "batch_matmul" not in kernels
    assert "nn_dense" not in kernels


LOOP = """(float[b, 3] x, int64 n) => (float[b, 3] y, float[m, 2] z) {
  c = Constant<value = bool {1}>()
  y, z = Loop(n, c, x) <body = l (int64 i, bool ci, float[b, 3] v) => (bool co, float[b, 3] w, float[2] s) {
    co = Identity(ci)  d = Constant<value_float=1.5>()  w = Add(v, d)
    fi = Cast<to=1>(i)  u = Constant<value_floats=[1.0, 2.0]>()  s = Mul(fi, u) }> }"""

CONTROL = {
    "If with branches of other shapes": (
        """(float[b, 3] x, bool c) => (float[b, 3] y, float[n, 2] z) {
          y, z = If(c) <
            then_branch = t () => (float[b, 3] y1, float[n, 2] z1) {
              y1 = Relu(x)  z1 = Constant<value = float[1, 2] {1, 2}>() },
            else_branch = e () => (float[b, 3] y2, float[n, 2] z2) {
              y2 = Neg(x)  z2 = Constant<value = float[2, 2] {1, 2, 3, 4}>() }> }""",
        [{"x": floats(2, 3), "c": np.array(True)}, {"x": floats(1, 3), "c": np.array(False)}],
    ),
    "Loop that collects": (LOOP, [{"x": floats(2, 3), "n": np.array(n)} for n in (1, 5)]),
    "Loop whose value grows": (
        """(float[b, 3] x, int64 n) => (float[m, 3] y) {
          c = Constant<value = bool {1}>()
          y = Loop(n, c, x) <body = l (int64 i, bool ci, float[q, 3] v) => (bool co, float[r, 3] w) {
            co = Identity(ci)  w = Concat<axis=0>(v, x) }> }""",
        [{"x": floats(2, 3), "n": np.array(n)} for n in (0, 1, 5)],
    ),
    "Loop that a condition ends": (
        """(float x) => (float y) {
          c = Constant<value = bool {1}>()
          y = Loop(, c, x) <body = l (int64 i, bool ci, float v) => (bool co, float w) {
            two = Constant<value_float=2.0>()  w = Mul(v, two)
            most = Constant<value_float=100.0>()  co = Less(w, most) }> }""",
        [{"x": np.float32(v)} for v in (1, 30, 200)],
    ),
    "Scan of any length": (
        """(float[2] s, float[t, 2] x) => (float[2] y, float[t, 2] z) {
          y, z = Scan<num_scan_inputs=1, body = l (float[2] a, float[2] b) => (float[2] c, float[2] d) {
            c = Add(a, b)  d = Identity(c) }>(s, x) }""",
        [{"s": floats(2), "x": floats(t, 2)} for t in (4, 1, 9)],
    ),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_that_is_decided_when_the_model_runs(name: str) -> None:
    text, runs = CONTROL[name]
    check(text, *runs)


def test_loop_without_a_round_collects_nothing() -> None:
    x = floats(2, 3)
    y, z = outputs_of(machine_of(model_of(LOOP)), {"x": x, "n": np.array(0)})
    np.testing.assert_array_equal(y, x)
    assert z.shape == (0, 2)


def test_what_no_round_collects_has_the_dimensions_of_the_inputs() -> None:
    """Zero rounds, known while importing or not: rows as the body's types have them."""
    loop = """c = Constant<value = bool {1}>()  y, z = Loop(n, c, x) <
      body = l (int64 i, bool ci, float[p, q] v) => (bool co, float[p, q] w, float[r, s] t) {
        co = Identity(ci)  w = Tanh(v)  t = Concat<axis=1>(v, x) }>"""
    for text in (
        f"(float[b, 3] x, int64 n) => (float[b, 3] y, float[m, r, s] z) {{ {loop} }}",
        f"(float[b, 3] x) => (float[b, 3] y, float[m, r, s] z) {{ n = Constant<value_int=0>()  {loop} }}",
    ):
        model, x = model_of(text), floats(2, 3)
        inputs = {"x": x, "n": np.array(0)}
        y, z = outputs_of(machine_of(model), {v.name: inputs[v.name] for v in model.graph.input})
        np.testing.assert_array_equal(y, x)
        assert z.shape == (0, 2, 6)


def test_extents_shorter_than_a_vector_have_kernels() -> None:
    text = """(float[m, m, m] x) => (float[m, m, m] y) {
      a = Tanh(x)  b = Transpose<perm=[0, 2, 1]>(a)  c = MatMul(a, b)  y = Relu(c) }"""
    check(text, *({"x": floats(m, m, m)} for m in (1, 2, 3)), dims={"m": (1, 3)})


def test_control_flow_runs_at_every_opt_level() -> None:
    x = floats(2, 3)
    for level in range(4):
        with tvm.transform.PassContext(opt_level=level):
            machine = machine_of(model_of(LOOP))
        y, z = outputs_of(machine, {"x": x, "n": np.array(2)})
        np.testing.assert_allclose(y, x + 3, rtol=1e-6)
        np.testing.assert_array_equal(z, [[0, 0], [1, 2]])


def test_loop_that_never_ends_meets_the_bound() -> None:
    machine = machine_of(model_of(CONTROL["Loop that a condition ends"][0]))
    machine.set_limits(calls=1000)
    with pytest.raises(tvm.TVMError, match="more calls than it may"):
        machine.run(np.float32(0))
    assert machine.run(np.float32(60)).numpy() == 120


def test_attention_over_no_keys_is_zero() -> None:
    text = """(float[2, 3, q, 4] x, float[2, 3, 4, k] y, float[2, 3, k, 4] z) => (float[2, 3, q, 4] o) {
      s = MatMul(x, y)  p = Softmax<axis=-1>(s)  o = MatMul(p, z) }"""
    runs = [{"x": floats(2, 3, q, 4), "y": floats(2, 3, 4, k), "z": floats(2, 3, k, 4)} for q, k in ((1, 0), (5, 3))]
    with tvm.transform.PassContext(opt_level=3):
        machine = machine_of(model_of(text), dims={"k": (0, 8), "q": (1, 8)})
    for inputs in runs:
        scores = np.exp((inputs["x"] @ inputs["y"]).astype("float64"))
        wanted = scores / scores.sum(-1, keepdims=True) @ inputs["z"]
        np.testing.assert_allclose(outputs_of(machine, inputs)[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_dimension_may_be_a_sum_of_others() -> None:
    """As exporters name the length of a mask: each run checks it, wherever the input stands."""
    text = """(float[sum, 1] mask, float[past, 3] x, float[new, 3] y) => (float[total, 3] z) {
      w = Concat<axis=0>(x, y)  z = Mul(mask, w) }"""
    model = model_of(text)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "past + new"
    machine = machine_of(model, dims={"past": (0, 9)})
    for past, new in ((0, 1), (5, 1), (3, 4)):
        given = {"mask": floats(past + new, 1), "x": floats(past, 3), "y": floats(new, 3)}
        wanted = given["mask"] * np.concatenate([given["x"], given["y"]])
        np.testing.assert_array_equal(outputs_of(machine, given)[0], wanted)
    with pytest.raises(tvm.TVMError, match=r'input "mask": dimension 0 is 6, and past\+new, of other inputs, is 7'):
        machine.run(mask=floats(6, 1), x=floats(3, 3), y=floats(4, 3))


def test_inputs_without_a_shape_have_the_rank_that_their_nodes_need() -> None:
    table, bare = np.ones((9, 4), "float32"), onnx.TypeProto()
    bare.tensor_type.elem_type = onnx.TensorProto.INT64
    inputs = [onnx.helper.make_value_info(name, bare) for name in ("ids", "mask")]
    nodes = [
        onnx.helper.make_node("Gather", ["table", "ids"], ["rows"]),
        onnx.helper.make_node("Cast", ["mask"], ["share"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Unsqueeze", ["share", "last"], ["shares"]),
        onnx.helper.make_node("Mul", ["rows", "shares"], ["y"]),
    ]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ("b", "s", 4))]
    weights = [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(np.array([-1]), "last")]
    graph = onnx.helper.make_graph(nodes, "bare", inputs, outputs, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    mod, _ = relay.frontend.from_onnx(model)
    assert [len(p.checked_type.shape) for p in mod["main"].params[:2]] == [2, 2]
