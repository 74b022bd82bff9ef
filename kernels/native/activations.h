/* Rows of float32 activations as small whole numbers, in the order in which a product takes them. */
#ifndef SALTWAY_ACTIVATIONS_H
#define SALTWAY_ACTIVATIONS_H

#include "lanes.h"

enum {
    FEW = 12, /* rows that are multiplied straight from the codes, so many at once: */
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
    if (bits == 8) {
        i8 placed = (numbers & 255) << (i8){0, 8, 16, 24, 0, 8, 16, 24};
        placed |= __builtin_shuffle(placed, (i8){1, 0, 3, 2, 5, 4, 7, 6});
        placed |= __builtin_shuffle(placed, (i8){2, 3, 0, 1, 6, 7, 4, 5});
        words[0] = placed[0], words[apart] = placed[4];
    } else {
        i8 placed = (numbers & 65535) << (i8){0, 0, 16, 16, 0, 0, 16, 16};
        placed |= __builtin_shuffle(placed, (i8){2, 3, 0, 1, 6, 7, 4, 5});
        words[0] = placed[0], words[apart] = placed[1], words[2 * apart] = placed[4], words[3 * apart] = placed[5];
    }
}

/* The largest size of `count` numbers. Compared as integers, infinity wins over all numbers, and not-a-number over it.
 */
static inline float largest_of(const float *x, long count) {
    i8 most = {0};
    for (long k = 0; k < count; k += 8) {
        i8 size = (i8)load(x + k) & 0x7fffffff, larger = size > most;
        most = (larger & size) | (~larger & most);
    }
    int32_t found = 0;
    float largest;
    for (int l = 0; l < 8; l++) found = most[l] > found ? most[l] : found;
    memcpy(&largest, &found, sizeof largest);
    return largest;
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
