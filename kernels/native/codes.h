/* A matrix of small codes, for who multiplies by it from C. */
#ifndef SALTWAY_CODES_H
#define SALTWAY_CODES_H

enum { PANEL = 64 /* outputs */ };

typedef struct {
    const void *codes;    /* uint8 [panels, groups, size / 2, 64], an even input in the lower half of a byte and the
                             next one in the upper half; or int8 [panels, groups, size, 64] */
    const float *scale;   /* [panels, groups, 64] */
    const float *minimum; /* as scale; NULL where values are multiples of the scale alone */
    long panels, groups, size, bits;
} matrix;

void saltway_multiply(const matrix *by, const float *x, long rows, float *y, int threads);

#endif
