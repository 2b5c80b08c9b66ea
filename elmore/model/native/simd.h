/* Vectors of floats and ints, as wide as the instruction set this file is compiled for. */

#ifndef ELMORE_SIMD_H
#define ELMORE_SIMD_H

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
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define WIDE 4
#else
#error "compile for AVX2 with FMA, AVX-512, aarch64 or WebAssembly with SIMD"
#endif

typedef float floats __attribute__((vector_size(4 * WIDE)));
typedef int32_t ints __attribute__((vector_size(4 * WIDE)));
typedef float unaligned_floats __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef int32_t unaligned_ints __attribute__((vector_size(4 * WIDE), aligned(1), may_alias));

/* Of a cache line: a vector that lies in two of them is loaded at half the speed. */
#define ALIGNED _Alignas(64)

#define FORCE_INLINE static inline __attribute__((always_inline))

/* Unroll completely, so that what the loop indexes can stay in registers. */
#define UNROLL(i, n) _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)

FORCE_INLINE floats load(const float *from) { return *(const unaligned_floats *)from; }
FORCE_INLINE void store(float *to, floats all) { *(unaligned_floats *)to = all; }
FORCE_INLINE floats splat(float one) { return one - (floats){0}; }
FORCE_INLINE ints load_ints(const void *from) { return *(const unaligned_ints *)from; }
FORCE_INLINE void store_ints(void *to, ints all) { *(unaligned_ints *)to = all; }
FORCE_INLINE floats to_floats(ints all) { return __builtin_convertvector(all, floats); }

/* Fused where the instruction set has it: WebAssembly rounds twice. */
FORCE_INLINE floats multiply_add(floats a, floats b, floats sum) {
#if defined(__aarch64__)
    return vfmaq_f32(sum, a, b);
#elif defined(__wasm__)
    return a * b + sum;
#elif WIDE == 16
    return _mm512_fmadd_ps(a, b, sum);
#else
    return _mm256_fmadd_ps(a, b, sum);
#endif
}

/* Element by element. If the second one is a NaN, so is the result. */
FORCE_INLINE floats larger_of(floats bound, floats all) {
#if defined(__aarch64__)
    return vmaxq_f32(bound, all);
#elif defined(__wasm__)
    return (floats)wasm_f32x4_pmax((v128_t)all, (v128_t)bound);
#elif WIDE == 16
    return _mm512_max_ps(bound, all);
#else
    return _mm256_max_ps(bound, all);
#endif
}

FORCE_INLINE floats smaller_of(floats bound, floats all) {
#if defined(__aarch64__)
    return vminq_f32(bound, all);
#elif defined(__wasm__)
    return (floats)wasm_f32x4_pmin((v128_t)all, (v128_t)bound);
#elif WIDE == 16
    return _mm512_min_ps(bound, all);
#else
    return _mm256_min_ps(bound, all);
#endif
}

/* To [-bound, bound]; a NaN stays a NaN. */
FORCE_INLINE floats clamp(floats all, float bound) {
    return larger_of(splat(-bound), smaller_of(splat(bound), all));
}

/* INT8_VECTORS * WIDE int8 numbers as floats. */
#if defined(__aarch64__)
enum { INT8_VECTORS = 4 };
FORCE_INLINE void load_int8(const int8_t *from, floats *to) {
    const uint8x16_t bytes = vld1q_u8((const uint8_t *)from);
    UNROLL(v, INT8_VECTORS) { /* a number goes to the top byte of its lane: the conversion divides by 2^24 */
        const uint32_t first = 0x00ffffff + 0x04000000u * (uint32_t)v, next = 0x01000000;
        const uint32x4_t lanes = {first, first + next, first + 2 * next, first + 3 * next};
        const uint8x16_t top = vqtbl1q_u8(bytes, vreinterpretq_u8_u32(lanes));
        to[v] = vcvtq_n_f32_s32(vreinterpretq_s32_u8(top), 24);
    }
}
#elif defined(__wasm__)
enum { INT8_VECTORS = 4 };
FORCE_INLINE void load_int8(const int8_t *from, floats *to) {
    const v128_t bytes = wasm_v128_load(from);
    const v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
    to[0] = (floats)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(low));
    to[1] = (floats)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(low));
    to[2] = (floats)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(high));
    to[3] = (floats)wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(high));
}
#else
enum { INT8_VECTORS = 1 };
FORCE_INLINE void load_int8(const int8_t *from, floats *to) {
#if WIDE == 16
    *to = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
#else
    *to = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
#endif
}
#endif

/* Sums of four products of int8 numbers each. x86 takes one factor without a sign, so there U8_OFFSET is
   added to the activations, and sums begin with what that adds too much. Either way they are exact. */
#if defined(__ARM_FEATURE_DOTPROD)
#define HAS_INT8_DOT 1
enum { U8_OFFSET = 0 };
FORCE_INLINE ints dot_add(ints sum, int32_t four_activations, ints weights) {
    return vdotq_s32(sum, (int8x16_t)weights, vreinterpretq_s8_s32(vdupq_n_s32(four_activations)));
}
#elif defined(__AVX512VNNI__) && WIDE == 16
#define HAS_INT8_DOT 1
enum { U8_OFFSET = 128 };
FORCE_INLINE ints dot_add(ints sum, int32_t four_activations, ints weights) {
    return (ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(four_activations),
                                     (__m512i)weights);
}
#else
#define HAS_INT8_DOT 0
enum { U8_OFFSET = 0 };
#endif

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
