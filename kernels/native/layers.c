/* All layers of a decoder over tokens of slots: one call, where ten for each layer would take longer than what they do. */
#include "attention.h"
#include "codes.h"
#include "lanes.h"
#include "rows.h"

enum { PARTS = 3 /* queries, keys and values at most */ };

typedef struct {
    const matrix *parts[PARTS]; /* their outputs lie side by side; NULL behind the last */
    const float *bias;          /* NULL without */
} linear;

typedef struct {
    const float *attention_norm, *ffn_norm; /* [width] */
    const float *qk_norm;                   /* [heads + kv_heads, head_dim]; NULL without */
    linear qkv, output, gate_up, down;
} layer;

typedef struct {
    const layer *layers;
    task **tasks;            /* of each layer, by what its tokens see; all but q, keys, values and mixed is set */
    char *keys, *values;     /* of all layers, each so many bytes behind the one before */
    long keys_apart, values_apart;
    const float *cos, *sin; /* [rows, head_dim] */
    float *x;               /* [rows, width]: what goes in, and what comes out */
    float *normed;          /* [rows, width]: what a norm gives, and what is added to x */
    float *qkv;             /* [rows, heads + 2 kv_heads, head_dim] */
    float *rotated;         /* [rows, heads + kv_heads, head_dim] */
    float *mixed;           /* [rows, heads, head_dim] */
    float *gate_up, *gated; /* [rows, 2 hidden], [rows, hidden] */
    void *room;             /* for the activations of any product */
    long count, rows, width, heads, kv_heads, head_dim, hidden;
    float epsilon;
} pass;

static void apply(const linear *by, const float *x, const pass *all, float *y, int threads) {
    long rows = all->rows, outputs = 0, at = 0;
    for (int p = 0; p < PARTS && by->parts[p]; p++) outputs += by->parts[p]->panels * PANEL;
    for (int p = 0; p < PARTS && by->parts[p]; at += by->parts[p++]->panels * PANEL)
        saltway_multiply(by->parts[p], x, rows, all->room, y + at, outputs, threads);
    for (long i = 0; by->bias && i < rows; i++)
        for (long r = 0; r < outputs; r += 8) store(y + i * outputs + r, load(y + i * outputs + r) + load(by->bias + r));
}

static void add(float *x, const float *y, long count, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && count >= 1 << 14)
    for (long i = 0; i < count; i += 8) store(x + i, load(x + i) + load(y + i));
}

/* normed, in place of the layer's input -> what attention adds to x */
static void attention(const pass *all, long index, int threads) {
    const layer *of = all->layers + index;
    task *seen = all->tasks[index];
    long rows = all->rows, dim = all->head_dim, turned = all->heads + all->kv_heads, apart = (turned + all->kv_heads) * dim;
    apply(&of->qkv, all->normed, all, all->qkv, threads);
    for (long i = 0; of->qk_norm && i < rows; i++) {
        float *qk = all->qkv + i * apart;
        saltway_norm(qk, of->qk_norm, turned, turned, dim, all->epsilon, qk, 1);
    }
    saltway_rotate(all->qkv, apart, all->cos, all->sin, rows, turned, dim, all->rotated, threads);
    seen->q = all->rotated;
    seen->stride = turned * dim;
    seen->keys = all->keys + index * all->keys_apart;
    seen->values = all->values + index * all->values_apart;
    seen->mixed = all->mixed;
    saltway_place(seen, all->rotated + all->heads * dim, turned * dim, all->qkv + turned * dim, apart);
    saltway_attend(seen, threads);
    apply(&of->output, all->mixed, all, all->normed, threads);
}

static void feed_forward(const pass *all, const layer *of, int threads) {
    apply(&of->gate_up, all->normed, all, all->gate_up, threads);
    saltway_gate(all->gate_up, all->rows, all->hidden, all->gated, threads);
    apply(&of->down, all->gated, all, all->normed, threads);
}

void saltway_layers(const pass *all, int threads) {
    long numbers = all->rows * all->width;
    for (long index = 0; index < all->count; index++) {
        const layer *of = all->layers + index;
        saltway_norm(all->x, of->attention_norm, all->rows, 1, all->width, all->epsilon, all->normed, threads);
        attention(all, index, threads);
        add(all->x, all->normed, numbers, threads);
        saltway_norm(all->x, of->ffn_norm, all->rows, 1, all->width, all->epsilon, all->normed, threads);
        feed_forward(all, of, threads);
        add(all->x, all->normed, numbers, threads);
    }
}
