/* Eight numbers at a time, in the vector types of GCC and Clang, and what a sum of products needs of them. */
#ifndef SALTWAY_LANES_H
#define SALTWAY_LANES_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef float f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));

static inline f8 load(const float *at) { return *(const f8 *)at; }

static inline void store(float *at, f8 value) { *(f8 *)at = value; }

static inline f8 all(float value) { return value - (f8){0}; }

static inline float sum(f8 v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* Eight codes of a byte each, widened. GCC's own conversion goes number by number here. */
static inline i8 unsigned_codes(const uint8_t *at) {
#ifdef __AVX2__
    return (i8)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return (i8){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
#endif
}

static inline i8 signed_codes(const int8_t *at) {
#ifdef __AVX2__
    return (i8)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
#else
    return (i8){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
#endif
}

static inline f8 floats(i8 codes) { return __builtin_convertvector(codes, f8); }

/* e to the x, x <= 0, within 2 units of the last place; below -87 it is e to the -87, which adds nothing to a sum that
   has a term of 1. Method: Cephes' expf, that is 2^n times a polynomial of the rest. */
static inline f8 exponential(f8 x) {
    i8 low = x < all(-87.0f);
    x = (f8)((low & (i8)all(-87.0f)) | (~low & (i8)x));
    f8 shifted = x * 1.44269504088896341f + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number */
    f8 n = shifted - 12582912.0f;
    x = x - n * 0.693359375f;
    x = x + n * 2.12194440e-4f;
    f8 y = x * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * (x * x) + x + 1.0f;
    i8 power = ((i8)shifted << 23) + (i8)all(1.0f); /* the low bits of `shifted` are n; 1.0f has the exponent's bias */
    return y * (f8)power;
}

#endif
