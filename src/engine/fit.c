/* Fitting buckets to a histogram of step sizes.
 *
 * Pure functions, any thread. A best list ends each bucket at a size that occurred (or the limit),
 * so the sizes that occurred are all there is to choose from, and a table over (buckets, last size)
 * finds the least padding: best[k][j] = min over i < j of best[k-1][i] + what sizes i+1..j cost in
 * a bucket that ends at size j. Prefix sums make each cost a subtraction. */
#include "engine/fit.h"

#include "base/json.h"

/* The distinct sizes, with running sums over them; index 0 stands before the first. */
typedef struct fit_sizes {
    int64_t *size, *steps, *tokens; /* owned [n+1]: size; Σ count; Σ count × size */
    int64_t n;
} fit_sizes;

static void deinit(fit_sizes *f)
{
    hr_free(f->size);
    hr_free(f->steps);
    hr_free(f->tokens);
}

static hr_status add_size(fit_sizes *f, int64_t size, uint64_t count)
{
    int64_t n = ++f->n, product;
    f->size[n] = size;
    if (count > INT64_MAX || __builtin_mul_overflow((int64_t)count, size, &product) ||
        __builtin_add_overflow(f->steps[n - 1], (int64_t)count, &f->steps[n]) ||
        __builtin_add_overflow(f->tokens[n - 1], product, &f->tokens[n]))
        return hr_fail(HR_INVALID_ARGUMENT, "step histogram: its sums do not fit 63 bits");
    return HR_OK;
}

static hr_status gather(const uint64_t *counts, int64_t limit, fit_sizes *f)
{
    *f = (fit_sizes){ 0 };
    f->size = hr_alloc_array0((size_t)limit + 2, sizeof *f->size);
    f->steps = hr_alloc_array0((size_t)limit + 2, sizeof *f->steps);
    f->tokens = hr_alloc_array0((size_t)limit + 2, sizeof *f->tokens);
    if (!f->size || !f->steps || !f->tokens)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "step histogram of %lld sizes", (long long)limit);
    for (int64_t n = 1; n <= limit; n++)
        if (counts[n] || n == limit) HR_TRY(add_size(f, n, counts[n]));
    int64_t most; /* all in the last bucket: no sum below is larger */
    if (__builtin_mul_overflow(f->steps[f->n], limit, &most))
        return hr_fail(HR_INVALID_ARGUMENT, "step histogram: its sums do not fit 63 bits");
    return HR_OK;
}

/* Padding of sizes (i, j] in one bucket that ends at size j. */
static int64_t cost(const fit_sizes *f, int64_t i, int64_t j)
{
    return (f->steps[j] - f->steps[i]) * f->size[j] - (f->tokens[j] - f->tokens[i]);
}

/* One row of the table: best[j] with one bucket more than before[i], and where that one begins. */
static void fill_row(const fit_sizes *f, const int64_t *before, int64_t *best, int32_t *from)
{
    for (int64_t j = 1; j <= f->n; j++) {
        best[j] = cost(f, 0, j);
        from[j] = 0;
        for (int64_t i = 1; before && i < j; i++) {
            int64_t c = before[i] + cost(f, i, j);
            if (c >= best[j]) continue;
            best[j] = c;
            from[j] = (int32_t)i;
        }
    }
}

static hr_status solve(const fit_sizes *f, int buckets, hr_bucket_list *out, int64_t *padding)
{
    size_t width = (size_t)f->n + 1, rows = (size_t)buckets;
    int64_t *best = hr_alloc_array0(2 * width, sizeof *best);
    int32_t *from = hr_alloc_array0(rows * width, sizeof *from);
    hr_status st = best && from ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "bucket table");
    for (size_t k = 0; !st && k < rows; k++)
        fill_row(f, k ? best + (k + 1) % 2 * width : NULL, best + k % 2 * width, from + k * width);
    if (!st) {
        *padding = best[(rows - 1) % 2 * width + (size_t)f->n];
        int64_t ends[HR_BUCKETS_MAX], j = f->n;
        int n = 0;
        for (size_t k = rows; j > 0; k--) {
            ends[n++] = f->size[j];
            j = from[(k - 1) * width + (size_t)j];
        }
        while (n > 0) out->at[out->n++] = ends[--n];
    }
    hr_free(best);
    hr_free(from);
    return st;
}

hr_status hr_buckets_fit(const uint64_t *counts, int64_t limit, int buckets, hr_bucket_list *out,
                         int64_t *padding)
{
    *out = (hr_bucket_list){ .n = 0 };
    *padding = 0;
    if (buckets < 1 || buckets > HR_BUCKETS_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "1 to %d buckets can be fitted, not %d", HR_BUCKETS_MAX,
                       buckets);
    fit_sizes f;
    hr_status st = gather(counts, limit, &f);
    if (!st) st = solve(&f, buckets < f.n ? buckets : (int)f.n, out, padding);
    deinit(&f);
    return st;
}

hr_status hr_buckets_padding(const uint64_t *counts, int64_t limit, const hr_bucket_list *list,
                             int64_t *padding)
{
    fit_sizes f;
    *padding = 0;
    hr_status st = gather(counts, limit, &f);
    for (int64_t n = 1; !st && n <= f.n; n++) {
        int64_t end = list->at[hr_buckets_find(list, f.size[n])];
        *padding += (f.steps[n] - f.steps[n - 1]) * (end - f.size[n]);
    }
    deinit(&f);
    return st;
}

static hr_status read_counts(const hr_json *object, const char *key, int64_t limit, uint64_t *out)
{
    const hr_json *sizes = hr_json_get(hr_json_get(object, "steps"), key);
    if (!sizes || sizes->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "no \"steps\": {\"%s\": …}: give it what GET /programs answers", key);
    for (size_t i = 0; i < sizes->count; i++) {
        int64_t size, count;
        HR_TRY(hr_str_to_i64(sizes->items[i].key, &size));
        HR_TRY(hr_json_to_i64(&sizes->items[i], key, &count));
        if (size < 1 || size > limit)
            return hr_fail(HR_OUT_OF_RANGE, "a step of %lld %s is outside 1..%lld, the limit here",
                           (long long)size, key, (long long)limit);
        if (count < 0) return hr_fail(HR_INVALID_ARGUMENT, "%s: a count below 0", key);
        out[size] = (uint64_t)count;
    }
    return HR_OK;
}

hr_status hr_buckets_read_steps(hr_str json, const char *key, int64_t limit, uint64_t *out)
{
    hr_arena arena = { 0 };
    const hr_json *root = NULL;
    for (int64_t i = 0; i <= limit; i++) out[i] = 0;
    hr_status st = hr_json_parse(json, NULL, &arena, &root);
    if (!st) st = read_counts(root, key, limit, out);
    hr_arena_deinit(&arena);
    return st ? hr_fail_prefix(st, "step histogram") : HR_OK;
}
