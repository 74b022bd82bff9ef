/* Attention over slots: what single tokens and chunks of prompts have in common.

   A query's result is the same bits whatever it is computed beside, and whether alone (tokens.c) or in a chunk
   (chunks.c), because the order in which it is added up follows from its position alone:
     - positions come in tiles of TILE, counted from position 0 of the slot, whatever the query may not see of them;
     - a score is added up over the dimensions of the head, from the first to the last, each product fused with its sum;
     - a tile's weights are relative to the largest score so far, and what was mixed before is faded to it (Milakov and
       Gimelshein, "Online normalizer calculation for softmax", 2018);
     - values are mixed position by position, each product fused with its sum. */
#ifndef SALTWAY_SLOTS_H
#define SALTWAY_SLOTS_H

#include "attention.h"
#include "lanes.h"

enum {
    TILE = 128, /* positions whose scores are held at a time */
    ROWS = 192,  /* queries of one head of keys that are computed together: a piece has so many at most, or one token */
};

/* The positions of a tile that a query sees: lo .. hi - 1, counted from the tile's first. */
typedef struct {
    long lo, hi;
} span;

static inline long most(long a, long b) { return a > b ? a : b; }

static inline long least(long a, long b) { return a < b ? a : b; }

/* The first position that the token at `position` sees. */
static inline long first_seen(const task *of, long position) {
    return of->window ? most(0, position + 1 - of->window) : 0;
}

static inline span seen(const task *of, long position, long tile) {
    return (span){most(0, first_seen(of, position) - tile), least(TILE, position + 1 - tile)};
}

static inline long size_of(const long half) { return half ? 2 : 4; }

/* Where the numbers of a slot and KV head begin, among all keys or all values. */
static inline char *place(const task *of, char *all, long slot, long kv) {
    return all + (slot * of->kv_heads + kv) * of->head_dim * of->context * size_of(of->half);
}

static inline f8 number(const void *at, long i, const int half) {
    return half ? widened((const uint16_t *)at + i) : load((const float *)at + i);
}

/* Where the keys of a position begin, dimension after dimension, `pitch` apart. */
static inline char *column(const task *of, char *keys, long position) {
    long at = position / of->pitch * of->pitch * of->head_dim + position % of->pitch;
    return keys + at * size_of(of->half);
}

/* What a query has added up so far: weights relative to the largest score. */
typedef struct {
    float largest, weight;
} running;

/* Scores of a tile -> weights, of the positions that are seen and 0 up to the next multiples of eight; and what was
   mixed before, `sums` [dim], is faded to the new largest score. */
void saltway_weigh(float *scores, span of, float scale, running *so_far, float *sums, long dim);

/* A piece and head of keys: of one token, and of any number. */
void saltway_attend_token(const task *of, long piece, long kv);
void saltway_attend_chunk(const task *of, long piece, long kv);

#endif
