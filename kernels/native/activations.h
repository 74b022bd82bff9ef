/* Rows of float32 activations as small whole numbers, in the order in which a product takes them. */
#ifndef SALTWAY_ACTIVATIONS_H
#define SALTWAY_ACTIVATIONS_H

#include "lanes.h"

enum {
    FEW = 8,  /* rows that are multiplied straight from the codes, so many at once: */
    LOW = 4,
    TALL = 6, /* and of more rows */
};

/* A group of a row has one scale, and no value moves by more than half of it: a 254th of the largest beside it in 8
   bits, a 65,534th in 16. A word has four inputs of 8 bits, or two of 16: of every four inputs the first and the third,
   then the second and the fourth. */
typedef struct {
    int32_t *words; /* tile after tile of rows: [groups * size * bits / 32, rows of the tile] */
    float *scale;   /* [rows, groups] */
    float *sum;     /* [rows, groups], of the activations so rounded */
    long groups, size, bits;
} activations;

/* How many of the rows that are left are multiplied together. */
static inline long tile_of(long rows, long first) {
    long left = rows - first;
    if (rows <= FEW) return left < LOW ? left : LOW;
    return left >= TALL ? TALL : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Words of eight inputs, to places `apart` from each other. */
static inline void put(i8 numbers, long bits, int32_t *words, long apart) {
    v32 bytes = (v32)numbers;
    if (bits == 8) { /* the lowest byte of each */
        const v32 order = {0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 20, 24, 28};
        i8 placed = (i8)__builtin_shuffle(bytes, order);
        words[0] = placed[0], words[apart] = placed[4];
    } else { /* the two lowest, of the first and the third input, then of the second and the fourth */
        const v32 order = {0, 1, 8, 9, 4, 5, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0, 16, 17, 24, 25, 20, 21, 28, 29};
        i8 placed = (i8)__builtin_shuffle(bytes, order);
        words[0] = placed[0], words[apart] = placed[1], words[2 * apart] = placed[4], words[3 * apart] = placed[5];
    }
}

/* The largest size of `count` numbers. Compared as integers, infinity wins over all numbers, and not-a-number over it.
 */
static inline float largest_of(const float *x, long count) {
    i8 most = {0};
    for (long k = 0; k < count; k += 8) most = greater((i8)load(x + k) & 0x7fffffff, most);
    most = greater(most, __builtin_shuffle(most, HALVES_SWAPPED));
    most = greater(most, __builtin_shuffle(most, PAIRS_SWAPPED));
    most = greater(most, __builtin_shuffle(most, LANES_SWAPPED));
    return ((f8)most)[0];
}

/* One row of x [rows, groups * size]. A group of no size to speak of is zeros. One in which a number is infinite or
   none has such a scale, and spoils its row alone. */
static inline void prepare(const float *x, long row, long first, long tile, activations to) {
    long inputs = to.groups * to.size, steps = to.size * to.bits / 32;
    float top = to.bits == 8 ? 127 : 32767;
    for (long g = 0; g < to.groups; g++) {
        const float *from = x + row * inputs + g * to.size;
        int32_t *words = to.words + first * inputs * to.bits / 32 + g * steps * tile + row - first;
        float largest = largest_of(from, to.size), inverse = largest < 1e-30f ? 0 : top / largest;
        i8 sum = {0};
        for (long k = 0; k < to.size; k += 8) {
            i8 numbers = nearest(load(from + k) * inverse);
            sum += numbers;
            put(numbers, to.bits, words + k * to.bits / 32 * tile, tile);
        }
        to.scale[row * to.groups + g] = largest / top;
        to.sum[row * to.groups + g] = largest / top * sum_up(sum);
    }
}

#endif
