/* Reference of the sampler's ops: what to do to a row, one plain loop per op.
 *
 * R sampler rows, V logits. Orders and exact sums follow the sampling chapter of the documentation;
 * masses and random words come from base/exact.h, whose results are the same bits everywhere, so
 * a kernel must equal this room in every id and threshold, not nearly. Throughout, NaN counts as
 * -inf: it never wins, has no mass, and row_status reports it. */
#include <float.h>
#include <math.h>

#include "base/exact.h"
#include "ref/ref_int.h"

/* Row r of operand i, f32 [R,V]. */
static const float *row_in(const hr_ref_args *a, int i, int64_t r)
{
    return (const float *)a->in[i] + r * a->node->in[i]->shape.dim[1];
}

static float *row_out(const hr_ref_args *a, int i, int64_t r)
{
    return (float *)a->out[i] + r * hr_shape_row(a->node->out[i]->shape);
}

static int64_t rows(const hr_ref_args *a)
{
    return hr_ref_rows(a, a->node->out[0]);
}

static int64_t columns(const hr_ref_args *a)
{
    return a->node->in[0]->shape.dim[1];
}

/* x with NaN as -inf */
static float ordered(float x)
{
    return isnan(x) ? -INFINITY : x;
}

static float row_max(const float *x, int64_t n)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    return most;
}

/* ---- masks, bias, penalties ------------------------------------------------------------------ */

hr_status hr_ref_mask_bits(const hr_ref_args *a)
{
    const uint32_t *table = a->in[1]; /* [S,W] */
    const int32_t *slot = a->in[2];   /* [R] */
    int64_t slots = a->node->in[1]->shape.dim[0], words = a->node->in[1]->shape.dim[1];
    int64_t n = columns(a), used = a->node->attrs.n ? a->node->attrs.n : n;
    for (int64_t r = 0; r < rows(a); r++) {
        bool all = slot[r] < 1 || slot[r] >= slots;
        for (int64_t i = 0; i < n; i++) {
            bool on = all || (table[slot[r] * words + i / 32] >> (i % 32) & 1);
            row_out(a, 0, r)[i] = on && i < used ? row_in(a, 0, r)[i] : -INFINITY;
        }
    }
    return HR_OK;
}

/* Entries of a row's list that count: the first `count`, at most M. */
static int64_t list_length(const hr_ref_args *a, int list, int counts, int64_t r)
{
    int64_t n = ((const int32_t *)a->in[counts])[r], most = a->node->in[list]->shape.dim[1];
    return n < 0 ? 0 : n < most ? n : most;
}

hr_status hr_ref_ban_ids(const hr_ref_args *a)
{
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const int32_t *ids = (const int32_t *)a->in[1] + r * a->node->in[1]->shape.dim[1];
        memcpy(row_out(a, 0, r), row_in(a, 0, r), (size_t)n * sizeof(float));
        for (int64_t i = 0; i < list_length(a, 1, 2, r); i++)
            if (ids[i] >= 0 && ids[i] < n) row_out(a, 0, r)[ids[i]] = -INFINITY;
    }
    return HR_OK;
}

hr_status hr_ref_bias_ids(const hr_ref_args *a)
{
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        int64_t m = a->node->in[1]->shape.dim[1];
        const int32_t *ids = (const int32_t *)a->in[1] + r * m;
        const float *values = (const float *)a->in[2] + r * m;
        memcpy(row_out(a, 0, r), row_in(a, 0, r), (size_t)n * sizeof(float));
        for (int64_t i = 0; i < list_length(a, 1, 3, r); i++)
            if (ids[i] >= 0 && ids[i] < n) row_out(a, 0, r)[ids[i]] += values[i];
    }
    return HR_OK;
}

/* One logit; `count` bit 15: in the prompt, rest: times generated. A finite logit stays finite. */
static float penalised(float x, uint16_t count, float repetition, float frequency, float presence)
{
    if (!count || !isfinite(x)) return x;
    float y = x > 0 ? x / repetition : x * repetition;
    uint16_t generated = count & 0x7FFF;
    if (generated) {
        y -= frequency * (float)generated;
        y -= presence;
    }
    return y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : y;
}

/* A count with what a row's list adds to it, as if it had been counted. */
static uint16_t count_with(uint16_t count, const int32_t *more, int64_t n, int64_t id)
{
    int32_t generated = count & 0x7FFF;
    for (int64_t i = 0; i < n; i++) generated += more[i] == id && generated < 0x7FFF;
    return (uint16_t)((count & 0x8000) | generated);
}

hr_status hr_ref_penalties(const hr_ref_args *a)
{
    const int32_t *slot = a->in[2];
    const float *repetition = a->in[3], *frequency = a->in[4], *presence = a->in[5];
    int64_t n = columns(a), slots = a->node->in[1]->shape.dim[0];
    for (int64_t r = 0; r < rows(a); r++) {
        bool none = slot[r] < 1 || slot[r] >= slots;
        const uint16_t *counts = (const uint16_t *)a->in[1] + (none ? 0 : slot[r] * n);
        int64_t m = a->node->in[6] ? list_length(a, 6, 7, r) : 0;
        const int32_t *more =
            m ? (const int32_t *)a->in[6] + r * a->node->in[6]->shape.dim[1] : NULL;
        for (int64_t i = 0; i < n; i++)
            row_out(a, 0, r)[i] =
                penalised(row_in(a, 0, r)[i], none ? 0 : count_with(counts[i], more, m, i),
                          repetition[r], frequency[r], presence[r]);
    }
    return HR_OK;
}

/* ---- what a row is worth --------------------------------------------------------------------- */

hr_status hr_ref_row_status(const hr_ref_args *a)
{
    const int32_t *before = a->in[1];
    for (int64_t r = 0; r < rows(a); r++) {
        const float *x = row_in(a, 0, r);
        int32_t status = 1;
        for (int64_t i = 0; i < columns(a); i++) {
            if (isnan(x[i]) || x[i] == INFINITY) status = 2;
            else if (x[i] > -INFINITY && status == 1) status = 0;
        }
        ((int32_t *)a->out[0])[r] = before && before[r] ? before[r] : status;
    }
    return HR_OK;
}

hr_status hr_ref_argmax(const hr_ref_args *a)
{
    int64_t used = a->node->attrs.n ? a->node->attrs.n : columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const float *x = row_in(a, 0, r);
        float most = -INFINITY;
        int32_t at = -1;
        for (int64_t i = 0; i < used; i++)
            if (x[i] > most) most = x[i], at = (int32_t)i;
        ((int32_t *)a->out[0])[r] = at;
    }
    return HR_OK;
}

/* ---- temperature, thresholds, draw ----------------------------------------------------------- */

/* x as a distance below the row's maximum; never NaN, never above 0. */
static float below(float x, float most)
{
    if (isnan(x) || x == -INFINITY) return -INFINITY;
    return x == most ? 0.0f : x - most;
}

hr_status hr_ref_temper(const hr_ref_args *a)
{
    const float *temperature = a->in[1];
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const float *x = row_in(a, 0, r);
        float t = temperature[r], most = row_max(x, n);
        bool off = !(t > 0), flat = !isfinite(most);
        for (int64_t i = 0; i < n; i++) row_out(a, 0, r)[i] = off ? x[i] : below(x[i], most) / t;
        row_out(a, 1, r)[0] = off || flat ? 0.0f : -most / t;
    }
    return HR_OK;
}

/* Sum of masses, or the number, of the values ≥ cut. */
static uint64_t mass_from(const float *y, int64_t n, float cut)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (y[i] >= cut) sum += hr_exact_mass((double)y[i]);
    return sum;
}
static uint64_t count_from(const float *y, int64_t n, float cut)
{
    uint64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += y[i] >= cut;
    return count;
}

/* The largest value v ≤ 0 with measure(values ≥ v) ≥ target, -inf when there is none. The bits of a
 * non-negative float rise with it, so the search halves a range of bit patterns. */
static float search(const float *y, int64_t n, uint64_t target,
                    uint64_t (*measure)(const float *y, int64_t n, float cut))
{
    uint32_t low = 0, high = 0x7F800000; /* of -v; high: infinity */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        float v;
        memcpy(&v, &middle, sizeof v);
        if (measure(y, n, -v) >= target) high = middle;
        else low = middle + 1;
    }
    float v;
    memcpy(&v, &low, sizeof v);
    return 0.0f - v;
}

hr_status hr_ref_threshold(const hr_ref_args *a)
{
    const float *min_p = a->in[1], *top_p = a->in[3];
    const int32_t *top_k = a->in[2];
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const float *y = row_in(a, 0, r);
        float *cuts = row_out(a, 1, r);
        float cut = cuts[0] = hr_exact_min_p(min_p[r]);
        if (top_k[r] > 0 && top_k[r] < n)
            cut = fmaxf(cut, search(y, n, (uint64_t)top_k[r], count_from));
        cuts[1] = cut;
        if (top_p[r] < 1) {
            uint64_t target = hr_exact_share(top_p[r], mass_from(y, n, cut));
            cut = fmaxf(cut, search(y, n, target, mass_from));
        }
        ((float *)a->out[0])[r] = cuts[2] = cut;
    }
    return HR_OK;
}

/* ---- the trace ------------------------------------------------------------------------------- */

static int32_t alive_from(const float *x, int64_t n, float cut)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++) count += x[i] > -INFINITY && x[i] >= cut;
    return count;
}

hr_status hr_ref_alive(const hr_ref_args *a)
{
    const int32_t *wanted = a->in[1];
    for (int64_t r = 0; r < rows(a); r++)
        ((int32_t *)a->out[0])[r] =
            wanted[r] < 1 ? 0 : alive_from(row_in(a, 0, r), columns(a), -INFINITY);
    return HR_OK;
}

/* Entropy of the masses from `cut` up, and the share of one of them. */
static void trace_masses(const float *y, int64_t n, float cut, int32_t id, float out[2])
{
    uint64_t total = 0, spread = 0, own = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(y[i] >= cut)) continue;
        uint64_t mass = hr_exact_mass((double)y[i]);
        total += mass;
        spread += hr_exact_spread((double)y[i], mass);
        if (i == id) own = mass;
    }
    out[0] = hr_exact_entropy(total, spread);
    out[1] = total ? (float)((double)own / (double)total) : 0;
}

hr_status hr_ref_trace(const hr_ref_args *a)
{
    const int32_t *id = a->in[2], *wanted = a->in[3];
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const float *y = row_in(a, 0, r), *cuts = row_in(a, 1, r);
        int32_t *counts = (int32_t *)a->out[0] + 3 * r;
        float *sums = row_out(a, 1, r);
        for (int i = 0; i < 3; i++) counts[i] = wanted[r] < 2 ? 0 : alive_from(y, n, cuts[i]);
        sums[0] = sums[1] = 0;
        if (wanted[r] >= 2) trace_masses(y, n, cuts[2], id[r], sums);
    }
    return HR_OK;
}

/* ---- the draw -------------------------------------------------------------------------------- */

/* The first id whose cumulative mass exceeds floor(word · total / 2^64). */
static int32_t draw_row(const float *y, int64_t n, float cut, uint64_t word)
{
    uint64_t at = hr_exact_mul_high(word, mass_from(y, n, cut)), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (y[i] >= cut) sum += hr_exact_mass((double)y[i]);
        if (sum > at) return (int32_t)i;
    }
    return -1; /* no mass at all */
}

hr_status hr_ref_draw(const hr_ref_args *a)
{
    const float *cut = a->in[1];
    const uint32_t *seed = a->in[2]; /* [R,2] */
    const int32_t *position = a->in[3];
    for (int64_t r = 0; r < rows(a); r++) {
        uint64_t word = hr_exact_word(seed + 2 * r, position[r]);
        ((int32_t *)a->out[0])[r] =
            position[r] < 0 ? -1 : draw_row(row_in(a, 0, r), columns(a), cut[r], word);
    }
    return HR_OK;
}

hr_status hr_ref_keep(const hr_ref_args *a)
{
    const float *cut = a->in[1];
    for (int64_t r = 0; r < rows(a); r++)
        for (int64_t i = 0; i < columns(a); i++) {
            float y = row_in(a, 0, r)[i];
            row_out(a, 0, r)[i] = y >= cut[r] ? y : -INFINITY;
        }
    return HR_OK;
}

hr_status hr_ref_choose(const hr_ref_args *a)
{
    const int32_t *flag = a->in[0], *x = a->in[1], *y = a->in[2];
    for (int64_t r = 0; r < rows(a); r++) ((int32_t *)a->out[0])[r] = flag[r] ? x[r] : y[r];
    return HR_OK;
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

/* max + ln Σ exp(x - max), the sum in masses: exact, whatever the order. The maximum has mass
 * one, so the logarithm is never of zero. */
hr_status hr_ref_log_sum_exp(const hr_ref_args *a)
{
    const int32_t *wanted = a->in[1];
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        const float *x = row_in(a, 0, r);
        float most = row_max(x, n);
        uint64_t sum = 0;
        for (int64_t i = 0; i < n && isfinite(most); i++)
            sum += hr_exact_mass((double)x[i] - (double)most);
        float lse = sum ? (float)((double)most + hr_exact_log((double)sum * 0x1p-40)) : most;
        ((float *)a->out[0])[r] = wanted && wanted[r] < 0 ? INFINITY : lse;
    }
    return HR_OK;
}

hr_status hr_ref_pick(const hr_ref_args *a)
{
    const int32_t *ids = a->in[1]; /* [R] or [R,M] */
    const float *lse = a->in[2];   /* [R] or NULL */
    int64_t n = columns(a), m = hr_shape_row(a->node->in[1]->shape);
    for (int64_t i = 0; i < rows(a) * m; i++) {
        bool inside = ids[i] >= 0 && ids[i] < n;
        float x = inside ? ordered(row_in(a, 0, i / m)[ids[i]]) : -INFINITY;
        ((float *)a->out[0])[i] = lse && x > -INFINITY ? ordered(x - lse[i / m]) : x;
    }
    return HR_OK;
}

hr_status hr_ref_rank(const hr_ref_args *a)
{
    const int32_t *ids = a->in[1], *wanted = a->in[2];
    int64_t n = columns(a);
    for (int64_t r = 0; r < rows(a); r++) {
        bool inside = ids[r] >= 0 && ids[r] < n && !(wanted && wanted[r] < 0);
        ((int32_t *)a->out[0])[r] =
            inside ? (int32_t)count_from(row_in(a, 0, r), n, row_in(a, 0, r)[ids[r]]) : 0;
    }
    return HR_OK;
}

/* The best id after (value, id) = (last, at) in falling order, ids rising within a value. */
static int32_t next_best(const float *x, int64_t n, int32_t at)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        float v = ordered(x[i]), last = at < 0 ? INFINITY : ordered(x[at]);
        bool after = v < last || (v == last && i > at);
        if (after && (best < 0 || v > ordered(x[best]))) best = i;
    }
    return best;
}

hr_status hr_ref_top_n(const hr_ref_args *a)
{
    const int32_t *wanted = a->in[1];
    int64_t n = a->node->out[0]->shape.dim[1];
    for (int64_t r = 0; r < rows(a); r++) {
        int32_t *out = (int32_t *)a->out[0] + r * n, at = -1;
        for (int64_t i = 0; i < n; i++)
            out[i] = i < wanted[r] ? at = next_best(row_in(a, 0, r), columns(a), at) : -1;
    }
    return HR_OK;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void count_one(uint16_t *c, int32_t add)
{
    int32_t generated = *c & 0x7FFF;
    if (add < 0) {
        *c |= 0x8000;
    } else {
        generated = add > 0x7FFF - generated ? 0x7FFF : generated + add;
        *c = (uint16_t)((*c & 0x8000) | generated);
    }
}

hr_status hr_ref_count_tokens(const hr_ref_args *a)
{
    uint16_t *counts = a->out[0]; /* [S,V] */
    const int32_t *clear = a->in[1], *slots = a->in[2], *ids = a->in[3], *add = a->in[4];
    int64_t n_slots = a->node->in[0]->shape.dim[0], n = a->node->in[0]->shape.dim[1];
    for (int64_t i = 0; i < hr_ref_rows(a, a->node->in[1]); i++)
        if (clear[i] >= 0 && clear[i] < n_slots)
            memset(counts + clear[i] * n, 0, (size_t)n * sizeof *counts);
    for (int64_t i = 0; i < hr_ref_rows(a, a->node->in[2]); i++)
        if (slots[i] >= 0 && slots[i] < n_slots && ids[i] >= 0 && ids[i] < n)
            count_one(counts + slots[i] * n + ids[i], add[i]);
    return HR_OK;
}

hr_status hr_ref_write_rows(const hr_ref_args *a)
{
    const int32_t *slots = a->in[2];
    const hr_value *table = a->node->in[0];
    size_t bytes = (size_t)hr_shape_row(table->shape) * hr_dtype_size(table->dtype);
    for (int64_t i = 0; i < hr_ref_rows(a, a->node->in[2]); i++)
        if (slots[i] >= 0 && slots[i] < table->shape.dim[0])
            memcpy((char *)a->out[0] + (size_t)slots[i] * bytes,
                   (const char *)a->in[1] + (size_t)i * bytes, bytes);
    return HR_OK;
}
