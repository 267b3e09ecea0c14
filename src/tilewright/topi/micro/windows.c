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

/* Scale, round and limit ``count`` sums of neighbouring channels. */
TW_HOT void tw_store(const struct tw_conv2d* g, const struct tw_channel* channel, const int32_t* sums, uint8_t* out,
                        int32_t count) {
  const int32_t shift = g->shift, offset = g->offset, low = g->low, high = g->high;
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
  const int32_t some = g->groups ? g->c / g->groups : g->c;
  int32_t i, j;
  uint8_t* to = patch;
  if (inside && (g->groups == 0 || (g->groups == 1 && g->dx == 1))) {
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
