/* What is done to each row of activations by itself. kernels/norm.py, gate.py and rotary.py name the sources of the
   formulas. */
#include "rows.h"

#include <math.h>

#include "lanes.h"

enum { MANY = 32 /* rows that are worth waking another thread for */ };

/* y = x / sqrt(mean(x * x) + epsilon) * weight, rows of `size` numbers, a multiple of 8; `weights` rows of weights are
   taken in turn */
void saltway_norm(const float *x, const float *weight, long rows, long weights, long size, float epsilon, float *y,
                  int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows >= MANY)
    for (long i = 0; i < rows; i++) {
        const float *from = x + i * size, *by = weight + i % weights * size;
        f8 squares[2] = {all(0), all(0)};
        for (long d = 0; d < size; d += 8) squares[d / 8 % 2] += load(from + d) * load(from + d);
        float scale = 1 / sqrtf(sum(squares[0] + squares[1]) / (float)size + epsilon);
        for (long d = 0; d < size; d += 8) store(y + i * size + d, load(from + d) * scale * load(by + d));
    }
}

/* y [rows, size] = silu(gate) * up of x [rows, gate [size] and up [size]] */
void saltway_gate(const float *x, long rows, long size, float *y, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows >= MANY)
    for (long i = 0; i < rows; i++) {
        const float *gate = x + 2 * i * size, *up = gate + size;
        for (long d = 0; d < size; d += 8) {
            f8 g = load(gate + d), small = (f8)((i8)g & 0x7fffffff);
            f8 e = exponential(-small);
            i8 negative = g < all(0);
            f8 above = (f8)((negative & (i8)e) | (~negative & (i8)all(1))); /* 1, or e^g where g is below 0 */
            store(y + i * size + d, g * above / (e + 1.0f) * load(up + d));
        }
    }
}

/* The heads of each row rotated, x [rows, heads, dim], rows `stride` apart -> y [rows, heads, dim];
   cos, sin [rows, dim], the sines of the first half negative */
void saltway_rotate(const float *x, long stride, const float *cos, const float *sin, long rows, long heads, long dim,
                    float *y, int threads) {
    long half = dim / 2;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows >= MANY)
    for (long i = 0; i < rows; i++)
        for (long h = 0; h < heads; h++) {
            const float *from = x + i * stride + h * dim, *c = cos + i * dim, *s = sin + i * dim;
            float *to = y + (i * heads + h) * dim;
            for (long d = 0; d < half; d += 8) {
                f8 left = load(from + d), right = load(from + half + d);
                store(to + d, left * load(c + d) + right * load(s + d));
                store(to + half + d, right * load(c + half + d) + left * load(s + half + d));
            }
        }
}
