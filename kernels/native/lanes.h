/* Eight numbers at a time, in the vector types of GCC and Clang, and what a sum of products needs of them. */
#ifndef SALTWAY_LANES_H
#define SALTWAY_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) || defined(__FMA__) || defined(__F16C__)
#include <immintrin.h>
#endif

typedef float f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef int16_t h16 __attribute__((vector_size(32)));
typedef uint16_t u16 __attribute__((vector_size(32)));
typedef uint8_t v32 __attribute__((vector_size(32)));

/* Of which each call with other constants is a function of its own. */
#define EACH static inline __attribute__((always_inline))

/* Keeps a value that is used several times from being read anew each time. */
#ifdef __AVX2__
#define IN_REGISTER(value) __asm__("" : "+x"(value))
#define ADD_IN_PLACE(how, total, term, sum) __asm__(how " %1, %0, %0" : "+x"(total) : "x"(term))
#else
#define ADD_IN_PLACE(how, total, term, sum) total = sum
#define IN_REGISTER(value)
#endif

static inline f8 load(const float *at) { return *(const f8 *)at; }

static inline void store(float *at, f8 value) { *(f8 *)at = value; }

static inline f8 all(float value) { return value - (f8){0}; }

static inline float sum(f8 v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline v32 load_bytes(const uint8_t *at) {
    v32 bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

/* The lanes in another order, so that after these three each has met all. */
#define HALVES_SWAPPED ((i8){4, 5, 6, 7, 0, 1, 2, 3})
#define PAIRS_SWAPPED ((i8){2, 3, 0, 1, 6, 7, 4, 5})
#define LANES_SWAPPED ((i8){1, 0, 3, 2, 5, 4, 7, 6})

static inline int32_t sum_up(i8 v) {
    v += __builtin_shuffle(v, HALVES_SWAPPED);
    v += __builtin_shuffle(v, PAIRS_SWAPPED);
    return v[0] + v[1];
}

static inline i8 greater(i8 one, i8 other) {
#ifdef __AVX2__
    return (i8)_mm256_max_epi32((__m256i)one, (__m256i)other);
#else
    i8 which = one > other;
    return (which & one) | (~which & other);
#endif
}

/* Sums of two products each, of numbers of 16 bits. */
static inline i8 products(h16 a, h16 b) {
#ifdef __AVX2__
    return (i8)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    i8 found;
    for (int l = 0; l < 8; l++) found[l] = a[2 * l] * b[2 * l] + a[2 * l + 1] * b[2 * l + 1];
    return found;
#endif
}

/* The same of numbers of 8 bits, of which the second ones have a sign; the sums must fit into 16. */
static inline h16 byte_products(v32 a, v32 b) {
#ifdef __AVX2__
    return (h16)_mm256_maddubs_epi16((__m256i)a, (__m256i)b);
#else
    h16 found;
    for (int l = 0; l < 16; l++) found[l] = a[2 * l] * (int8_t)b[2 * l] + a[2 * l + 1] * (int8_t)b[2 * l + 1];
    return found;
#endif
}

/* a * b + c, rounded once wherever the processor can: left to the compiler, two places of the same sum could differ. */
static inline f8 fused(f8 a, f8 b, f8 c) {
#ifdef __FMA__
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__FP_FAST_FMAF)
    for (int l = 0; l < 8; l++) c[l] = __builtin_fmaf(a[l], b[l], c[l]);
    return c;
#else
    return a * b + c;
#endif
}

/* Rounded to the nearest whole number, halves to even. */
static inline i8 nearest(f8 x) {
#ifdef __AVX2__
    return (i8)_mm256_cvtps_epi32(x);
#else
    i8 found;
    for (int l = 0; l < 8; l++) found[l] = (int32_t)__builtin_rintf(x[l]);
    return found;
#endif
}

static inline f8 floats(i8 codes) { return __builtin_convertvector(codes, f8); }

static inline f8 chosen(i8 which, f8 one, f8 other) { return (f8)((which & (i8)one) | (~which & (i8)other)); }

/* The other where either is not-a-number. */
static inline f8 larger(f8 one, f8 other) {
#ifdef __AVX2__
    return _mm256_max_ps(one, other);
#else
    return chosen(one > other, one, other);
#endif
}

static inline float highest(f8 v) {
    v = larger(v, (f8)__builtin_shuffle((i8)v, HALVES_SWAPPED));
    v = larger(v, (f8)__builtin_shuffle((i8)v, PAIRS_SWAPPED));
    return larger(v, (f8)__builtin_shuffle((i8)v, LANES_SWAPPED))[0];
}

/* Eight numbers of IEEE float16, widened. */
static inline f8 widened(const uint16_t *at) {
#ifdef __F16C__
    return (f8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at));
#else
    i8 bits = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
    i8 magnitude = (bits & 0x7fff) << 13;
    f8 value = (f8)magnitude * 0x1p112f; /* float32's exponents begin 112 lower */
    i8 endless = magnitude >= (0x7c00 << 13);
    return (f8)((i8)value | (endless & 0x7f800000) | (bits & 0x8000) << 16);
#endif
}

/* Eight numbers rounded to float16, to even where two are as near; beyond its largest, 65504, to that. What is not a
   number stays so. */
static inline void store_halves(uint16_t *at, f8 value) {
    i8 sign = (i8)value & (int32_t)0x80000000;
    f8 magnitude = (f8)((i8)value & 0x7fffffff);
    magnitude = chosen(magnitude > all(65504.0f), all(65504.0f), magnitude);
#ifdef __F16C__
    f8 clamped = (f8)((i8)magnitude | sign);
    _mm_storeu_si128((__m128i *)at, _mm256_cvtps_ph((__m256)clamped, _MM_FROUND_TO_NEAREST_INT));
#else
    i8 bits = (i8)magnitude;
    i8 usual = (bits - (112 << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
    i8 tiny = (i8)(magnitude + 0.5f) - (i8)all(0.5f); /* below 2^-14: 0.5f has the last place of the smallest numbers */
    i8 small = magnitude < all(0x1p-14f), unlike = magnitude != magnitude;
    i8 half = (small & tiny) | (~small & usual);
    half = (unlike & 0x7e00) | (~unlike & half) | ((sign >> 16) & 0x8000);
    for (int i = 0; i < 8; i++) at[i] = (uint16_t)half[i];
#endif
}

/* e to the x, x <= 0, within 2 units of the last place; below -87 it is e to the -87, which adds nothing to a sum that
   has a term of 1. Method: Cephes' expf, that is 2^n times a polynomial of the rest. */
static inline f8 exponential(f8 x) {
    x = larger(all(-87.0f), x);
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
