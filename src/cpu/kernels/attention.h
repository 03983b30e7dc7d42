/* What plan.c and the attention kernels agree on beyond kernels.h.
 *
 * The keys of a query are cut into ranges at absolute positions, always: a range gives a maximum, a
 * sum and weighted values of its own, and the ranges of a query are merged in ascending order. Who
 * computes a range, and when, is free. A decode step has few items and long ones, so its ranges are
 * items of a step of their own, `attention_parts`, which leaves them in prep for the attention that
 * follows; requests with more queries have items enough and keep their ranges to themselves. */
#ifndef HEADRACE_CPU_KERNELS_ATTENTION_H
#define HEADRACE_CPU_KERNELS_ATTENTION_H

#include "cpu/kernels/kernels.h"

enum {
    HR_ATTENTION_RANGE = 256,  /* keys */
    HR_ATTENTION_QUERIES = 16, /* most queries of a request whose ranges are items */
    HR_ATTENTION_PARTS = 512,  /* most ranges of tokens in prep */
};

/* Parts that prep has room for; 0 when no context is longer than a range. */
static inline int64_t hr_attention_parts(const hr_node *n)
{
    int64_t keys = n->in[3]->shape.dim[1] * n->in[1]->shape.dim[1], T = n->in[0]->shape.dim[0];
    int64_t ranges = (keys + HR_ATTENTION_RANGE - 1) / HR_ATTENTION_RANGE;
    if (ranges <= 1) return 0;
    return T * ranges < HR_ATTENTION_PARTS ? T * ranges : HR_ATTENTION_PARTS;
}

/* A part is [N] rows of D weighted values, a maximum and a sum. */
static inline int64_t hr_attention_part_floats(const hr_node *n)
{
    return n->in[0]->shape.dim[1] * (n->in[0]->shape.dim[2] + 2);
}
static inline size_t hr_attention_prep_bytes(const hr_node *n)
{
    return (size_t)(hr_attention_parts(n) * hr_attention_part_floats(n)) * sizeof(float);
}

/* A request whose ranges are items of attention_parts. Which ones are follows from the step's
 * lengths alone, so both kernels find the same. Start from { .request = -1 }. */
typedef struct hr_attention_split {
    int64_t request;
    int64_t token, tokens; /* its rows of q */
    int64_t position;      /* of the first token */
    int64_t range, ranges; /* first range that any of them sees, how many there are */
    int64_t part;          /* of the first token's first range; a token's follow one another */
    int64_t taken;         /* parts of this request and those before */
} hr_attention_split;

/* First key that a query at `position` sees. */
static inline int64_t hr_attention_first_key(const hr_node *n, int64_t position)
{
    int64_t start = n->attrs.window > 0 ? position - n->attrs.window + 1 : 0;
    return start > 0 ? start : 0;
}

/* Moves on to the next one; false when there is none. */
static inline bool hr_attention_next_split(const hr_kernel_args *a, hr_attention_split *s)
{
    const hr_node *n = a->node;
    const int32_t *starts = a->in[4], *lens = a->in[5]; /* [B+1], [B] */
    int64_t T = hr_live_rows(n->in[0], a->live), B = n->in[3]->shape.dim[0];
    while (a->prep && ++s->request < B) {
        int64_t b = s->request, queries = (int64_t)starts[b + 1] - starts[b];
        if (queries < 1 || queries > HR_ATTENTION_QUERIES || starts[b] < 0 || lens[b] < queries ||
            starts[b + 1] > T)
            continue;
        s->position = lens[b] - queries;
        s->range = hr_attention_first_key(n, s->position) / HR_ATTENTION_RANGE;
        s->ranges = (lens[b] - 1) / HR_ATTENTION_RANGE - s->range + 1;
        if (s->ranges < 2 || s->taken + queries * s->ranges > hr_attention_parts(n)) continue;
        s->token = starts[b];
        s->tokens = queries;
        s->part = s->taken;
        s->taken += queries * s->ranges;
        return true;
    }
    return false;
}

#endif
