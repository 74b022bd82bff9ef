/* Attention over slots: each token's key and value into its slot, then what each token sees there. */
#include "attention.h"

#include <math.h>

#include "slots.h"

void saltway_weigh(float *scores, span of, float scale, running *so_far, float *sums, long dim) {
    long begin = of.lo / 8 * 8, end = (of.hi + 7) / 8 * 8;
    for (long p = begin; p < of.lo; p++) scores[p] = -INFINITY;
    for (long p = of.hi; p < end; p++) scores[p] = -INFINITY;
    f8 top = all(-INFINITY);
    for (long p = begin; p < end; p += 8) {
        f8 here = load(scores + p);
        top = larger(top, here);
    }
    float before = so_far->largest, largest = fmaxf(before, highest(top) * scale);
    f8 total = all(0);
    for (long p = begin; p < end; p += 8) {
        f8 relative = load(scores + p) * scale - largest;
        f8 weights = exponential(relative);
        i8 nothing = relative < all(-87.0f); /* unseen, or nothing beside the largest; not-a-number stays */
        weights = (f8)((i8)weights & ~nothing);
        store(scores + p, weights);
        total += weights;
    }
    float fade = so_far->weight > 0 ? before == largest ? 1 : expf(before - largest) : 0;
    *so_far = (running){largest, so_far->weight * fade + sum(total)};
    for (long d = 0; fade != 1 && d < dim; d += 8) store(sums + d, load(sums + d) * fade);
}

void saltway_attend(const task *of, int threads) {
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads) if (threads > 1)
    for (long piece = 0; piece < of->pieces; piece++)
        for (long kv = 0; kv < of->kv_heads; kv++)
            if (of->count[piece] == 1)
                saltway_attend_token(of, piece, kv);
            else
                saltway_attend_chunk(of, piece, kv);
}

static void place_floats(const float *key, const float *value, long dim, float *keys, long pitch, float *values) {
    for (long d = 0; d < dim; d++) keys[d * pitch] = key[d];
    memcpy(values, value, dim * sizeof(float));
}

static void place_halves(const float *key, const float *value, long dim, uint16_t *keys, long pitch, uint16_t *values) {
    for (long d = 0; d < dim; d += 8) {
        uint16_t halves[8];
        store_halves(halves, load(key + d));
        for (long i = 0; i < 8; i++) keys[(d + i) * pitch] = halves[i];
        store_halves(values + d, load(value + d));
    }
}

void saltway_place(const task *of, const float *k, long k_stride, const float *v, long v_stride) {
    long dim = of->head_dim;
    for (long piece = 0; piece < of->pieces; piece++)
        for (long kv = 0; kv < of->kv_heads; kv++)
            for (long t = 0; t < of->count[piece]; t++) {
                long token = of->first[piece] + t, position = of->start[piece] + t, slot = of->slot[piece];
                const float *key = k + token * k_stride + kv * dim, *value = v + token * v_stride + kv * dim;
                char *keys = column(of, place(of, of->keys, slot, kv), position);
                char *values = place(of, of->values, slot, kv) + position * dim * size_of(of->half);
                if (of->half)
                    place_halves(key, value, dim, (uint16_t *)keys, of->pitch, (uint16_t *)values);
                else
                    place_floats(key, value, dim, (float *)keys, of->pitch, (float *)values);
            }
}
