/* Pixels ``a`` and ``b`` of an image, or copies of their windows: rows of ``length`` bytes. */
struct tw_tile_@T@ {
  const @T@_t *a, *b;
  int32_t row_a, row_b, rows, length;
};

#if defined(TW_MVE)
/* sums[0..3] of pixel a, with the weights of four channels, ``size`` bytes apart. */
TW_HOT void tw_four_dots_@T@(const struct tw_tile_@T@* tile, const int8_t* const* weights, int32_t* TW_RESTRICT sums) {
  const @T@_t* a = tile->a;
  const int8_t *w0 = weights[0], *w1 = weights[1], *w2 = weights[2], *w3 = weights[3];
  int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3], row, i;
#define TW_STEP(data, weights, count)        \
  {                                          \
    const tw_vector_@T@ pixels = data(a);    \
    s0 = tw_dot_@T@(s0, pixels, weights(w0)); \
    s1 = tw_dot_@T@(s1, pixels, weights(w1)); \
    s2 = tw_dot_@T@(s2, pixels, weights(w2)); \
    s3 = tw_dot_@T@(s3, pixels, weights(w3)); \
    a += count;                              \
    w0 += count;                             \
    w1 += count;                             \
    w2 += count;                             \
    w3 += count;                             \
  }
#define TW_SOME_DATA(from) tw_some_data_@T@(from, (uint32_t)i)
#define TW_SOME_WEIGHTS(from) tw_some_weights_@T@(from, (uint32_t)i)
  for (row = tile->rows; row > 0; row--) {
    for (i = tile->length; i >= TW_LANES_@T@; i -= TW_LANES_@T@) {
      TW_STEP(tw_data_@T@, tw_weights_@T@, TW_LANES_@T@)
    }
    if (i > 0) TW_STEP(TW_SOME_DATA, TW_SOME_WEIGHTS, i)
    a += tile->row_a - tile->length;
  }
#undef TW_STEP
#undef TW_SOME_DATA
#undef TW_SOME_WEIGHTS
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
}

/* All channels of a group, of one pixel. */
TW_TIGHT void tw_pixel_@T@(const struct tw_conv2d* g, const struct tw_tile_@T@* tile, const int8_t* w,
                           const struct tw_channel* channel, uint8_t* out) {
  const int32_t size = tile->rows * tile->length;
  int32_t left = g->oc / g->groups, sums[4], i;
  for (; left > 0; left -= 4, w += 4 * size, channel += 4, out += 4) {
    const int8_t* weights[4];
    for (i = 0; i < 4; i++) {
      weights[i] = w + (i < left ? i : 0) * size;
      sums[i] = channel[i < left ? i : 0].bias;
    }
    tw_four_dots_@T@(tile, weights, sums);
    tw_store(g, channel, sums, out, left < 4 ? left : 4);
  }
}

static void tw_pixels_@T@(const struct tw_conv2d* g, const struct tw_tile_@T@* tile, const int8_t* w,
                          const struct tw_channel* channel, uint8_t* out, uint8_t* next) {
  struct tw_tile_@T@ other = *tile;
  other.a = tile->b;
  other.row_a = tile->row_b;
  tw_pixel_@T@(g, tile, w, channel, out);
  if (next) tw_pixel_@T@(g, &other, w, channel, next);
}
#else
/* sums[0..1] of pixel a, sums[2..3] of pixel b, with the weights of two channels */
TW_HOT void tw_two_pixels_@T@(const struct tw_tile_@T@* tile, const int8_t* TW_RESTRICT v,
                                 const int8_t* TW_RESTRICT u, int32_t* TW_RESTRICT sums) {
  const @T@_t *a = tile->a, *b = tile->b;
  const int32_t length = tile->length;
  int32_t av = sums[0], au = sums[1], bv = sums[2], bu = sums[3], row, i;
#define TW_STEP(k)                                            \
  {                                                           \
    const int32_t pa = a[k], pb = b[k], pv = v[k], pu = u[k]; \
    av += pa * pv;                                            \
    au += pa * pu;                                            \
    bv += pb * pv;                                            \
    bu += pb * pu;                                            \
  }
  for (row = tile->rows; row > 0; row--) {
    i = length;
#if defined(TW_WORDS)
    for (; i >= 4; i -= 4, a += 4, b += 4, v += 4, u += 4) {
      const uint32_t pa = tw_word(a), pb = tw_word(b), pv = tw_word(v), pu = tw_word(u);
      const uint32_t a0 = tw_even_@T@(pa), a1 = tw_odd_@T@(pa), b0 = tw_even_@T@(pb), b1 = tw_odd_@T@(pb);
      const uint32_t v0 = tw_even_int8(pv), v1 = tw_odd_int8(pv), u0 = tw_even_int8(pu), u1 = tw_odd_int8(pu);
      av = tw_two_products(a1, v1, tw_two_products(a0, v0, av));
      au = tw_two_products(a1, u1, tw_two_products(a0, u0, au));
      bv = tw_two_products(b1, v1, tw_two_products(b0, v0, bv));
      bu = tw_two_products(b1, u1, tw_two_products(b0, u0, bu));
    }
#elif defined(TW_UNROLL)
    for (; i >= 4; i -= 4, a += 4, b += 4, v += 4, u += 4) {
      TW_STEP(0)
      TW_STEP(1)
      TW_STEP(2)
      TW_STEP(3)
    }
#endif
    for (; i > 0; i--, a++, b++, v++, u++) TW_STEP(0)
    a += tile->row_a - length;
    b += tile->row_b - length;
  }
#undef TW_STEP
  sums[0] = av;
  sums[1] = au;
  sums[2] = bv;
  sums[3] = bu;
}

/* sums[0..1] of pixel a alone */
TW_HOT void tw_one_pixel_@T@(const struct tw_tile_@T@* tile, const int8_t* TW_RESTRICT v,
                                const int8_t* TW_RESTRICT u, int32_t* TW_RESTRICT sums) {
  const @T@_t* a = tile->a;
  const int32_t length = tile->length;
  int32_t av = sums[0], au = sums[1], row, i;
  for (row = tile->rows; row > 0; row--) {
    i = length;
#if defined(TW_WORDS)
    for (; i >= 4; i -= 4, a += 4, v += 4, u += 4) {
      const uint32_t pa = tw_word(a), pv = tw_word(v), pu = tw_word(u);
      const uint32_t a0 = tw_even_@T@(pa), a1 = tw_odd_@T@(pa);
      av = tw_two_products(a1, tw_odd_int8(pv), tw_two_products(a0, tw_even_int8(pv), av));
      au = tw_two_products(a1, tw_odd_int8(pu), tw_two_products(a0, tw_even_int8(pu), au));
    }
#elif defined(TW_UNROLL)
    for (; i >= 4; i -= 4, a += 4, v += 4, u += 4) {
      av += a[0] * v[0] + a[1] * v[1] + a[2] * v[2] + a[3] * v[3];
      au += a[0] * u[0] + a[1] * u[1] + a[2] * u[2] + a[3] * u[3];
    }
#endif
    for (; i > 0; i--, a++, v++, u++) {
      av += a[0] * v[0];
      au += a[0] * u[0];
    }
    a += tile->row_a - length;
  }
  sums[0] = av;
  sums[1] = au;
}

/* All channels of a group, of one pixel, and of the next one unless ``next`` is NULL. */
TW_TIGHT void tw_pixels_@T@(const struct tw_conv2d* g, const struct tw_tile_@T@* tile, const int8_t* w,
                            const struct tw_channel* channel, uint8_t* out, uint8_t* next) {
  const int32_t size = tile->rows * tile->length;
  int32_t left = g->oc / g->groups, sums[4];
  for (; left > 0; left -= 2, w += 2 * size, channel += 2, out += 2) {
    const int32_t count = left > 1 ? 2 : 1;
    sums[0] = sums[2] = channel[0].bias;
    sums[1] = sums[3] = channel[count - 1].bias;
    if (next) {
      tw_two_pixels_@T@(tile, w, w + (count - 1) * size, sums);
      tw_store(g, channel, sums + 2, next, count);
      next += 2;
    } else {
      tw_one_pixel_@T@(tile, w, w + (count - 1) * size, sums);
    }
    tw_store(g, channel, sums, out, count);
  }
}
#endif

/* Weights are (oc, kh, kw, c / groups); ``patch`` has room for two windows. */
static void tw_conv2d_@T@(const struct tw_conv2d* g, const uint8_t* x, const int8_t* w,
                          const struct tw_channel* channel, uint8_t* out, uint8_t* patch) {
  const int32_t count = g->oc / g->groups, size = g->kh * g->kw * (g->c / g->groups);
  int32_t n, y, at, group, step;
  for (n = 0; n < g->images; n++, x += g->h * g->w * g->c) {
    for (y = 0; y < g->oh; y++) {
      for (at = 0; at < g->ow; at += 2, out += 2 * g->oc) {
        const int32_t pair = at + 1 < g->ow;
        for (group = 0; group < g->groups; group++) {
          struct tw_tile_@T@ tile;
          uint8_t* to = out + group * count;
          tile.rows = g->kh;
          tile.length = g->kw * (g->c / g->groups);
          tile.a = (const @T@_t*)tw_window(g, x, y, at, group, patch, &tile.row_a, &step);
          tile.b = tile.a;
          tile.row_b = tile.row_a;
          if (pair) tile.b = (const @T@_t*)tw_window(g, x, y, at + 1, group, patch + size, &tile.row_b, &step);
          if (tile.row_a == tile.length && tile.row_b == tile.length) {
            tile.rows = 1;
            tile.length = tile.row_a = tile.row_b = size;
          }
          tw_pixels_@T@(g, &tile, w + group * count * size, channel + group * count, to, pair ? to + g->oc : 0);
        }
      }
      if (g->ow & 1) out -= g->oc;
    }
  }
}
