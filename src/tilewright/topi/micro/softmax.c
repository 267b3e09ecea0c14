/* Softmax of bytes: how far each is below the largest is looked up, and its share of the sum is a quotient of
 * float32, rounded as floats are, to the bit. */
struct tw_softmax {
  int32_t outer, extent, inner;
  uint32_t factor; /* bits of a positive float32: one over the result's scale */
  int32_t zero, low, high;
};

/* The 24 bits of ``factor / total``, and what they are to be shifted down by. */
static uint32_t tw_quotient(uint32_t factor, uint64_t total, int32_t* shift) {
  uint32_t rest = TW_MANTISSA(factor), below, i;
  uint64_t bits = 0;
  *shift = 176 - (int32_t)(factor >> 23);
  for (; total >= (uint64_t)1 << 24; total >>= 1) ++*shift;
  for (; total < (uint64_t)1 << 23; total <<= 1) --*shift;
  below = (uint32_t)total;
  for (i = 0; i < 27; i++, rest <<= 1) {
    bits <<= 1;
    if (rest >= below) {
      rest -= below;
      bits |= 1;
    }
  }
  bits = tw_24_bits(bits | (rest != 0));
  for (; bits >= (uint64_t)1 << 24; bits >>= 1) --*shift;
  return (uint32_t)bits;
}

static void tw_softmax_@T@(const struct tw_softmax* g, const @T@_t* x, const int32_t* powers, uint8_t* out) {
  const int32_t step = g->inner, size = g->extent * step;
  int32_t n, j, i;
  for (n = 0; n < g->outer; n++, x += size, out += size) {
    for (j = 0; j < step; j++) {
      int32_t most = x[j], shift;
      uint32_t sum = 0, share;
      for (i = j; i < size; i += step) most = x[i] > most ? x[i] : most;
      for (i = j; i < size; i += step) sum += (uint32_t)powers[most - x[i]];
      share = tw_quotient(g->factor, tw_24_bits(sum), &shift);
      for (i = j; i < size; i += step) {
        const uint64_t power = tw_24_bits((uint32_t)powers[most - x[i]]);
        int32_t value = (int32_t)tw_nearest(tw_24_bits(power * share), shift) + g->zero;
        if (value < g->low) value = g->low;
        if (value > g->high) value = g->high;
        out[i] = (uint8_t)value;
      }
    }
  }
}
