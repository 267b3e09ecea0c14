struct tw_tile_@T@ {
  const @T@_t *a, *b; /* two pixels */
  int32_t row_a, row_b, rows, length;
};

/* sums[0..1] of pixel a, sums[2..3] of pixel b, with the weights of two channels */
TW_INLINE void tw_products_@T@(const struct tw_tile_@T@* tile, const int8_t* TW_RESTRICT v, const int8_t* TW_RESTRICT u,
                               int32_t* TW_RESTRICT sums) {
  const @T@_t *a = tile->a, *b = tile->b;
  int32_t av = sums[0], au = sums[1], bv = sums[2], bu = sums[3], row, i;
#define TW_STEP(k)                                                                      \
  {                                                                                     \
    const int32_t pa = a[k], pb = b[k], pv = v[k], pu = u[k];                           \
    av += pa * pv;                                                                      \
    au += pa * pu;                                                                      \
    bv += pb * pv;                                                                      \
    bu += pb * pu;                                                                      \
  }
  for (row = tile->rows; row > 0; row--) {
    i = tile->length;
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
#elif !defined(__SSE2__) && !defined(__ARM_NEON)
    for (; i >= 4; i -= 4, a += 4, b += 4, v += 4, u += 4) {
      TW_STEP(0)
      TW_STEP(1)
      TW_STEP(2)
      TW_STEP(3)
    }
#endif
    {
      int32_t k;
      for (k = 0; k < i; k++) TW_STEP(k)
    }
    a += i + tile->row_a - tile->length;
    b += i + tile->row_b - tile->length;
    v += i;
    u += i;
  }
#undef TW_STEP
  sums[0] = av;
  sums[1] = au;
  sums[2] = bv;
  sums[3] = bu;
}

TW_TIGHT void tw_pixels_@T@(const struct tw_conv2d* g, const struct tw_tile_@T@* tile, const int8_t* w,
                          const struct tw_channel* channel, uint8_t* out, uint8_t* next) {
  const int32_t count = g->oc / g->groups, size = g->kh * g->kw * (g->c / g->groups);
  int32_t o;
  for (o = 0; o < count; o += 2, w += 2 * size, channel += 2) {
    const int32_t more = o + 1 < count;
    int32_t sums[4];
    sums[0] = sums[2] = channel[0].bias;
    sums[1] = sums[3] = channel[more].bias;
    tw_products_@T@(tile, w, more ? w + size : w, sums);
    out[o] = tw_narrowed(g, channel, sums[0]);
    if (next) next[o] = tw_narrowed(g, channel, sums[2]);
    if (more) {
      out[o + 1] = tw_narrowed(g, channel + 1, sums[1]);
      if (next) next[o + 1] = tw_narrowed(g, channel + 1, sums[3]);
    }
  }
}

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
