/* Attention of several tokens of a sequence over its slot: a tile of keys and values is laid out once for all of them. */
#include <math.h>

#include "slices.h"
#include "slots.h"

/* Rows are queries: token after token, and of each token the heads that share a head of keys. */
typedef struct {
    float *q;      /* [rows, head_dim] */
    float *keys;   /* [TILE / SLICE, head_dim, SLICE] of the tile */
    float *values; /* [wide / SLICE, TILE, SLICE], zeros behind head_dim */
    float *scores; /* [rows, TILE] */
    float *sums;   /* [rows, wide] */
    long dim, wide; /* head_dim, and the next multiple of SLICE */
    span seen[ROWS];
    running so_far[ROWS];
} room;

/* keys [dim, pitch] of a tile, its positions from .. to - 1, in whole slices */
static inline __attribute__((always_inline)) void lay_keys(const room *in, const char *keys, long pitch, span of,
                                                           const int half) {
    long from = of.lo / SLICE, to = (of.hi + SLICE - 1) / SLICE;
    for (long d = 0; d < in->dim; d++)
        for (long s = from; s < to; s++) {
            float *into = in->keys + (s * in->dim + d) * SLICE;
            store(into, number(keys, d * pitch + s * SLICE, half));
            store(into + 8, number(keys, d * pitch + s * SLICE + 8, half));
        }
}

static inline __attribute__((always_inline)) void lay_values(const room *in, const char *values, span of,
                                                             const int half) {
    for (long p = of.lo; p < of.hi; p++)
        for (long d = 0; d < in->wide; d += 8)
            store(in->values + (d / SLICE * TILE + p) * SLICE + d % SLICE,
                  d < in->dim ? number(values, p * in->dim + d, half) : all(0));
}

/* Scores of rows first .. last - 1, which all see something of the tile; whole slices, where a row sees any of one. */
static void score(const room *in, long first, long last) {
    for (long p = in->seen[first].lo / SLICE * SLICE; p < in->seen[last - 1].hi; p += SLICE) {
        long from = first, to = last;
        while (in->seen[from].hi <= p) from++;
        while (in->seen[to - 1].lo >= p + SLICE) to--;
        const float *slice = in->keys + p * in->dim;
        for (long r = from, step; r < to; r += step) {
            step = rows_at_once(to - r);
            multiply_slice(slice, in->dim, in->q + r * in->dim, in->dim, in->scores + r * TILE + p, TILE, step);
        }
    }
}

static void mix_rows(const room *in, long slice, long row, long from, long to, long rows) {
    if (from < to)
        add_slice(in->values + (slice * TILE + from) * SLICE, to - from, in->scores + row * TILE + from, TILE,
                  in->sums + row * in->wide + slice * SLICE, in->wide, rows);
}

/* Rows see other positions than their neighbours by one at either end, and nothing but what they see is touched: what
   lies behind may be no numbers. */
static void mix(const room *in, long first, long last) {
    for (long slice = 0; slice < in->wide / SLICE; slice++)
        for (long r = first, step; r < last; r += step) {
            step = rows_at_once(last - r);
            const span *here = in->seen + r;
            long from = here[step - 1].lo, to = most(here[0].hi, from);
            for (long i = 0; i < step; i++) mix_rows(in, slice, r + i, here[i].lo, least(from, here[i].hi), 1);
            mix_rows(in, slice, r, from, to, step);
            for (long i = 0; i < step; i++) mix_rows(in, slice, r + i, most(to, here[i].lo), here[i].hi, 1);
        }
}

static inline __attribute__((always_inline)) void attend_rows(const task *of, room *in, long slot, long start,
                                                              long tokens, long kv, const int half) {
    char *keys = place(of, of->keys, slot, kv), *values = place(of, of->values, slot, kv);
    long shared = of->heads / of->kv_heads, rows = tokens * shared;
    float scale = 1 / sqrtf((float)in->dim);
    for (long tile = first_seen(of, start) / TILE * TILE; tile < start + tokens; tile += TILE) {
        for (long r = 0; r < rows; r++) in->seen[r] = seen(of, start + r / shared, tile);
        long first = 0, last = rows;
        while (in->seen[first].hi <= 0) first++;
        while (in->seen[last - 1].lo >= TILE) last--;
        span any = {in->seen[first].lo, in->seen[last - 1].hi};
        lay_keys(in, column(of, keys, tile), of->pitch, any, half);
        lay_values(in, values + tile * in->dim * size_of(half), any, half);
        score(in, first, last);
        for (long r = first; r < last; r++)
            saltway_weigh(in->scores + r * TILE, in->seen[r], scale, in->so_far + r, in->sums + r * in->wide, in->wide);
        mix(in, first, last);
    }
}

void saltway_attend_chunk(const task *of, long piece, long kv) {
    long dim = of->head_dim, wide = (dim + SLICE - 1) / SLICE * SLICE, shared = of->heads / of->kv_heads;
    long tokens = of->count[piece], rows = tokens * shared;
    float numbers[TILE * (dim + wide) + ROWS * (dim + TILE + wide)] __attribute__((aligned(64)));
    room in = {.dim = dim, .wide = wide};
    in.keys = numbers;
    in.values = in.keys + TILE * dim;
    in.scores = in.values + TILE * wide;
    in.q = in.scores + ROWS * TILE;
    in.sums = in.q + ROWS * dim;
    for (long t = 0; t < tokens; t++)
        memcpy(in.q + t * shared * dim, of->q + (of->first[piece] + t) * of->stride + kv * shared * dim,
               shared * dim * sizeof(float));
    for (long r = 0; r < rows; r++) in.so_far[r] = (running){-INFINITY, 0};
    memset(in.sums, 0, rows * wide * sizeof(float));
    if (of->half)
        attend_rows(of, &in, of->slot[piece], of->start[piece], tokens, kv, 1);
    else
        attend_rows(of, &in, of->slot[piece], of->start[piece], tokens, kv, 0);
    for (long r = 0; r < rows; r++) {
        float *to = of->mixed + ((of->first[piece] + r / shared) * of->heads + kv * shared + r % shared) * dim;
        for (long d = 0; d < dim; d += 8) store(to + d, load(in.sums + r * wide + d) / in.so_far[r].weight);
    }
}
