/* Dot products of bytes, four of them a lane, as CPUs have them; and what they differ in.

   A block of a weight is 8 rows: for four k at a time, 8 rows of four bytes; before them stand the
   numbers that its 8 sums begin with. ARM multiplies signed bytes. x86 takes one factor without a sign:
   columns are lifted there, 128 is added to each of their numbers, and sums begin with what that is
   too much. Either way sums are exact. */

#ifndef ELMORE_BYTES_H
#define ELMORE_BYTES_H

#include "vectors.h"

enum { ROWS = 8 };

typedef const int32_t __attribute__((aligned(1), may_alias)) *four_bytes_each;

#if defined(__ARM_FEATURE_DOTPROD)

#define HAVE_DOTS
enum { LIFTED = 0 };

#if defined(__linux__)
#include <sys/auxv.h>
static int has_dots(void) { return (getauxval(AT_HWCAP) >> 20) & 1; }
#else
static int has_dots(void) { return 1; }
#endif

/* A row of the block, the lane, times n vectors of four columns each. */
#define DOT(r, w, lane) EACH(v, n) sums[r][v] = vdotq_laneq_s32(sums[r][v], column[v], w, lane)

ALWAYS void add_dots(const int8_t *w, const int8_t *q, const int n, ints sums[ROWS][3]) {
    const int8x16_t low = vld1q_s8(w), high = vld1q_s8(w + 16);
    int8x16_t column[3];
    EACH(v, n) column[v] = vld1q_s8(q + 16 * v);
    DOT(0, low, 0);
    DOT(1, low, 1);
    DOT(2, low, 2);
    DOT(3, low, 3);
    DOT(4, high, 0);
    DOT(5, high, 1);
    DOT(6, high, 2);
    DOT(7, high, 3);
}

/* A column alone: four k a lane, so that no product is with padding. */
static inline void multiply_one(const int8_t *w, const int8_t *q, int64_t fours, int32_t *sums) {
    int32x4_t low = vld1q_s32((const int32_t *)w), high = vld1q_s32((const int32_t *)w + 4);
    int32x4_t low2 = vdupq_n_s32(0), high2 = low2;
    int64_t k = 0;
    w += 4 * ROWS;
    for (; k + 2 <= fours; k += 2, w += 8 * ROWS) {
        const int8x16_t first = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k)));
        const int8x16_t second =
            vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k + 4)));
        low = vdotq_s32(low, vld1q_s8(w), first);
        high = vdotq_s32(high, vld1q_s8(w + 16), first);
        low2 = vdotq_s32(low2, vld1q_s8(w + 32), second);
        high2 = vdotq_s32(high2, vld1q_s8(w + 48), second);
    }
    if (k < fours) {
        const int8x16_t first = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(q + 4 * k)));
        low = vdotq_s32(low, vld1q_s8(w), first);
        high = vdotq_s32(high, vld1q_s8(w + 16), first);
    }
    vst1q_s32(sums, vaddq_s32(low, low2));
    vst1q_s32(sums + 4, vaddq_s32(high, high2));
}

/* Four numbers, times one, to four bytes. */
ALWAYS int32_t to_bytes(const float *from, float by) {
    const int16x4_t half = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(from), by)));
    return vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(half, half))), 0);
}

#elif defined(__AVX512VNNI__) && defined(__AVX512VL__) && WIDE == 16

#define HAVE_DOTS
enum { LIFTED = 128 };

static int has_dots(void) { return __builtin_cpu_supports("avx512vnni"); }

ALWAYS void add_dots(const int8_t *w, const int8_t *q, const int n, ints sums[ROWS][3]) {
    __m512i column[3];
    EACH(v, n) column[v] = _mm512_loadu_si512(q + 64 * v);
    EACH(r, ROWS) {
        const __m512i row = _mm512_set1_epi32(((four_bytes_each)w)[r]);
        EACH(v, n) sums[r][v] = (ints)_mm512_dpbusd_epi32((__m512i)sums[r][v], column[v], row);
    }
}

/* A column alone: four k a lane, so that no product is with padding. */
static inline void multiply_one(const int8_t *w, const int8_t *q, int64_t fours, int32_t *sums) {
    enum { PAIRS = 4 }; /* of fours: several sums, for none should wait for another */
    const four_bytes_each column = (four_bytes_each)q;
    __m512i all[PAIRS];
    __m256i whole = _mm256_loadu_si256((const __m256i *)w);
    EACH(i, PAIRS) all[i] = _mm512_setzero_si512();
    int64_t k = 0;
    w += 4 * ROWS;
    for (; k + 2 * PAIRS <= fours; k += 2 * PAIRS, w += 8 * ROWS * PAIRS)
        EACH(i, PAIRS) {
            const __m256i first = _mm256_set1_epi32(column[k + 2 * i]);
            const __m256i second = _mm256_set1_epi32(column[k + 2 * i + 1]);
            all[i] = _mm512_dpbusd_epi32(
                all[i], _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1),
                _mm512_loadu_si512(w + 8 * ROWS * i));
        }
    for (; k < fours; k++, w += 4 * ROWS)
        whole = _mm256_dpbusd_epi32(whole, _mm256_set1_epi32(column[k]),
                                    _mm256_loadu_si256((const __m256i *)w));
    for (int i = 1; i < PAIRS; i++) all[0] = _mm512_add_epi32(all[0], all[i]);
    whole = _mm256_add_epi32(whole, _mm512_castsi512_si256(all[0]));
    whole = _mm256_add_epi32(whole, _mm512_extracti64x4_epi64(all[0], 1));
    _mm256_storeu_si256((__m256i *)sums, whole);
}

/* Four numbers, times one, to four bytes. */
ALWAYS int32_t to_bytes(const float *from, float by) {
    __m128i all = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(from), _mm_set1_ps(by)));
    all = _mm_packs_epi32(all, all);
    return _mm_cvtsi128_si32(_mm_packs_epi16(all, all));
}

#endif

#if defined(HAVE_DOTS)

/* All bytes of four, lifted. */
#define LIFT ((int32_t)(LIFTED * 0x01010101u))

/* A block of a weight times n vectors of columns, which lie side by side for four k at a time. */
ALWAYS void multiply_bytes(const int8_t *w, const int8_t *q, int64_t fours, const int n,
                           ints sums[ROWS][3]) {
    ints all[ROWS][3];
    EACH(r, ROWS) EACH(v, n) all[r][v] = ((four_bytes_each)w)[r] - (ints){0};
    for (int64_t k = 1; k <= fours; k++, q += 4 * WIDE * n) add_dots(w + 4 * ROWS * k, q, n, all);
    EACH(r, ROWS) EACH(v, n) sums[r][v] = all[r][v];
}

#endif
#endif
