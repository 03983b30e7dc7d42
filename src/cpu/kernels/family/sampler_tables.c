/* The sampler's tables on the device: counts of tokens, rows of masks, changed in place by lists.
 *
 * Only what a list names is touched, so the pages of slots that were never used are never there. */
#include "cpu/kernels/vec.h"

static void count_token(uint16_t *c, int32_t add)
{
    int32_t generated = *c & 0x7FFF, room = 0x7FFF - generated;
    if (add < 0) *c |= 0x8000;
    else *c = (uint16_t)((*c & 0x8000) | (generated + (add < room ? add : room)));
}

/* One item: entries may name the same count. */
void HR_KERNEL(count_tokens)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    uint16_t *counts = a->out[0]; /* [S,V] */
    const int32_t *clear = a->in[1], *slots = a->in[2], *ids = a->in[3], *add = a->in[4];
    int64_t n_slots = a->node->in[0]->shape.dim[0], n = a->node->in[0]->shape.dim[1];
    if (from >= to) return;
    for (int64_t i = 0; i < hr_live_rows(a->node->in[1], a->live); i++)
        if (clear[i] >= 0 && clear[i] < n_slots)
            memset(counts + clear[i] * n, 0, (size_t)n * sizeof *counts);
    for (int64_t i = 0; i < hr_live_rows(a->node->in[2], a->live); i++)
        if (slots[i] >= 0 && slots[i] < n_slots && ids[i] >= 0 && ids[i] < n)
            count_token(counts + slots[i] * n + ids[i], add[i]);
}

void HR_KERNEL(write_rows)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const hr_value *table = a->node->in[0]; /* [S,W] */
    const int32_t *slots = a->in[2];
    size_t bytes = (size_t)hr_shape_row(table->shape) * hr_dtype_size(table->dtype);
    for (int64_t i = from; i < to; i++)
        if (slots[i] >= 0 && slots[i] < table->shape.dim[0])
            memcpy((char *)a->out[0] + (size_t)slots[i] * bytes,
                   (const char *)a->in[1] + (size_t)i * bytes, bytes);
}
