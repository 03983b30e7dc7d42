/* Where the tempered distribution is cut, and the token drawn from what is left.
 *
 * y f32 [R,V], at most 0; an item is a row. Nothing is sorted. A cut is a value that enough of the
 * row lies at or above - in number for top_k, in mass for top_p. It is found by histograms over the
 * value range: the first in steps of 1/64, then over the bit patterns inside the one bucket where
 * the cut lies, until a bucket is a single value. The clever part is what never enters a histogram:
 * a cheap bound below the cut (from group maxima for top_k, from the mass that may be lost for
 * top_p) leaves few values to count, so the cost is that of reading the row. */
#include "cpu/kernels/vec_mass.h"

enum {
    BUCKETS = 2048,
    STEPS = 64,    /* first level: buckets per unit of y; the last bucket takes all below -31.98 */
    GROUPS = 2048, /* maxima that bound top_k's cut */
};

/* Everything here lies in the worker's scratch. */
typedef struct workspace {
    uint64_t histogram[BUCKETS];
    float maxima[GROUPS + V_LANES];
} workspace;

/* The values of a row that take part, and what is counted of them. */
typedef struct search {
    const float *y; /* [n] */
    int64_t n;
    float least; /* lower ones cannot be the cut */
    bool by_mass;
    uint64_t target; /* ≥ 1: what the values at or above the cut must reach */
} search;

/* One level: bit patterns of -y in [low, high], in BUCKETS. */
typedef struct level {
    uint32_t low, high;
    int shift;   /* patterns per bucket, log2 */
    bool linear; /* the first: buckets of equal width in y */
} level;

static uint32_t pattern_of(float y)
{
    return hr_f32_bits(y) & 0x7FFFFFFF;
}

static uint32_t bucket_of(const level *l, float y)
{
    if (!l->linear) return (pattern_of(y) - l->low) >> l->shift;
    float steps = -y * STEPS;
    return steps < BUCKETS - 1 ? (uint32_t)steps : BUCKETS - 1;
}

static void count_level(const search *s, const level *l, uint64_t *histogram)
{
    vf best = v_set1(-hr_f32_from_bits(l->low)), worst = v_set1(-hr_f32_from_bits(l->high));
    memset(histogram, 0, BUCKETS * sizeof *histogram);
    for (int64_t i = 0; i < s->n; i += V_LANES) {
        vf v = row_load(s->y, i, s->n);
        uint32_t inside = vm_bits(vm_and(v_le(v, best), v_le(worst, v)));
        if (!inside) continue;
        float y[V_LANES];
        uint64_t w[V_LANES];
        v_store(y, v);
        if (s->by_mass) vu_store(w, v_mass(v));
        for (; inside; inside &= inside - 1) {
            int lane = __builtin_ctz(inside);
            histogram[bucket_of(l, y[lane])] += s->by_mass ? w[lane] : 1;
        }
    }
}

/* The patterns of one bucket, as a level of their own. */
static level inside_of(const level *l, uint32_t bucket)
{
    level in = { .low = l->low + (bucket << l->shift) };
    in.high = in.low + (((uint32_t)1 << l->shift) - 1);
    if (l->linear) {
        in.low = hr_f32_bits((float)bucket / STEPS);
        in.high = bucket == BUCKETS - 1 ? l->high : hr_f32_bits((float)(bucket + 1) / STEPS) - 1;
    }
    if (in.high > l->high) in.high = l->high;
    while ((in.high - in.low) >> in.shift >= BUCKETS) in.shift++;
    return in;
}

/* The cut; -inf when the target is not reached. */
static float find_cut(const search *s, uint64_t *histogram)
{
    uint64_t sum = 0;
    level l = { .high = s->least > -INFINITY ? pattern_of(s->least) : 0x7F7FFFFF, .linear = true };
    for (;;) {
        uint32_t b = 0;
        count_level(s, &l, histogram);
        for (; b < BUCKETS && sum + histogram[b] < s->target; b++) sum += histogram[b];
        if (b == BUCKETS) return -INFINITY;
        if (!l.linear && l.shift == 0) return 0 - hr_f32_from_bits(l.low + b);
        l = inside_of(&l, b);
    }
}

/* ---- top_k ----------------------------------------------------------------------------------- */

/* The k-th largest of some of the row's values: maxima of disjoint groups. */
static float bound_by_maxima(const float *y, int64_t n, int64_t k, workspace *w)
{
    int64_t vectors = (n + V_LANES - 1) / V_LANES, groups = GROUPS / V_LANES;
    int64_t per = (vectors + groups - 1) / groups, m = 0;
    for (int64_t v = 0; v < vectors; v += per, m += V_LANES) {
        vf most = v_set1(-INFINITY);
        for (int64_t i = v; i < v + per && i < vectors; i++)
            most = v_max(row_load(y, i * V_LANES, n), most);
        v_store(w->maxima + m, most);
    }
    search s = { w->maxima, m, -INFINITY, .target = (uint64_t)k };
    return k <= m ? find_cut(&s, w->histogram) : -INFINITY;
}

static float cut_top_k(const float *y, int64_t n, int64_t k, workspace *w)
{
    search s = { y, n, -INFINITY, .target = (uint64_t)k };
    if (n > 4 * GROUPS) s.least = bound_by_maxima(y, n, k, w);
    return find_cut(&s, w->histogram);
}

/* ---- top_p ----------------------------------------------------------------------------------- */

/* A vector holds something at or above `cut` that has mass. */
static inline uint32_t massive(vf y, float cut)
{
    float least = cut > (float)HR_MASS_LEAST ? cut : (float)HR_MASS_LEAST;
    return vm_bits(v_le(v_set1(least), y));
}

static uint64_t mass_from(const float *y, int64_t from, int64_t to, float cut)
{
    vu sum = vu_set1(0);
    for (int64_t i = from; i < to; i += V_LANES) {
        vf v = row_load(y, i, to);
        if (massive(v, cut)) sum = vu_add(sum, vu_keep(v_le(v_set1(cut), v), v_mass(v)));
    }
    return vu_sum(sum);
}

static float cut_top_p(const float *y, int64_t n, float p, float cut, workspace *w)
{
    uint64_t total = mass_from(y, 0, n, cut), target = hr_exact_share(p, total);
    if (!target) return 0; /* the best alone */
    /* n values of mass ≤ `lost` each may go: the cut lies above them. A margin of 1e-3 in y is far
     * wider than any rounding here. */
    uint64_t lost = (total - target) / (uint64_t)n;
    float least = (float)HR_MASS_LEAST;
    if (lost) least = (float)(hr_exact_log((double)lost * 0x1p-40) - 1e-3);
    if (least < (float)HR_MASS_LEAST) least = (float)HR_MASS_LEAST;
    search s = { y, n, cut > least ? cut : least, true, target };
    return find_cut(&s, w->histogram);
}

void HR_KERNEL(threshold)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *min_p = a->in[1], *top_p = a->in[3];
    const int32_t *top_k = a->in[2];
    int64_t n = a->node->in[0]->shape.dim[1];
    float *out = a->out[0];
    for (int64_t r = from; r < to; r++) {
        const float *y = (const float *)a->in[0] + r * n;
        float cut = hr_exact_min_p(min_p[r]), other = -INFINITY;
        if (top_k[r] > 0 && top_k[r] < n) other = cut_top_k(y, n, top_k[r], a->scratch);
        if (other > cut) cut = other;
        if (top_p[r] < 1) other = cut_top_p(y, n, top_p[r], cut, a->scratch);
        out[r] = other > cut ? other : cut;
    }
}

/* ---- draw ------------------------------------------------------------------------------------ */

/* One pass for the masses of blocks; then only the block that the word falls into is walked. */
static int32_t draw_row(const float *y, int64_t n, float cut, uint64_t word, uint64_t *blocks)
{
    uint64_t total = 0, sum = 0;
    int64_t step = HR_KERNEL_BLOCK, most = (int64_t)(HR_KERNEL_SCRATCH / sizeof *blocks), b = 0;
    while ((n + step - 1) / step > most) step *= 2;
    for (int64_t i = 0; i < n; i += step, b++) {
        blocks[b] = mass_from(y, i, i + step < n ? i + step : n, cut);
        total += blocks[b];
    }
    if (!total) return -1;
    uint64_t at = hr_exact_mul_high(word, total); /* < total */
    for (b = 0; sum + blocks[b] <= at; b++) sum += blocks[b];
    for (int64_t i = b * step;; i++) {
        if (y[i] >= cut) sum += hr_exact_mass((double)y[i]);
        if (sum > at) return (int32_t)i;
    }
}

void HR_KERNEL(draw)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *cut = a->in[1];
    const uint32_t *seed = a->in[2]; /* [R,2] */
    const int32_t *position = a->in[3];
    int64_t n = a->node->in[0]->shape.dim[1];
    int32_t *out = a->out[0];
    for (int64_t r = from; r < to; r++) {
        uint64_t word = hr_exact_word(seed + 2 * r, position[r]);
        const float *y = (const float *)a->in[0] + r * n;
        out[r] = position[r] < 0 ? -1 : draw_row(y, n, cut[r], word, a->scratch);
    }
}
