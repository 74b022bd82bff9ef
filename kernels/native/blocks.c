/* Blocks of KV into a slot, or out of it. A block's keys of one dimension are a few bytes, and so many that a call for
   each, or a loop over strides, takes longer than the copy. */
#include <stdint.h>
#include <string.h>

typedef struct {
    char *keys, *values;             /* of all slots: [layers, slots, kv_heads, context / pitch, head_dim, pitch] and
                                        [layers, slots, kv_heads, context, head_dim] */
    char *block_keys, *block_values; /* of all blocks: [blocks, layers, kv_heads, head_dim, size] and
                                        [blocks, layers, kv_heads, size, head_dim] */
    long layers, slots, kv_heads, head_dim, context, pitch, size; /* the pitch is a multiple of the size */
    long bytes;                                                   /* of a number */
} store;

/* Between a slot, from block `first` of it on, and these blocks, for one layer and head of keys. */
typedef struct {
    const int64_t *blocks;
    long count, slot, first;
    int out; /* from the slot */
} copy;

static inline void move(char *mine, char *theirs, const size_t bytes, int out) {
    if (out)
        memcpy(theirs, mine, bytes);
    else
        memcpy(mine, theirs, bytes);
}

/* Keys of blocks that lie in one tile of the slot: dimension after dimension they follow each other there. */
static inline __attribute__((always_inline)) void move_keys(const store *in, const copy *of, char *tile, long apart,
                                                            const char *from, long from_block, long begin, long end,
                                                            const size_t bytes) {
    for (long d = 0; d < in->head_dim; d++)
        for (long b = begin; b < end; b++)
            move(tile + d * apart + (b - begin) * bytes, (char *)from + of->blocks[b] * from_block + d * bytes, bytes,
                 of->out);
}

static void move_head(const store *in, const copy *of, long layer, long kv) {
    long head = ((layer * in->slots + of->slot) * in->kv_heads + kv) * in->head_dim * in->context * in->bytes;
    long row = in->size * in->bytes, whole = row * in->head_dim, part = (layer * in->kv_heads + kv) * whole;
    long from_block = in->layers * in->kv_heads * whole;
    char *keys = in->keys + head, *values = in->values + head;
    for (long begin = 0, end; begin < of->count; begin = end) {
        long position = (of->first + begin) * in->size, within = position % in->pitch;
        long fit = begin + (in->pitch - within) / in->size;
        end = fit < of->count ? fit : of->count;
        char *tile = keys + ((position - within) * in->head_dim + within) * in->bytes;
        const char *from = in->block_keys + part;
        switch (row) { /* sizes that the compiler knows are a few instructions each */
            case 32: move_keys(in, of, tile, in->pitch * in->bytes, from, from_block, begin, end, 32); break;
            case 64: move_keys(in, of, tile, in->pitch * in->bytes, from, from_block, begin, end, 64); break;
            default: move_keys(in, of, tile, in->pitch * in->bytes, from, from_block, begin, end, row);
        }
    }
    for (long b = 0; b < of->count; b++)
        move(values + (of->first + b) * whole, in->block_values + of->blocks[b] * from_block + part, whole, of->out);
}

void saltway_copy_blocks(const store *in, const int64_t *blocks, long count, long slot, long first, int out,
                         int threads) {
    copy of = {blocks, count, slot, first, out};
#pragma omp parallel for collapse(2) num_threads(threads) if (threads > 1 && count > 1)
    for (long layer = 0; layer < in->layers; layer++)
        for (long kv = 0; kv < in->kv_heads; kv++) move_head(in, &of, layer, kv);
}
