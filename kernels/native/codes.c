/* Products of float32 activations and a matrix of small codes: value = code * scale + minimum.

   A matrix lies in panels of 64 outputs: first the codes of the panel's first group of inputs, input after input, then
   those of the next group. A row of activations is added up input by input whatever other rows there are, so its result
   is the same bit by bit alone and in any batch. */
#include "codes.h"

#include "lanes.h"

enum {
    SLICE = 16,   /* outputs of a panel that are added up at once */
    FEW = 4,      /* rows that are multiplied straight from the codes */
    INPUTS = 288, /* whose values of one panel are kept: 74 KB beside the activations in the second cache */
};

typedef struct {
    const uint8_t *codes;
    const float *scale, *minimum;
    long size, bits;
} group;

static inline group group_of(const matrix *of, long panel, long number) {
    long at = panel * of->groups + number;
    return (group){(const uint8_t *)of->codes + at * (of->size * of->bits / 8) * PANEL, of->scale + at * PANEL,
                   of->minimum ? of->minimum + at * PANEL : 0, of->size, of->bits};
}

/* The values of inputs k and k + 1 (of 4 bits) or of input k alone (of 8), of outputs r .. r + 7. */
static inline void pair(const group *of, long k, long r, f8 scale, f8 minimum, f8 *even, f8 *odd) {
    i8 both = unsigned_codes(of->codes + k / 2 * PANEL + r);
    *even = floats(both & 15) * scale + minimum;
    *odd = floats(both >> 4) * scale + minimum;
}

static inline f8 single(const group *of, long k, long r, f8 scale, f8 minimum) {
    return floats(signed_codes((const int8_t *)of->codes + k * PANEL + r)) * scale + minimum;
}

static inline f8 minimum_at(const group *of, long r) { return of->minimum ? load(of->minimum + r) : all(0); }

/* ROWS activations at once, WIDE times eight outputs at a time, straight from the codes. */
#define DIRECT(ROWS, WIDE)                                                                                             \
    static void direct##ROWS(const group *of, const float *x, long width, float *y, long outputs) {                   \
        for (long r = 0; r < PANEL; r += 8 * WIDE) {                                                                   \
            f8 scale[WIDE], minimum[WIDE], total[ROWS][WIDE];                                                          \
            for (int h = 0; h < WIDE; h++) {                                                                           \
                scale[h] = load(of->scale + r + 8 * h);                                                                \
                minimum[h] = minimum_at(of, r + 8 * h);                                                                \
                for (int i = 0; i < ROWS; i++) total[i][h] = load(y + i * outputs + r + 8 * h);                        \
            }                                                                                                          \
            if (of->bits == 4) {                                                                                       \
                for (long k = 0; k < of->size; k += 2)                                                                 \
                    for (int h = 0; h < WIDE; h++) {                                                                   \
                        f8 even, odd;                                                                                  \
                        pair(of, k, r + 8 * h, scale[h], minimum[h], &even, &odd);                                     \
                        for (int i = 0; i < ROWS; i++) {                                                               \
                            total[i][h] += even * x[i * width + k];                                                    \
                            total[i][h] += odd * x[i * width + k + 1];                                                 \
                        }                                                                                              \
                    }                                                                                                  \
            } else {                                                                                                   \
                for (long k = 0; k < of->size; k++)                                                                    \
                    for (int h = 0; h < WIDE; h++) {                                                                   \
                        f8 value = single(of, k, r + 8 * h, scale[h], minimum[h]);                                     \
                        for (int i = 0; i < ROWS; i++) total[i][h] += value * x[i * width + k];                        \
                    }                                                                                                  \
            }                                                                                                          \
            for (int i = 0; i < ROWS; i++)                                                                             \
                for (int h = 0; h < WIDE; h++) store(y + i * outputs + r + 8 * h, total[i][h]);                        \
        }                                                                                                              \
    }
DIRECT(1, 4)
DIRECT(2, 4)
DIRECT(3, 2)
DIRECT(4, 2)

/* The values of a group's inputs, for more rows than are worth multiplying from the codes: four slices of 16 outputs,
   `inputs` apart, input after input in each. */
static void unpack(const group *of, float *values, long inputs) {
    for (long r = 0; r < PANEL; r += 8) {
        f8 scale = load(of->scale + r), minimum = minimum_at(of, r);
        float *to = values + r / SLICE * SLICE * inputs + r % SLICE;
        if (of->bits == 4) {
            for (long k = 0; k < of->size; k += 2) {
                f8 even, odd;
                pair(of, k, r, scale, minimum, &even, &odd);
                store(to + k * SLICE, even);
                store(to + (k + 1) * SLICE, odd);
            }
        } else {
            for (long k = 0; k < of->size; k++) store(to + k * SLICE, single(of, k, r, scale, minimum));
        }
    }
}

#define UNPACKED(ROWS)                                                                                                 \
    static void unpacked##ROWS(const float *slice, long inputs, const float *x, long width, float *y, long outputs) { \
        f8 total[ROWS][2];                                                                                             \
        for (int i = 0; i < ROWS; i++)                                                                                 \
            for (int h = 0; h < 2; h++) total[i][h] = load(y + i * outputs + 8 * h);                                   \
        for (long k = 0; k < inputs; k++) {                                                                            \
            f8 left = load(slice + k * SLICE), right = load(slice + k * SLICE + 8);                                    \
            for (int i = 0; i < ROWS; i++) {                                                                           \
                total[i][0] += left * x[i * width + k];                                                                \
                total[i][1] += right * x[i * width + k];                                                               \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < ROWS; i++)                                                                                 \
            for (int h = 0; h < 2; h++) store(y + i * outputs + 8 * h, total[i][h]);                                   \
    }
UNPACKED(1)
UNPACKED(2)
UNPACKED(4)
UNPACKED(6)

/* y [rows, 64] += x [rows, inputs] times unpacked values */
static void multiply_unpacked(const float *values, long inputs, const float *x, long width, long rows, float *y,
                              long outputs) {
    long i = 0;
    while (i < rows) {
        long left = rows - i, step = left >= 6 ? 6 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        for (long r = 0; r < PANEL; r += SLICE) {
            const float *slice = values + r * inputs, *from = x + i * width;
            float *to = y + i * outputs + r;
            switch (step) {
                case 6: unpacked6(slice, inputs, from, width, to, outputs); break;
                case 4: unpacked4(slice, inputs, from, width, to, outputs); break;
                case 2: unpacked2(slice, inputs, from, width, to, outputs); break;
                default: unpacked1(slice, inputs, from, width, to, outputs);
            }
        }
        i += step;
    }
}

static void multiply_direct(const group *of, const float *x, long width, long rows, float *y, long outputs) {
    switch (rows) {
        case 1: direct1(of, x, width, y, outputs); break;
        case 2: direct2(of, x, width, y, outputs); break;
        case 3: direct3(of, x, width, y, outputs); break;
        default: direct4(of, x, width, y, outputs);
    }
}

/* One panel: y [rows, 64] += x times it, as many groups at a time as their values fit into `values`. */
static void multiply_panel(const matrix *by, long panel, const float *x, long rows, float *y, float *values) {
    long width = by->groups * by->size, outputs = by->panels * PANEL, most = INPUTS / by->size;
    for (long first = 0; first < by->groups; first += most) {
        long count = by->groups - first < most ? by->groups - first : most;
        for (long number = 0; number < count; number++) {
            group of = group_of(by, panel, first + number);
            if (rows <= FEW)
                multiply_direct(&of, x + (first + number) * by->size, width, rows, y, outputs);
            else
                unpack(&of, values + number * by->size * SLICE, count * by->size);
        }
        if (rows > FEW) multiply_unpacked(values, count * by->size, x + first * by->size, width, rows, y, outputs);
    }
}

/* y [rows, panels * 64] = x [rows, groups * size] times the matrix. */
void saltway_multiply(const matrix *by, const float *x, long rows, float *y, int threads) {
    long outputs = by->panels * PANEL;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float values[INPUTS * PANEL] __attribute__((aligned(64)));
#pragma omp for schedule(static)
        for (long panel = 0; panel < by->panels; panel++) {
            float *mine = y + panel * PANEL;
            for (long i = 0; i < rows; i++) memset(mine + i * outputs, 0, PANEL * sizeof(float));
            multiply_panel(by, panel, x, rows, mine, values);
        }
    }
}
