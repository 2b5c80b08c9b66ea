/* Vectors of floats, as wide as this CPU has them, and what C cannot say of them by itself. */

#ifndef ELMORE_VECTORS_H
#define ELMORE_VECTORS_H

#include <stdint.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#define WIDE 4
#elif defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>
#define WIDE 16
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define WIDE 8
#else
#define WIDE 4
#define OTHER_CPU
#endif

typedef float floats __attribute__((vector_size(4 * WIDE)));
typedef int32_t ints __attribute__((vector_size(4 * WIDE)));
typedef float stored_floats __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t stored_ints __attribute__((vector_size(4 * WIDE), aligned(1), may_alias));

#define ALWAYS static inline __attribute__((always_inline))

/* A loop that is gone when it is compiled: so what it counts through can stay in registers. */
#define EACH(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)

ALWAYS floats load(const float *from) { return *(const stored_floats *)from; }
ALWAYS void store(float *to, floats all) { *(stored_floats *)to = all; }
ALWAYS floats splat(float one) { return one - (floats){0}; }

ALWAYS floats multiply_add(floats a, floats b, floats sum) {
#if defined(__aarch64__)
    return vfmaq_f32(sum, a, b);
#elif WIDE == 16
    return _mm512_fmadd_ps(a, b, sum);
#elif WIDE == 8
    return _mm256_fmadd_ps(a, b, sum);
#else
    return sum + a * b;
#endif
}

#if !defined(OTHER_CPU)

#if defined(__aarch64__)
#define ONE_OF_FOUR(i) vld1q_f32(AT(i))
#define FIRST_OF(a, b) vzip1q_f32(a, b)
#define LAST_OF(a, b) vzip2q_f32(a, b)
#define FIRST_PAIRS(a, b) (floats) vzip1q_f64((float64x2_t)a, (float64x2_t)b)
#define LAST_PAIRS(a, b) (floats) vzip2q_f64((float64x2_t)a, (float64x2_t)b)
#elif WIDE == 16
#define BESIDE(all, i, place) _mm512_insertf32x4(all, _mm_loadu_ps(AT(i)), place)
#define ONE_OF_FOUR(i)                                                                            \
    BESIDE(BESIDE(BESIDE(_mm512_castps128_ps512(_mm_loadu_ps(AT(i))), i + 4, 1), i + 8, 2), i + 12, 3)
#define FIRST_OF(a, b) _mm512_unpacklo_ps(a, b)
#define LAST_OF(a, b) _mm512_unpackhi_ps(a, b)
#define FIRST_PAIRS(a, b) (floats) _mm512_unpacklo_pd((__m512d)a, (__m512d)b)
#define LAST_PAIRS(a, b) (floats) _mm512_unpackhi_pd((__m512d)a, (__m512d)b)
#else
#define ONE_OF_FOUR(i)                                                                            \
    _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(AT(i))), _mm_loadu_ps(AT(i + 4)), 1)
#define FIRST_OF(a, b) _mm256_unpacklo_ps(a, b)
#define LAST_OF(a, b) _mm256_unpackhi_ps(a, b)
#define FIRST_PAIRS(a, b) (floats) _mm256_unpacklo_pd((__m256d)a, (__m256d)b)
#define LAST_PAIRS(a, b) (floats) _mm256_unpackhi_pd((__m256d)a, (__m256d)b)
#endif

/* ONE_OF_FOUR holds row i, and i + 4, i + 8 and so on beside it, as many as fit; the rest works on
   groups of four.

   Four numbers each of some rows, WIDE at most, to four vectors: the first of all, the second of all,
   and so on. In place of rows that are missing the last stands again. */
ALWAYS void turn(const float *rows, int64_t apart, int64_t count, floats to[4]) {
#define AT(i) (rows + ((i) < count ? (i) : count - 1) * apart)
    const floats a = ONE_OF_FOUR(0), b = ONE_OF_FOUR(1), c = ONE_OF_FOUR(2), d = ONE_OF_FOUR(3);
#undef AT
    const floats ab = FIRST_OF(a, b), cd = FIRST_OF(c, d), AB = LAST_OF(a, b), CD = LAST_OF(c, d);
    to[0] = FIRST_PAIRS(ab, cd), to[1] = LAST_PAIRS(ab, cd);
    to[2] = FIRST_PAIRS(AB, CD), to[3] = LAST_PAIRS(AB, CD);
}

ALWAYS ints larger_of(ints a, ints b) {
#if defined(__aarch64__)
    return vmaxq_s32(a, b);
#elif WIDE == 16
    return (ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
#else
    return (ints)_mm256_max_epi32((__m256i)a, (__m256i)b);
#endif
}

/* To the nearest whole number; of two, the even one. */
ALWAYS ints nearest(floats all) {
#if defined(__aarch64__)
    return vcvtnq_s32_f32(all);
#elif WIDE == 16
    return (ints)_mm512_cvtps_epi32(all);
#else
    return (ints)_mm256_cvtps_epi32(all);
#endif
}

#endif
#endif
