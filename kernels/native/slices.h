/* Rows times a slice: the inner loop of products of many rows, whose sums stay in registers. */
#ifndef SALTWAY_SLICES_H
#define SALTWAY_SLICES_H

#include "lanes.h"

enum {
    SLICE = 16, /* outputs that are added up at once */
    TOGETHER = 6, /* rows at once: with SLICE outputs their sums take 12 of 16 registers */
};

/* y [rows, SLICE] = x [rows, inputs] times slice [inputs, SLICE], or as much more. A row is added up input by input,
   whatever other rows there are. */
static inline __attribute__((always_inline)) void by_slice(const float *slice, long inputs, const float *x, long width,
                                                           float *y, long outputs, const int rows, const int fresh) {
    f8 total[TOGETHER][2];
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < 2; h++) total[i][h] = fresh ? all(0) : load(y + i * outputs + 8 * h);
    for (long k = 0; k < inputs; k++) {
        f8 left = load(slice + k * SLICE), right = load(slice + k * SLICE + 8);
        for (int i = 0; i < rows; i++) {
            f8 by = all(x[i * width + k]);
            total[i][0] = fused(left, by, total[i][0]);
            total[i][1] = fused(right, by, total[i][1]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < 2; h++) store(y + i * outputs + 8 * h, total[i][h]);
}

/* How many of so many rows are multiplied at once. */
static inline long rows_at_once(long rows) { return rows < TOGETHER ? rows : TOGETHER; }

static inline __attribute__((always_inline)) void by_slices(const float *slice, long inputs, const float *x, long width,
                                                            float *y, long outputs, long rows, const int fresh) {
    switch (rows) {
        case 1: by_slice(slice, inputs, x, width, y, outputs, 1, fresh); break;
        case 2: by_slice(slice, inputs, x, width, y, outputs, 2, fresh); break;
        case 3: by_slice(slice, inputs, x, width, y, outputs, 3, fresh); break;
        case 4: by_slice(slice, inputs, x, width, y, outputs, 4, fresh); break;
        case 5: by_slice(slice, inputs, x, width, y, outputs, 5, fresh); break;
        default: by_slice(slice, inputs, x, width, y, outputs, TOGETHER, fresh);
    }
}

static __attribute__((noinline)) void multiply_slice(const float *slice, long inputs, const float *x, long width,
                                                     float *y, long outputs, long rows) {
    by_slices(slice, inputs, x, width, y, outputs, rows, 1);
}

static __attribute__((noinline)) void add_slice(const float *slice, long inputs, const float *x, long width, float *y,
                                                long outputs, long rows) {
    by_slices(slice, inputs, x, width, y, outputs, rows, 0);
}

#endif
