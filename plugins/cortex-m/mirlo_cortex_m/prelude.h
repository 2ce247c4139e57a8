/* Products of int8 with the instructions that the processor has; other compilers take the loops in plain C. */
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE
#include <arm_mve.h>
#elif defined(__ARM_FEATURE_DSP)
#include <arm_acle.h>
static inline uint32_t mirlo_word(const int8_t *p) {
  uint32_t word;
  memcpy(&word, p, 4);
  return word;
}
static inline int16x2_t mirlo_odd(uint32_t word) { /* the bytes 1 and 3; compilers do not merge the rotation */
  int16x2_t both;
  __asm__("sxtb16 %0, %1, ror #8" : "=r"(both) : "r"(word));
  return both;
}
#endif

/* sums[j] += x[r, i] * w[j, r, i] for `rows` rows of `run` elements: x has `row` elements from row to row, w none
   between its rows, and `stride` elements from output to output. */
static inline __attribute__((always_inline)) void mirlo_dot(
    const void *data, int32_t row, int32_t rows, int32_t run, const void *weights, int32_t stride, int32_t count, void *sums) {
  const int8_t *x = (const int8_t *)data, *w = (const int8_t *)weights;
  int32_t *const out = (int32_t *)sums;
  int32_t a = 0, b = 0, c = 0, d = 0;
  for (int32_t r = 0; r < rows; ++r, x += row, w += run) {
    const int8_t *p = x, *q = w;
    int32_t n = run;
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE
    for (; n > 0; n -= 16, p += 16, q += 16) {
      const mve_pred16_t lanes = vctp8q((uint32_t)n);
      const int8x16_t v = vldrbq_z_s8(p, lanes);
      a = vmladavaq_s8(a, v, vldrbq_z_s8(q, lanes));
      if (count > 1) b = vmladavaq_s8(b, v, vldrbq_z_s8(q + stride, lanes));
      if (count > 2) c = vmladavaq_s8(c, v, vldrbq_z_s8(q + 2 * stride, lanes));
      if (count > 3) d = vmladavaq_s8(d, v, vldrbq_z_s8(q + 3 * stride, lanes));
    }
#else
#if defined(__ARM_FEATURE_DSP)
    for (; n >= 4; n -= 4, p += 4, q += 4) {
      const uint32_t v = mirlo_word(p);
      const int16x2_t even = __sxtb16(v), odd = mirlo_odd(v);
      uint32_t u = mirlo_word(q);
      a = __smlad(mirlo_odd(u), odd, __smlad(__sxtb16(u), even, a));
      if (count > 1) {
        u = mirlo_word(q + stride);
        b = __smlad(mirlo_odd(u), odd, __smlad(__sxtb16(u), even, b));
      }
      if (count > 2) {
        u = mirlo_word(q + 2 * stride);
        c = __smlad(mirlo_odd(u), odd, __smlad(__sxtb16(u), even, c));
      }
      if (count > 3) {
        u = mirlo_word(q + 3 * stride);
        d = __smlad(mirlo_odd(u), odd, __smlad(__sxtb16(u), even, d));
      }
    }
#endif
    for (; n > 0; --n, ++p, ++q) {
      const int32_t v = *p;
      a += v * q[0];
      if (count > 1) b += v * q[stride];
      if (count > 2) c += v * q[2 * stride];
      if (count > 3) d += v * q[3 * stride];
    }
#endif
  }
  out[0] += a;
  if (count > 1) out[1] += b;
  if (count > 2) out[2] += c;
  if (count > 3) out[3] += d;
}

/* sums[j] += x[r, c, j] * w[r, c, j] for four channels j: x has `row` elements from row to row and `column` from column
   to column, w `stride` from each place to the next. */
static inline __attribute__((always_inline)) void mirlo_taps(
    const void *data, int32_t row, int32_t column, int32_t rows, int32_t columns, const void *weights, int32_t stride, void *sums) {
  const int8_t *x = (const int8_t *)data, *w = (const int8_t *)weights;
  int32_t *const out = (int32_t *)sums;
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE
  int32x4_t total = vldrwq_s32(out);
  for (int32_t r = 0; r < rows; ++r, x += row) {
    const int8_t *p = x;
    for (int32_t c = 0; c < columns; ++c, p += column, w += stride) {
      total = vaddq_s32(total, vmulq_s32(vldrbq_s32(p), vldrbq_s32(w)));
    }
  }
  vstrwq_s32(out, total);
#else
  int32_t a = 0, b = 0, c = 0, d = 0;
  for (int32_t r = 0; r < rows; ++r, x += row) {
    const int8_t *p = x;
    for (int32_t i = 0; i < columns; ++i, p += column, w += stride) {
#if defined(__ARM_FEATURE_DSP)
      const uint32_t v = mirlo_word(p), u = mirlo_word(w);
      const int16x2_t v0 = __sxtb16(v), v1 = mirlo_odd(v), u0 = __sxtb16(u), u1 = mirlo_odd(u);
      a = __smlabb(v0, u0, a);
      b = __smlabb(v1, u1, b);
      c = __smlatt(v0, u0, c);
      d = __smlatt(v1, u1, d);
#else
      a += p[0] * w[0];
      b += p[1] * w[1];
      c += p[2] * w[2];
      d += p[3] * w[3];
#endif
    }
  }
  out[0] += a;
  out[1] += b;
  out[2] += c;
  out[3] += d;
#endif
}
