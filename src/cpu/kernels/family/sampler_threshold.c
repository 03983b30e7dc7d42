/* Where the tempered distribution is cut.
 *
 * y f32 [R,V], at most 0; an item is a row. Nothing is sorted. A cut is a value that enough of the
 * row lies at or above - in number for top_k, in mass for top_p. It is found by histograms over the
 * value range: the first in steps of 1/64, then over the bit patterns inside the one bucket where
 * the cut lies, until a bucket is a single value. The clever part is what never enters a histogram:
 * a cheap bound below the cut (from group maxima for top_k, from the mass that may be lost for
 * top_p) leaves few values to count, so the cost is that of reading the row. Where the row is so
 * flat that it would not, a sample tells between which two values the cut will lie; the pass that
 * sums the row then keeps those, and its sums say whether that was right. */
#include "cpu/kernels/vec_mass.h"

enum {
    BUCKETS = 2048,
    STEPS = 64,    /* first level: buckets per unit of y; the last bucket takes all below -31.98 */
    GROUPS = 2048, /* maxima that bound top_k's cut */
    SAMPLE = 16,   /* of top_p: one vector in so many */
    KEPT = 65536,  /* most values between the two that the sample names */
};

/* Everything here lies in the worker's scratch. */
typedef struct workspace {
    uint64_t histogram[BUCKETS];
    float maxima[GROUPS + V_LANES];
    float kept[KEPT];
} workspace;
_Static_assert(sizeof(workspace) <= HR_KERNEL_SCRATCH, "scratch");

/* The values of a row that take part, and what is counted of them. */
typedef struct search {
    const float *y; /* [n] */
    int64_t n;
    float least; /* lower ones cannot be the cut */
    bool by_mass;
    uint64_t target; /* ≥ 1: what the values at or above the cut must reach */
    int64_t skipped; /* vectors passed over after each; 0 unless a sample is enough */
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
    for (int64_t i = 0; i < s->n; i += V_LANES * (1 + s->skipped)) {
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

static level first_level(float least)
{
    return (level){ .high = least > -INFINITY ? pattern_of(least) : 0x7F7FFFFF, .linear = true };
}

/* The cut; -inf when the target is not reached. */
static float find_cut(const search *s, uint64_t *histogram)
{
    uint64_t sum = 0;
    level l = first_level(s->least);
    for (;;) {
        uint32_t b = 0;
        count_level(s, &l, histogram);
        for (; b < BUCKETS && sum + histogram[b] < s->target; b++) sum += histogram[b];
        if (b == BUCKETS) return -INFINITY;
        if (!l.linear && l.shift == 0) return 0 - hr_f32_from_bits(l.low + b);
        l = inside_of(&l, b);
    }
}

/* ---- cuts by a sample -------------------------------------------------------------------------
 */

/* The cut lies between these two values, both included, if the sample was a good one. */
typedef struct bracket {
    float low, high;
} bracket;

/* Where a share of the sample's total ends, in buckets of the first level, with room for what its
 * sums may be off by. */
static bracket bracket_of(const uint64_t *histogram, uint64_t total, double share, float least)
{
    const double slack = 1.0 / 48;
    double from = (share - slack) * (double)total, to = (share + slack) * (double)total;
    uint64_t sum = 0;
    uint32_t b = 0;
    while (b < BUCKETS - 1 && (double)(sum + histogram[b]) < from) sum += histogram[b++];
    bracket k = { .low = least, .high = -(float)b / STEPS };
    while (b < BUCKETS - 1 && (double)(sum + histogram[b]) < to) sum += histogram[b++];
    if (b < BUCKETS - 1 && -(float)(b + 1) / STEPS > least) k.low = -(float)(b + 1) / STEPS;
    return k;
}

/* What a row holds around a bracket, in masses or in number. */
typedef struct division {
    uint64_t total, above, inside; /* total: of masses */
    int64_t kept; /* values inside, which lie in workspace.kept; > KEPT: too many */
} division;

static int64_t keep_lanes(float *kept, int64_t n, vf v, uint32_t lanes)
{
    float y[V_LANES];
    v_store(y, v);
    for (; lanes && n < KEPT; lanes &= lanes - 1) kept[n++] = y[__builtin_ctz(lanes)];
    return lanes ? KEPT + 1 : n;
}

static division divide_masses(const float *y, int64_t n, float least, const bracket *k, float *kept)
{
    vf low = v_set1(k->low), high = v_set1(k->high), all = v_set1(least);
    vu total = vu_set1(0), above = total, inside = total;
    division d = { 0 };
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = row_load(y, i, n);
        if (!vm_bits(v_le(all, v))) continue;
        vu mass = v_mass(v);
        vm in = vm_and(v_le(low, v), v_le(v, high));
        total = vu_add(total, vu_keep(v_le(all, v), mass));
        above = vu_add(above, vu_keep(v_lt(high, v), mass));
        if (!vm_bits(in)) continue;
        inside = vu_add(inside, vu_keep(in, mass));
        if (d.kept <= KEPT) d.kept = keep_lanes(kept, d.kept, v, vm_bits(in));
    }
    d.total = vu_sum(total);
    d.above = vu_sum(above);
    d.inside = vu_sum(inside);
    return d;
}

/* The same in number, of all values. */
static division divide_counts(const float *y, int64_t n, const bracket *k, float *kept)
{
    vf low = v_set1(k->low), high = v_set1(k->high);
    division d = { 0 };
    for (int64_t i = 0; i < n; i += V_LANES) {
        vf v = row_load(y, i, n);
        uint32_t in = vm_bits(vm_and(v_le(low, v), v_le(v, high)));
        d.above += (uint64_t)__builtin_popcount(vm_bits(v_lt(high, v)));
        if (in && d.kept <= KEPT) d.kept = keep_lanes(kept, d.kept, v, in);
    }
    d.inside = (uint64_t)d.kept;
    return d;
}

/* Sums of every SAMPLE-th vector in the histogram; their total. */
static uint64_t take_sample(const float *y, int64_t n, float least, bool by_mass, workspace *w)
{
    search sample = { y, n, least, .by_mass = by_mass, .skipped = SAMPLE - 1 };
    level l = first_level(least);
    uint64_t total = 0;
    count_level(&sample, &l, w->histogram);
    for (int b = 0; b < BUCKETS; b++) total += w->histogram[b];
    return total;
}

/* The cut among what the division kept; false where the sample was no good. */
static bool find_in_bracket(const division *d, float least, bool by_mass, uint64_t target,
                            workspace *w, float *cut)
{
    if (d->kept > KEPT || d->above >= target || target - d->above > d->inside) return false;
    search s = { w->kept, d->kept, least, by_mass, target - d->above, 0 };
    *cut = find_cut(&s, w->histogram);
    return true;
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

/* The values of a row that may still be kept: all of them, or those in workspace.kept. */
typedef struct view {
    const float *y;
    int64_t n;
    bool narrow;
} view;

/* To those at or above `least`, if they are few. */
static void narrow(view *v, float least, float *kept)
{
    int64_t n = 0;
    for (int64_t i = 0; i < v->n && n <= KEPT; i += V_LANES) {
        vf x = row_load(v->y, i, v->n);
        uint32_t in = vm_bits(v_le(v_set1(least), x));
        if (in) n = keep_lanes(kept, n, x, in);
    }
    if (n <= KEPT) *v = (view){ kept, n, true };
}

static float cut_large_k(const view *v, int64_t k, workspace *w)
{
    search s = { v->y, v->n, -INFINITY, .target = (uint64_t)k };
    uint64_t total = take_sample(v->y, v->n, -INFINITY, false, w);
    double share = (double)k / ((double)total * SAMPLE + 1);
    bracket b = bracket_of(w->histogram, total, share, -INFINITY);
    division d = divide_counts(v->y, v->n, &b, w->kept);
    float cut;
    if (find_in_bracket(&d, -INFINITY, false, (uint64_t)k, w, &cut)) return cut;
    return find_cut(&s, w->histogram);
}

static float cut_top_k(view *v, int64_t k, workspace *w)
{
    float least = -INFINITY;
    if (v->n > 4 * GROUPS) {
        if (k > GROUPS / 2) return cut_large_k(v, k, w);
        least = bound_by_maxima(v->y, v->n, k, w);
        if (least > -INFINITY) narrow(v, least, w->kept);
    }
    search s = { v->y, v->n, least, .target = (uint64_t)k };
    return find_cut(&s, w->histogram);
}

/* ---- top_p ----------------------------------------------------------------------------------- */

static float cut_top_p(const view *v, float p, float cut, workspace *w)
{
    const float *y = v->y;
    int64_t n = v->n;
    bool sampled = n > 4 * GROUPS && !v->narrow;
    float least = row_least(cut), found;
    division d = { 0 };
    if (sampled) {
        uint64_t total = take_sample(y, n, least, true, w);
        bracket b = bracket_of(w->histogram, total, (double)p, least);
        d = divide_masses(y, n, least, &b, w->kept);
    } else {
        d.total = row_mass(y, 0, n, cut);
    }
    uint64_t target = hr_exact_share(p, d.total);
    if (!target) return 0; /* the best alone */
    if (sampled && find_in_bracket(&d, least, true, target, w, &found)) return found;
    /* n values of mass ≤ `lost` each may go: the cut lies above them. A margin of 1e-3 in y is far
     * wider than any rounding here. */
    uint64_t lost = (d.total - target) / (uint64_t)n;
    float bound = lost ? (float)(hr_exact_log((double)lost * 0x1p-40) - 1e-3) : least;
    search s = { y, n, bound > least ? bound : least, true, target, 0 };
    return find_cut(&s, w->histogram);
}

void HR_KERNEL(threshold)(const hr_kernel_args *a, int64_t from, int64_t to)
{
    const float *min_p = a->in[1], *top_p = a->in[3];
    const int32_t *top_k = a->in[2];
    int64_t n = a->node->in[0]->shape.dim[1];
    float *out = a->out[0], *cuts = a->out[1]; /* [R], [R,3] */
    for (int64_t r = from; r < to; r++) {
        view v = { (const float *)a->in[0] + r * n, n, false };
        float cut = hr_exact_min_p(min_p[r]), other = -INFINITY;
        cuts[3 * r] = cut;
        if (top_k[r] > 0 && top_k[r] < n) other = cut_top_k(&v, top_k[r], a->scratch);
        if (other > cut) cut = other;
        cuts[3 * r + 1] = cut;
        if (top_p[r] < 1) other = cut_top_p(&v, top_p[r], cut, a->scratch);
        out[r] = cuts[3 * r + 2] = other > cut ? other : cut;
    }
}
