/* A matrix of small codes, for who multiplies by it from C. */
#ifndef SALTWAY_CODES_H
#define SALTWAY_CODES_H

#include <stdint.h>

enum { PANEL = 64 /* outputs */ };

typedef struct {
    const uint8_t *codes; /* of 4 bits [panels, groups, size / 8, 8 octets, 8 outputs, 4 inputs], the four inputs behind
                             them in the upper half of the bytes; of 8, signed [.., size / 4, 8, 8, 4] */
    const void *scale;    /* [panels, groups, 64], float16 where `halves`, else float32 */
    const void *minimum;  /* as scale; NULL where values are multiples of the scale alone */
    long panels, groups, size, bits, halves;
    long wide; /* bits of the activations: 8, if codes have 4, or 16 */
} matrix;

/* y [rows, panels * 64] = x [rows, groups * size] times the matrix.

   apart  numbers between two rows of y, a multiple of 8
   room   for rows * (groups * size * wide / 32 + 2 * groups) numbers of 32 bits */
void saltway_multiply(const matrix *by, const float *x, long rows, void *room, float *y, long apart, int threads);

#endif
