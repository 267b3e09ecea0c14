/* A convolution of integers of 8 bits: its shape, and where it reads. Images are (h, w, c). Depthwise ones have 0
 * ``groups``. */
struct tw_conv2d {
  int32_t images, h, w, c, oh, ow, oc;
  int32_t kh, kw, sy, sx, dy, dx, top, left, groups;
  int32_t zero, shift, offset, low, high;
};

/* Each channel of the result: the bias less what the zero point adds, and its factor, as ``tw_scaled`` takes it. */
struct tw_channel {
  int32_t bias, multiplier;
  uint32_t factor;
};

#if defined(TW_MVE)
/* Bytes of neighbouring elements as numbers of 16 bits, 0 from ``left`` on. */
TW_HOT int16x8_t tw_eight_int8(const int8_t* from, uint32_t left) { return vldrbq_z_s16(from, vctp16q(left)); }
TW_HOT int16x8_t tw_eight_uint8(const uint8_t* from, uint32_t left) {
  return vreinterpretq_s16_u16(vldrbq_z_u16(from, vctp16q(left)));
}

/* As below: four at a time; where one comes next to a half, these four one by one. */
TW_HOT void tw_store_four(const struct tw_conv2d* g, const struct tw_channel* channel, const int32_t* sums,
                          uint8_t* out, int32_t count) {
  const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0, 1), sizeof *channel);
  const mve_pred16_t some = vctp32q((uint32_t)count);
  const int32x4_t factors = vldrwq_gather_offset_z_s32(&channel->multiplier, places, some);
  const int32x4_t high = vmulhq_s32(vshlq_r_s32(vldrwq_z_s32(sums, some), g->shift), factors);
  int32x4_t steps = vaddq_n_s32(high, g->offset);
  const int32x4_t fraction = vandq_s32(steps, vdupq_n_s32((1 << TW_FRACTION) - 1));
  if (vcmpgtq_m_n_s32(fraction, (1 << TW_FRACTION) - 6, some)) {
    int32_t exact[4] = {0, 0, 0, 0}, i;
    for (i = 0; i < count && i < 4; i++) {
      exact[i] = tw_scaled(sums[i], channel[i].multiplier, channel[i].factor, g->shift, g->offset);
    }
    steps = vldrwq_s32(exact);
  } else {
    steps = vshrq_n_s32(steps, TW_FRACTION);
  }
  steps = vminq_s32(vmaxq_s32(steps, vdupq_n_s32(g->low)), vdupq_n_s32(g->high));
  vstrbq_p_s32((int8_t*)out, steps, some);
}
#endif

/* Scale, round and limit ``count`` sums of neighbouring channels. */
TW_HOT void tw_store(const struct tw_conv2d* g, const struct tw_channel* channel, const int32_t* sums, uint8_t* out,
                        int32_t count) {
  const int32_t shift = g->shift, offset = g->offset, low = g->low, high = g->high;
#if defined(TW_MVE)
  for (; count > 0; count -= 4, channel += 4, sums += 4, out += 4) tw_store_four(g, channel, sums, out, count);
#endif
  for (; count > 0; count--, channel++) {
    int32_t value = tw_scaled(*sums++, channel->multiplier, channel->factor, shift, offset);
    if (value < low) value = low;
    if (value > high) value = high;
    *out++ = (uint8_t)value;
  }
}

/* The bytes that one pixel of the result sums: in the image, or copied to ``patch`` where some lie outside of it
 * or between others. ``row`` and ``step`` become the distances of the window's rows and columns. */
static const uint8_t* tw_window(const struct tw_conv2d* g, const uint8_t* x, int32_t oy, int32_t ox, int32_t group,
                                uint8_t* patch, int32_t* row, int32_t* step) {
  const int32_t y = oy * g->sy - g->top, left = ox * g->sx - g->left;
  const int32_t inside = y >= 0 && left >= 0 && y + (g->kh - 1) * g->dy < g->h && left + (g->kw - 1) * g->dx < g->w;
#if defined(TW_MVE) /* short rows fill no vectors: they are copied one behind the other */
  const int32_t is_short = g->groups == 1 && g->kh > 1 && g->kw * g->c < 16;
#else
  const int32_t is_short = 0;
#endif
  const int32_t some = g->groups ? g->c / g->groups : g->c;
  int32_t i, j;
  uint8_t* to = patch;
  if (inside && !is_short && (g->groups == 0 || (g->groups == 1 && g->dx == 1))) {
    *row = g->dy * g->w * g->c;
    *step = g->dx * g->c;
    return x + (y * g->w + left) * g->c;
  }
  for (i = 0; i < g->kh; i++) {
    for (j = 0; j < g->kw; j++, to += some) {
      const int32_t at = y + i * g->dy, across = left + j * g->dx;
      if (at >= 0 && at < g->h && across >= 0 && across < g->w) {
        memcpy(to, x + (at * g->w + across) * g->c + group * some, (size_t)some);
      } else {
        memset(to, g->zero, (size_t)some);
      }
    }
  }
  *row = g->kw * some;
  *step = some;
  return patch;
}
