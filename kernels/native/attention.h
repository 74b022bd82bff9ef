/* Attention of single tokens over slots, for who calls it from C. */
#ifndef SALTWAY_ATTENTION_H
#define SALTWAY_ATTENTION_H

#include <stdint.h>

typedef struct {
    const float *q; /* [tokens, heads, head_dim], tokens `stride` apart */
    const float *keys, *values;
    const int64_t *slot, *begin, *end; /* each token sees the positions begin .. end - 1 of its slot */
    float *mixed;                      /* [tokens, heads, head_dim] */
    long stride, tokens, heads, kv_heads, head_dim, context;
} task;

void saltway_place(const task *of, const float *k, long k_stride, const float *v, long v_stride);
void saltway_attend(const task *of, int threads);

#endif
