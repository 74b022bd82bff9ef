/* Attention of single tokens over slots: keys [head_dim, positions], values [positions, head_dim] for each KV head. */
#include <math.h>

#include "attention.h"
#include "lanes.h"

enum { TILE = 128 /* positions whose scores are held at a time */, SHARED = 4 /* query heads computed together */ };

/* scores [heads, TILE] of `count` positions, a multiple of 8. What lies behind the last that counts is read, not used. */
static inline __attribute__((always_inline)) void score_heads(const float *q, const float *keys, const int heads,
                                                              long dim, long context, long count, float *scores) {
    for (int h = 0; h < heads; h++) memset(scores + h * TILE, 0, count * sizeof(float));
    for (long d = 0; d < dim; d += 4) {
        const float *row = keys + d * context;
        f8 of[SHARED][4];
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < 4; i++) of[h][i] = all(q[h * dim + d + i]);
        for (long p = 0; p < count; p += 8) {
            f8 a = load(row + p), b = load(row + context + p);
            f8 c = load(row + 2 * context + p), e = load(row + 3 * context + p);
            if (p % 16 == 0) /* rows lie a slot's length apart, which no processor foresees */
                for (long i = 4; i < 8; i++) __builtin_prefetch(row + i * context + p);
            for (int h = 0; h < heads; h++) {
                f8 total = load(scores + h * TILE + p);
                total += a * of[h][0];
                total += b * of[h][1];
                total += c * of[h][2];
                total += e * of[h][3];
                store(scores + h * TILE + p, total);
            }
        }
    }
}

static void score(const float *q, const float *keys, long heads, long dim, long context, long count, float *scores) {
    switch (heads) {
        case 1: score_heads(q, keys, 1, dim, context, count, scores); break;
        case 2: score_heads(q, keys, 2, dim, context, count, scores); break;
        case 3: score_heads(q, keys, 3, dim, context, count, scores); break;
        default: score_heads(q, keys, 4, dim, context, count, scores);
    }
}

/* scores -> weights relative to the largest score so far; what was mixed before is brought to the new largest. */
static void weigh(float *scores, long count, float scale, float *largest, float *weight, float *mixed, long dim) {
    float most = *largest;
    for (long p = 0; p < count; p++) most = fmaxf(most, scores[p] * scale);
    float fade = *weight > 0 ? expf(*largest - most) : 0;
    for (long p = count; p % 8; p++) scores[p] = -INFINITY;
    f8 total = all(0);
    for (long p = 0; p < count; p += 8) {
        f8 relative = load(scores + p) * scale - most;
        f8 weights = exponential(relative);
        i8 nothing = relative < all(-87.0f); /* behind the last, or nothing beside the largest; not-a-number stays */
        weights = (f8)((i8)weights & ~nothing);
        store(scores + p, weights);
        total += weights;
    }
    *largest = most;
    *weight = *weight * fade + sum(total);
    for (long d = 0; d < dim; d += 8) store(mixed + d, load(mixed + d) * fade);
}

/* mixed [heads, dim] += weights [heads, TILE] times values [count, dim] */
static inline __attribute__((always_inline)) void mix_heads(const float *weights, const float *values, const int heads,
                                                            long dim, long count, float *mixed) {
    for (long d = 0; d < dim; d += 8) {
        f8 even[SHARED], odd[SHARED];
        for (int h = 0; h < heads; h++) even[h] = load(mixed + h * dim + d), odd[h] = all(0);
        long p = 0;
        for (; p + 2 <= count; p += 2) {
            f8 one = load(values + p * dim + d), two = load(values + (p + 1) * dim + d);
            __builtin_prefetch(values + (p + 16) * dim + d);
            __builtin_prefetch(values + (p + 17) * dim + d);
            for (int h = 0; h < heads; h++) {
                even[h] += one * weights[h * TILE + p];
                odd[h] += two * weights[h * TILE + p + 1];
            }
        }
        if (p < count)
            for (int h = 0; h < heads; h++) even[h] += load(values + p * dim + d) * weights[h * TILE + p];
        for (int h = 0; h < heads; h++) store(mixed + h * dim + d, even[h] + odd[h]);
    }
}

static void mix(const float *weights, const float *values, long heads, long dim, long count, float *mixed) {
    switch (heads) {
        case 1: mix_heads(weights, values, 1, dim, count, mixed); break;
        case 2: mix_heads(weights, values, 2, dim, count, mixed); break;
        case 3: mix_heads(weights, values, 3, dim, count, mixed); break;
        default: mix_heads(weights, values, 4, dim, count, mixed);
    }
}

static void attend(const task *of, long token, long kv, long first, long heads) {
    long dim = of->head_dim, context = of->context, end = of->end[token];
    long place = (of->slot[token] * of->kv_heads + kv) * dim * context;
    const float *keys = of->keys + place, *values = of->values + place;
    const float *q = of->q + token * of->stride + first * dim;
    float *mixed = of->mixed + (token * of->heads + first) * dim;
    float scores[SHARED * TILE] __attribute__((aligned(64)));
    float largest[SHARED], weight[SHARED], scale = 1 / sqrtf((float)dim);
    for (long h = 0; h < heads; h++) largest[h] = -INFINITY, weight[h] = 0;
    memset(mixed, 0, heads * dim * sizeof(float));
    for (long at = of->begin[token]; at < end; at += TILE) {
        long count = end - at < TILE ? end - at : TILE;
        long whole = (count + 7) / 8 * 8;
        if (at + whole > context) whole = count / 8 * 8;
        score(q, keys + at, heads, dim, context, whole, scores);
        for (long h = 0; h < heads; h++) /* the last few of a full slot, one by one */
            for (long p = whole; p < count; p++) {
                float total = 0;
                for (long d = 0; d < dim; d++) total += q[h * dim + d] * keys[d * context + at + p];
                scores[h * TILE + p] = total;
            }
        for (long h = 0; h < heads; h++)
            weigh(scores + h * TILE, count, scale, largest + h, weight + h, mixed + h * dim, dim);
        mix(scores, values + at * dim, heads, dim, count, mixed);
    }
    for (long h = 0; h < heads; h++)
        for (long d = 0; d < dim; d++) mixed[h * dim + d] /= weight[h];
}

void saltway_attend(const task *of, int threads) {
    long shared = of->heads / of->kv_heads;
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads) if (threads > 1)
    for (long token = 0; token < of->tokens; token++)
        for (long kv = 0; kv < of->kv_heads; kv++)
            for (long h = 0; h < shared; h += SHARED)
                attend(of, token, kv, kv * shared + h, shared - h < SHARED ? shared - h : SHARED);
}

/* k, v [tokens, kv_heads, head_dim], tokens so far apart, into the position before each token's end. */
void saltway_place(const task *of, const float *k, long k_stride, const float *v, long v_stride) {
    long dim = of->head_dim;
    for (long token = 0; token < of->tokens; token++)
        for (long kv = 0; kv < of->kv_heads; kv++) {
            long place = (of->slot[token] * of->kv_heads + kv) * dim * of->context, position = of->end[token] - 1;
            float *keys = (float *)of->keys + place + position, *values = (float *)of->values + place + position * dim;
            for (long d = 0; d < dim; d++) keys[d * of->context] = k[token * k_stride + kv * dim + d];
            memcpy(values, v + token * v_stride + kv * dim, dim * sizeof(float));
        }
}
