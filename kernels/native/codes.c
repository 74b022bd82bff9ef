/* Products of float32 activations and a matrix of small codes: value = code * scale + minimum.

   Activations are brought to whole numbers first (activations.h). The terms of a group of inputs are then added up as
   integers, which is exact in any order, and each group's sum once as a float, group after group. So a row's result is
   the same bit by bit alone and in any batch. */
#include "codes.h"

#include "activations.h"

enum {
    OCTETS = PANEL / 8, /* of outputs: a vector has some inputs of each of eight */
    AHEAD = 2,          /* groups whose codes are asked for before they are needed */
    SLICE = 2,          /* octets that are added up at once from unpacked codes */
    INPUTS = 576,       /* whose codes of one panel are kept unpacked: at most 74 KB, in the second cache */
};

typedef struct {
    const uint8_t *codes;
    f8 scale[OCTETS], minimum[OCTETS];
    long vectors; /* of codes for each octet */
} group;

static inline f8 factors(const void *from, long at, long halves) {
    return halves ? widened((const uint16_t *)from + at) : load((const float *)from + at);
}

static inline void open_group(const matrix *by, long panel, long number, group *of) {
    long at = panel * by->groups + number;
    of->vectors = by->size * by->bits / 32;
    of->codes = by->codes + at * of->vectors * OCTETS * sizeof(v32);
    for (long r = 0; r < OCTETS; r++) {
        of->scale[r] = factors(by->scale, at * PANEL + 8 * r, by->halves);
        of->minimum[r] = by->minimum ? factors(by->minimum, at * PANEL + 8 * r, by->halves) : all(0);
    }
}

/* Codes of a vector as they meet word n of its activations: the lower halves first, of bytes or of pairs of them. */
EACH v32 part(v32 codes, const int n, const int bits, const int wide) {
    if (wide == 8) return (v32)(((u16)codes >> 4 * n) & 0x0f0f);
    if (bits == 4) return (v32)(((u16)codes >> (n % 2 * 8 + n / 2 * 4)) & 15);
    return n ? (v32)((h16)codes >> 8) : (v32)((h16)((u16)codes << 8) >> 8);
}

/* Terms of 8-bit activations are added in 16 bits, which hold those of a group: 32 * 15 * 127 / 2. */
EACH void add_terms(i8 *terms, v32 codes, i8 words, const int wide) {
    i8 total = *terms;
    if (wide == 8)
        ADD_IN_PLACE("vpaddw", total, (i8)byte_products(codes, (v32)words),
                     (i8)((h16)total + byte_products(codes, (v32)words)));
    else
        ADD_IN_PLACE("vpaddd", total, products((h16)codes, (h16)words), total + products((h16)codes, (h16)words));
    *terms = total;
}

EACH f8 add_group(f8 total, i8 terms, const group *of, long r, float scale, float sum, const int wide) {
    if (wide == 8) terms = products((h16)terms, (h16){0} + 1);
    return fused(floats(terms) * of->scale[r], all(scale), fused(of->minimum[r], all(sum), total));
}

/* A tile of rows from one group on. */
typedef struct {
    const int32_t *words;
    const float *scale, *sum;
    long groups;
} tile;

static inline tile tile_at(activations x, long first, long rows, long number) {
    long steps = x.size * x.bits / 32;
    return (tile){x.words + first * x.groups * steps + number * steps * rows, x.scale + first * x.groups + number,
                  x.sum + first * x.groups + number, x.groups};
}

/* y [rows, 64] += rows of one group's activations times its codes, straight from where they lie, `octets` at a time */
EACH void direct(const group *of, tile x, const int rows, const int octets, const int bits, const int wide, float *y,
                 long outputs) {
    for (long r = 0; r < OCTETS; r += octets) {
        i8 terms[4][4];
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < octets; h++) terms[i][h] = (i8){0};
        const int32_t *words = x.words;
        for (long v = 0; v < of->vectors; v++) {
            v32 codes[4];
            for (int h = 0; h < octets; h++) {
                codes[h] = load_bytes(of->codes + (v * OCTETS + r + h) * sizeof(v32));
                IN_REGISTER(codes[h]);
            }
#pragma GCC unroll 4
            for (int n = 0; n < wide / bits; n++, words += rows)
                for (int i = 0; i < rows; i++)
                    for (int h = 0; h < octets; h++)
                        add_terms(&terms[i][h], part(codes[h], n, bits, wide), (i8){0} + words[i], wide);
        }
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < octets; h++) {
                float *at = y + i * outputs + 8 * (r + h);
                store(at,
                      add_group(load(at), terms[i][h], of, r + h, x.scale[i * x.groups], x.sum[i * x.groups], wide));
            }
    }
}

/* Slices of a panel behind each other, `steps` long, of which those of one group are filled. */
static void unpack(const group *of, long bits, long wide, v32 *to, long steps) {
    for (long v = 0; v < of->vectors; v++)
        for (long r = 0; r < OCTETS; r++) {
            v32 codes = load_bytes(of->codes + (v * OCTETS + r) * sizeof(v32)),
                *at = to + r / SLICE * steps * SLICE + r % SLICE;
            for (long n = 0; n < wide / bits; n++)
                at[(v * (wide / bits) + n) * SLICE] = wide == 8   ? part(codes, n, 4, 8)
                                                      : bits == 4 ? part(codes, n, 4, 16)
                                                                  : part(codes, n, 8, 16);
        }
}

/* y [rows, 16], or 0 where it is fresh, += rows of `count` groups' activations times a slice of their codes */
EACH void unpacked(const v32 *slice, const group *of, long count, long r, tile x, const int rows, const int wide,
                   const int steps, int fresh, float *y, long outputs) {
    f8 total[TALL][SLICE];
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < SLICE; h++) total[i][h] = fresh ? all(0) : load(y + i * outputs + 8 * h);
    for (long g = 0; g < count; g++) {
        i8 terms[TALL][SLICE];
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < SLICE; h++) terms[i][h] = (i8){0};
#pragma GCC unroll 16
        for (int step = 0; step < steps; step++, slice += SLICE, x.words += rows) {
            v32 left = slice[0], right = slice[1];
            IN_REGISTER(left);
            IN_REGISTER(right);
            for (int i = 0; i < rows; i++) {
                i8 words = (i8){0} + x.words[i];
                add_terms(&terms[i][0], left, words, wide);
                add_terms(&terms[i][1], right, words, wide);
            }
        }
        for (int i = 0; i < rows; i++)
            for (int h = 0; h < SLICE; h++)
                total[i][h] = add_group(total[i][h], terms[i][h], of + g, r + h, x.scale[i * x.groups + g],
                                        x.sum[i * x.groups + g], wide);
    }
    for (int i = 0; i < rows; i++)
        for (int h = 0; h < SLICE; h++) store(y + i * outputs + 8 * h, total[i][h]);
}

#define DIRECT(ROWS, OCTETS_AT_ONCE) \
    case ROWS: direct(of, x, ROWS, OCTETS_AT_ONCE, bits, wide, y, outputs); break;

EACH void all_direct(const group *of, long count, long first, activations numbers, long all_rows, const int bits,
                     const int wide, float *to, long outputs) {
    const long bytes = of->vectors * OCTETS * sizeof(v32);
    for (long g = 0; g < count; g++, of++) {
        /* Octet by octet is no order that a processor foresees: it would wait for memory half of the time. */
        for (long b = 0; b < bytes; b += 64) __builtin_prefetch(of->codes + AHEAD * bytes + b);
        float *y = to;
        for (long i = 0, rows; i < all_rows; i += rows, y += rows * outputs) {
            rows = tile_of(all_rows, i);
            tile x = tile_at(numbers, i, rows, first + g);
            switch (rows) {
                DIRECT(1, 4)
                DIRECT(2, 4)
                DIRECT(3, 2)
                DIRECT(4, 2)
            }
        }
    }
}

#define UNPACKED(ROWS) \
    case ROWS: unpacked(slice, of, count, r, x, ROWS, wide, steps, fresh, y + i * outputs + 8 * r, outputs); break;

/* A slice stays in the first cache while all rows go past it. How many steps a group takes is known when this is
   compiled: a processor that finds its end by itself loses an eighth of the time. */
EACH void all_unpacked(const v32 *slice, const group *of, long count, long first, activations numbers, long all_rows,
                       const int wide, const int steps, float *y, long outputs) {
    int fresh = first == 0;
    for (long r = 0; r < OCTETS; r += SLICE, slice += count * steps * SLICE)
        for (long i = 0, rows; i < all_rows; i += rows) {
            rows = tile_of(all_rows, i);
            tile x = tile_at(numbers, i, rows, first);
            switch (rows) {
                UNPACKED(6)
                UNPACKED(4)
                UNPACKED(2)
                UNPACKED(1)
            }
        }
}

/* Each form has functions of its own: inlined into one, they take registers from each other. */
#define APART static __attribute__((noinline))
#define FORM(BITS, WIDE)                                                                                           \
    APART void direct_##BITS##_##WIDE(const group *of, long count, long first, activations x, long rows, float *y, \
                                      long outputs) {                                                              \
        all_direct(of, count, first, x, rows, BITS, WIDE, y, outputs);                                             \
    }
FORM(4, 8)
FORM(4, 16)
FORM(8, 16)
#define STEPS(WIDE, COUNT)                                                                                           \
    APART void unpacked_##WIDE##_##COUNT(const v32 *slice, const group *of, long count, long first, activations x, \
                                         long rows, float *y, long outputs) {                                      \
        all_unpacked(slice, of, count, first, x, rows, WIDE, COUNT, y, outputs);                                   \
    }
STEPS(8, 4)
STEPS(8, 8)
STEPS(16, 8)
STEPS(16, 16)

static void multiply_unpacked(const v32 *slice, const group *of, long count, long first, activations x, long rows,
                              float *y, long outputs) {
    (x.bits == 8 ? x.size == 16 ? unpacked_8_4 : unpacked_8_8
     : x.size == 16 ? unpacked_16_8
                    : unpacked_16_16)(slice, of, count, first, x, rows, y, outputs);
}

/* One panel: y [rows, 64] += x times it, as many groups at a time as can be kept unpacked. */
static void multiply_panel(const matrix *by, long panel, activations x, long rows, float *y, long outputs, v32 *kept) {
    long most = INPUTS / by->size, steps = by->size * x.bits / 32;
    group of[INPUTS / 16];
    for (long first = 0; first < by->groups; first += most) {
        long count = by->groups - first < most ? by->groups - first : most;
        for (long g = 0; g < count; g++) open_group(by, panel, first + g, of + g);
        if (rows <= FEW) {
            (x.bits == 8     ? direct_4_8
             : by->bits == 4 ? direct_4_16
                             : direct_8_16)(of, count, first, x, rows, y, outputs);
        } else {
            for (long g = 0; g < count; g++) unpack(of + g, by->bits, x.bits, kept + g * steps * SLICE, count * steps);
            multiply_unpacked(kept, of, count, first, x, rows, y, outputs);
        }
    }
}

void saltway_multiply(const matrix *by, const float *x, long rows, void *room, float *y, long apart, int threads) {
    long words = rows * by->groups * by->size * by->wide / 32;
    float *scale = (float *)room + words;
    activations numbers = {room, scale, scale + rows * by->groups, by->groups, by->size, by->wide};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        v32 kept[INPUTS * PANEL / 16];
#pragma omp for schedule(static)
        for (long row = 0; row < rows; row++) {
            long first = row / TALL * TALL;
            if (rows <= FEW) first = row / LOW * LOW;
            while (first + tile_of(rows, first) <= row) first += tile_of(rows, first);
            prepare(x, row, first, tile_of(rows, first), numbers);
        }
#pragma omp for schedule(static)
        for (long panel = 0; panel < by->panels; panel++) {
            float *mine = y + panel * PANEL;
            for (long i = 0; rows <= FEW && i < rows; i++) memset(mine + i * apart, 0, PANEL * sizeof(float));
            multiply_panel(by, panel, numbers, rows, mine, apart, kept);
        }
    }
}
