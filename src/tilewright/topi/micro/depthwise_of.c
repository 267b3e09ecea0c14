#if defined(TW_MVE)
/* Sums of up to eight channels, whose first bytes are at ``base``: of even and odd ones apart. */
TW_HOT void tw_eight_channels_@T@(const struct tw_conv2d* g, const @T@_t* base, const int8_t* w, int32_t row,
                                  int32_t step, int32_t left, int32_t* sums) {
  int32x4x2_t total = vld2q_s32(sums);
  int32x4_t even = total.val[0], odd = total.val[1];
  int32_t i, j;
  for (i = g->kh; i > 0; i--, base += row) {
    const @T@_t* p = base;
    for (j = g->kw; j > 0; j--, p += step, w += g->c) {
      const int16x8_t data = tw_eight_@T@(p, (uint32_t)left), taps = tw_eight_int8(w, (uint32_t)left);
      even = vaddq_s32(even, vmullbq_int_s16(data, taps));
      odd = vaddq_s32(odd, vmulltq_int_s16(data, taps));
    }
  }
  total.val[0] = even;
  total.val[1] = odd;
  vst2q_s32(sums, total);
}

/* One channel of data for each of the result. Weights are (kh, kw, c); ``patch`` has room for a window. */
TW_TIGHT void tw_depthwise_@T@(const struct tw_conv2d* g, const uint8_t* x, const int8_t* w,
                             const struct tw_channel* channels, uint8_t* out, uint8_t* patch) {
  int32_t n, y, at, c, row, step;
  for (n = 0; n < g->images; n++, x += g->h * g->w * g->c) {
    for (y = 0; y < g->oh; y++) {
      for (at = 0; at < g->ow; at++, out += g->c) {
        const @T@_t* base = (const @T@_t*)tw_window(g, x, y, at, 0, patch, &row, &step);
        for (c = 0; c < g->c; c += 8) {
          int32_t sums[8], i, left = g->c - c;
          left = left < 8 ? left : 8;
          for (i = 0; i < left; i++) sums[i] = channels[c + i].bias;
          for (; i < 8; i++) sums[i] = 0;
          tw_eight_channels_@T@(g, base + c, w + c, row, step, left, sums);
          tw_store(g, channels + c, sums, out + c, left);
        }
      }
    }
  }
}
#else
/* Sums of four channels, and of one, whose first bytes are at ``base``. */
TW_HOT void tw_four_channels_@T@(const struct tw_conv2d* g, const @T@_t* base, const int8_t* w, int32_t row,
                                    int32_t step, int32_t* TW_RESTRICT sums) {
  const int32_t c = g->c, kw = g->kw;
  int32_t s0 = sums[0], s1 = sums[1], s2 = sums[2], s3 = sums[3], i, j;
#define TW_TAP           \
  {                      \
    s0 += p[0] * w[0];   \
    s1 += p[1] * w[1];   \
    s2 += p[2] * w[2];   \
    s3 += p[3] * w[3];   \
    p += step;           \
    w += c;              \
  }
  for (i = g->kh; i > 0; i--, base += row) {
    const @T@_t* p = base;
    for (j = kw; j >= 3; j -= 3) {
      TW_TAP
      TW_TAP
      TW_TAP
    }
    for (; j > 0; j--) TW_TAP
  }
#undef TW_TAP
  sums[0] = s0;
  sums[1] = s1;
  sums[2] = s2;
  sums[3] = s3;
}

TW_HOT int32_t tw_channel_@T@(const struct tw_conv2d* g, const @T@_t* base, const int8_t* w, int32_t row,
                                 int32_t step, int32_t sum) {
  int32_t i, j;
  for (i = g->kh; i > 0; i--, base += row) {
    const @T@_t* p = base;
    for (j = g->kw; j > 0; j--, p += step, w += g->c) sum += p[0] * w[0];
  }
  return sum;
}

/* One channel of data for each of the result. Weights are (kh, kw, c); ``patch`` has room for a window. */
TW_TIGHT void tw_depthwise_@T@(const struct tw_conv2d* g, const uint8_t* x, const int8_t* w,
                             const struct tw_channel* channels, uint8_t* out, uint8_t* patch) {
  int32_t n, y, at, left, row, step;
  for (n = 0; n < g->images; n++, x += g->h * g->w * g->c) {
    for (y = 0; y < g->oh; y++) {
      for (at = 0; at < g->ow; at++) {
        const @T@_t* base = (const @T@_t*)tw_window(g, x, y, at, 0, patch, &row, &step);
        const struct tw_channel* channel = channels;
        const int8_t* v = w;
        for (left = g->c; left >= 4; left -= 4, base += 4, v += 4, channel += 4, out += 4) {
          int32_t sums[4], i;
          for (i = 0; i < 4; i++) sums[i] = channel[i].bias;
          tw_four_channels_@T@(g, base, v, row, step, sums);
          tw_store(g, channel, sums, out, 4);
        }
        for (; left > 0; left--, base++, v++, channel++, out++) {
          const int32_t sum = tw_channel_@T@(g, base, v, row, step, channel->bias);
          tw_store(g, channel, &sum, out, 1);
        }
      }
    }
  }
}
#endif
