/* Attention of single tokens over slots: keys and values are read once, straight from the slot, and asked for ahead of
   time: values while scores are added up, the next tile's keys while values are mixed. */
#include <math.h>

#include "slots.h"

enum { SHARED = 4 /* query heads computed together */, LINE = 64 /* bytes that are fetched at once */ };

/* scores [heads, TILE] of positions from .. to - 1, both multiples of 8. For every four dimensions so many bytes are
   fetched of what comes next. */
static inline __attribute__((always_inline)) void score_heads(const float *q, const char *keys, long dim, long pitch,
                                                              long from, long to, float *scores, const char *next,
                                                              long bytes, const int heads, const int half) {
    for (int h = 0; h < heads; h++) memset(scores + h * TILE + from, 0, (to - from) * sizeof(float));
    for (long d = 0; d < dim; d += 4, next += bytes) {
        const char *row = keys + d * pitch * size_of(half);
        f8 of[SHARED][4];
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < 4; i++) of[h][i] = all(q[h * dim + d + i]);
        for (long i = 0; i < bytes; i += LINE) __builtin_prefetch(next + i);
        for (long p = from; p < to; p += 8) {
            f8 a = number(row, p, half), b = number(row, pitch + p, half);
            f8 c = number(row, 2 * pitch + p, half), e = number(row, 3 * pitch + p, half);
            for (int h = 0; h < heads; h++) {
                f8 total = load(scores + h * TILE + p);
                total = fused(a, of[h][0], total);
                total = fused(b, of[h][1], total);
                total = fused(c, of[h][2], total);
                total = fused(e, of[h][3], total);
                store(scores + h * TILE + p, total);
            }
        }
    }
}

/* sums [heads, dim] += weights [heads, TILE] times values [TILE, dim], for `wide` times eight dimensions from d on */
static inline __attribute__((always_inline)) void mix_slice(const float *weights, const char *values, long dim, long d,
                                                            span of, float *sums, const char *next, const int heads,
                                                            const int wide, const int half) {
    f8 total[SHARED][8];
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < wide; i++) total[h][i] = load(sums + h * dim + d + 8 * i);
    for (long p = of.lo; p < of.hi; p++) {
        __builtin_prefetch(next + (d * TILE + p * 8 * wide) * size_of(half));
        for (int i = 0; i < wide; i++) {
            f8 value = number(values, p * dim + d + 8 * i, half);
            for (int h = 0; h < heads; h++) total[h][i] = fused(value, all(weights[h * TILE + p]), total[h][i]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < wide; i++) store(sums + h * dim + d + 8 * i, total[h][i]);
}

static inline __attribute__((always_inline)) void mix_heads(const float *weights, const char *values, long dim, span of,
                                                            float *sums, const char *next, const int heads,
                                                            const int half) {
    const int wide = heads == 1 ? 8 : heads == 4 ? 2 : 4;
    long d = 0;
    for (; d + 8 * wide <= dim; d += 8 * wide) mix_slice(weights, values, dim, d, of, sums, next, heads, wide, half);
    for (; d < dim; d += 8) mix_slice(weights, values, dim, d, of, sums, next, heads, 1, half);
}

static inline __attribute__((always_inline)) void attend_heads(const task *of, long token, long position, long slot,
                                                               long kv, long head, const int heads, const int half) {
    long dim = of->head_dim;
    char *keys = place(of, of->keys, slot, kv), *values = place(of, of->values, slot, kv);
    const float *q = of->q + token * of->stride + head * dim;
    float *mixed = of->mixed + (token * of->heads + head) * dim;
    float scores[SHARED * TILE] __attribute__((aligned(64)));
    float scale = 1 / sqrtf((float)dim);
    running so_far[SHARED];
    for (int h = 0; h < heads; h++) so_far[h] = (running){-INFINITY, 0};
    memset(mixed, 0, heads * dim * sizeof(float));
    for (long tile = first_seen(of, position) / TILE * TILE; tile <= position; tile += TILE) {
        span here = seen(of, position, tile);
        const char *mine = values + tile * dim * size_of(half);
        long bytes = (here.hi - here.lo) * dim * size_of(half);
        score_heads(q, column(of, keys, tile), dim, of->pitch, here.lo / 8 * 8, (here.hi + 7) / 8 * 8, scores,
                    mine + here.lo * dim * size_of(half), (bytes + dim / 4 - 1) / (dim / 4), heads, half);
        for (int h = 0; h < heads; h++) saltway_weigh(scores + h * TILE, here, scale, so_far + h, mixed + h * dim, dim);
        /* behind the last tile its own values again, which are at hand */
        mix_heads(scores, mine, dim, here, mixed, tile + TILE <= position ? column(of, keys, tile + TILE) : mine, heads,
                  half);
    }
    for (int h = 0; h < heads; h++)
        for (long d = 0; d < dim; d += 8) store(mixed + h * dim + d, load(mixed + h * dim + d) / so_far[h].weight);
}

#define HEADS(COUNT, HALF)                                                                                             \
    case 2 * COUNT + HALF: attend_heads(of, token, position, slot, kv, head, COUNT, HALF); break

void saltway_attend_token(const task *of, long piece, long kv) {
    long token = of->first[piece], position = of->start[piece], slot = of->slot[piece];
    long shared = of->heads / of->kv_heads, end = (kv + 1) * shared;
    for (long head = kv * shared; head < end; head += SHARED)
        switch (2 * least(end - head, SHARED) + of->half) {
            HEADS(1, 0);
            HEADS(1, 1);
            HEADS(2, 0);
            HEADS(2, 1);
            HEADS(3, 0);
            HEADS(3, 1);
            HEADS(4, 0);
            HEADS(4, 1);
        }
}
