/* Rows of programs with their cost, as log lines and as a manifest.
 *
 * Filled by the engine thread during start; counters are read by any thread afterwards. */
#include "engine/ledger.h"

#include <assert.h>

#include "base/json.h"

const char *hr_stage_name(hr_stage s)
{
    static const char *const names[HR_STAGE_COUNT] = {
        [HR_STAGE_BACKBONE] = "backbone", [HR_STAGE_SELECT] = "select",
        [HR_STAGE_SAMPLER] = "sampler",   [HR_STAGE_PROMPT] = "prompt_logprobs",
        [HR_STAGE_TABLES] = "tables",
    };
    return names[s];
}

const double hr_ledger_seconds[HR_LEDGER_SECONDS] = { .0001, .00025, .0005, .001, .0025, .005, .01,
                                                      .025,  .05,    .1,    .25,  .5,    1,    5 };

hr_status hr_ledger_init(hr_ledger *l, size_t programs)
{
    *l = (hr_ledger){ .capacity = programs };
    l->rows = hr_alloc_array0(programs, sizeof *l->rows);
    if (!l->rows) return hr_fail(HR_RESOURCE_EXHAUSTED, "ledger of %zu programs", programs);
    for (size_t i = 0; i < programs; i++)
        HR_TRY(hr_histogram_init(&l->rows[i].seconds, hr_ledger_seconds, HR_LEDGER_SECONDS));
    return HR_OK;
}

hr_status hr_ledger_init_steps(hr_ledger *l, int64_t max_tokens, int64_t max_requests)
{
    l->step_tokens = hr_alloc_array0((size_t)max_tokens + 1, sizeof *l->step_tokens);
    l->step_requests = hr_alloc_array0((size_t)max_requests + 1, sizeof *l->step_requests);
    if (!l->step_tokens || !l->step_requests)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "counts of steps by size");
    l->max_tokens = max_tokens;
    l->max_requests = max_requests;
    return HR_OK;
}

void hr_ledger_count_step(hr_ledger *l, int64_t tokens, int64_t requests)
{
    assert(tokens <= l->max_tokens && requests <= l->max_requests);
    hr_counter_add(&l->step_tokens[tokens], 1);
    hr_counter_add(&l->step_requests[requests], 1);
}

void hr_ledger_deinit(hr_ledger *l)
{
    hr_free(l->step_tokens);
    hr_free(l->step_requests);
    for (size_t i = 0; l->rows && i < l->capacity; i++) hr_histogram_deinit(&l->rows[i].seconds);
    hr_free(l->rows);
    *l = (hr_ledger){ 0 };
}

hr_ledger_row *hr_ledger_add(hr_ledger *l, hr_stage stage, int64_t tokens, int64_t requests)
{
    assert(l->n < l->capacity);
    hr_ledger_row *r = &l->rows[l->n++];
    r->stage = stage;
    r->tokens = tokens;
    r->requests = requests;
    return r;
}

void hr_ledger_bucket_text(const hr_ledger_row *r, hr_buf *out)
{
    if (r->tokens) hr_buf_printf(out, "tokens=%lld", (long long)r->tokens);
    if (r->tokens && r->requests) hr_buf_add_c(out, " ");
    if (r->requests) hr_buf_printf(out, "requests=%lld", (long long)r->requests);
}

size_t hr_ledger_cached(const hr_ledger *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++) n += l->rows[i].cached;
    return n;
}

size_t hr_ledger_code(const hr_ledger *l)
{
    size_t bytes = 0;
    for (size_t i = 0; i < l->n; i++) bytes += l->rows[i].code_bytes;
    return bytes;
}

size_t hr_ledger_peak(const hr_ledger *l)
{
    size_t peak = 0;
    for (size_t i = 0; i < l->n; i++)
        if (l->rows[i].peak_bytes > peak) peak = l->rows[i].peak_bytes;
    return peak;
}

/* An axis that the program has not is null. */
static void add_axis(hr_json_writer *w, const char *key, int64_t v)
{
    hr_json_key(w, hr_str_c(key));
    if (v) hr_json_i64(w, v);
    else hr_json_null(w);
}

void hr_ledger_add_members(hr_json_writer *w, const hr_ledger_row *r, bool with_times)
{
    hr_json_add_str(w, "program", hr_stage_name(r->stage));
    add_axis(w, "tokens", r->tokens);
    add_axis(w, "requests", r->requests);
    hr_json_add_str(w, "activation", hr_dtype_name(r->activation));
    hr_json_add_str(w, "backend", r->backend);
    hr_json_add_i64(w, "steps", (int64_t)r->steps);
    hr_json_add_i64(w, "peak_bytes", (int64_t)r->peak_bytes);
    if (!with_times) return;
    hr_json_add_i64(w, "code_bytes", (int64_t)r->code_bytes);
    hr_json_key(w, HR_STR("cached"));
    hr_json_bool(w, r->cached);
    hr_json_add_f64(w, "compile_ms", r->compile_ms);
    hr_json_add_f64(w, "warm_ms", r->warm_ms);
    hr_json_add_i64(w, "calls", (int64_t)hr_counter_get(&r->calls));
    hr_json_add_i64(w, "padding", (int64_t)hr_counter_get(&r->padding));
}

void hr_ledger_manifest(const hr_ledger *l, hr_str numerics, bool with_times, hr_buf *out)
{
    hr_json_writer w = { .out = out };
    hr_buf_add_c(out, "{\"headrace\":\"" HR_VERSION "\",\n\"numerics\":");
    hr_buf_add_str(out, numerics);
    hr_buf_add_c(out, ",\n\"programs\":[");
    for (size_t i = 0; i < l->n; i++) {
        hr_buf_add_c(out, i ? ",\n" : "\n");
        hr_json_begin_object(&w);
        hr_ledger_add_members(&w, &l->rows[i], with_times);
        hr_json_end_object(&w);
        w.used[0] = 0; /* every row is a value of its own */
    }
    hr_buf_add_c(out, "\n]");
    if (with_times) hr_buf_printf(out, ",\n\"total_s\":%.6f", l->total_s);
    hr_buf_add_c(out, "}\n");
}
