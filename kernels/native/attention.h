/* Attention over slots, for who calls it from C. */
#ifndef SALTWAY_ATTENTION_H
#define SALTWAY_ATTENTION_H

#include <stdint.h>

typedef struct {
    const float *q;       /* [tokens, heads, head_dim], tokens `stride` apart */
    char *keys, *values;  /* of each slot and KV head: [context / pitch, head_dim, pitch] and [context, head_dim] */
    const int64_t *slot;  /* of each piece, which is some consecutive tokens of a slot; see slots.h for how many */
    const int64_t *start; /* the position of its first token; a token sees itself and what lies before */
    const int64_t *first; /* its first token among all */
    const int64_t *count; /* its tokens */
    float *mixed;         /* [tokens, heads, head_dim] */
    long stride, pieces, heads, kv_heads, head_dim;
    long context, pitch; /* multiples of the tiles of slots.h */
    long window;         /* how many positions a token sees, its own included; 0 for all */
    long half;           /* whether keys and values are float16; else float32 */
} task;

/* k, v [tokens, kv_heads, head_dim], tokens so far apart, each into its position of its slot */
void saltway_place(const task *of, const float *k, long k_stride, const float *v, long v_stride);
void saltway_attend(const task *of, int threads);

#endif
