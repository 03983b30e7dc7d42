/* The cases of the sampler's benchmark, as requests: what the engine would be asked for.
 *
 * Every row of a step is the same case with a seed and a history of its own. All go through the
 * sampler's own door, so that an option costs here what it costs a request. */
#include "bench/sampler_int.h"

enum { SEEN = 512, MOST_BIASES = 64 };

typedef struct bench_case {
    double temperature;
    int64_t top_k;
    double top_p, min_p;
    bool penalties;
    size_t biases;
    bool masked;
    int32_t logprobs;
} bench_case;

#define CASE_ROW(name, text, ...) { __VA_ARGS__ },
static const bench_case cases[HR_BENCH_SWEEP_END] = { HR_BENCH_CASES(CASE_ROW)
                                                          HR_BENCH_SWEEP(CASE_ROW) };
#define CASE_NAME(name, text, ...) text,
const char *const hr_bench_case_names[HR_BENCH_SWEEP_END] = { HR_BENCH_CASES(CASE_NAME)
                                                                  HR_BENCH_SWEEP(CASE_NAME) };

static void set_biases(const hr_bench_rig *r, size_t n, hr_sampling *s)
{
    static int64_t ids[MOST_BIASES];
    static double values[MOST_BIASES];
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int64_t)i * (r->vocab / MOST_BIASES);
        values[i] = i % 2 ? 2 : -2;
    }
    s->logit_bias_ids = ids;
    s->logit_bias_values = values;
    s->n_logit_bias = n;
}

/* Every id but each third. */
static hr_status set_mask(hr_bench_rig *r, hr_sampling *s)
{
    int64_t *ids = hr_arena_array(&r->arena, (size_t)r->vocab, sizeof *ids);
    if (!ids) return hr_fail(HR_RESOURCE_EXHAUSTED, "allowed ids");
    for (int64_t id = 0; id < r->vocab; id++)
        if (id % 3) ids[s->n_allowed_token_ids++] = id;
    s->allowed_token_ids = ids;
    return HR_OK;
}

static hr_status make_sampling(hr_bench_rig *r, hr_bench_case c, hr_sampling *s)
{
    bench_case k = cases[c];
    hr_sampling_init(s);
    s->temperature = k.temperature;
    s->top_p = k.top_p;
    s->min_p = k.min_p;
    s->top_k = k.top_k == HR_BENCH_HALF_VOCAB ? r->vocab / 2 : k.top_k;
    s->logprobs = k.logprobs;
    s->seed = 7;
    if (k.penalties) {
        s->presence_penalty = .5;
        s->frequency_penalty = .25;
        s->repetition_penalty = 1.1;
    }
    if (k.biases) set_biases(r, k.biases, s);
    return k.masked ? set_mask(r, s) : HR_OK;
}

static hr_status run_tables(hr_bench_rig *r)
{
    double ignored;
    HR_TRY(hr_bench_rig_run(r, HR_BENCH_TABLES, &ignored));
    hr_sampling_inputs_clear_tables(r->inputs);
    return HR_OK;
}

/* Half of the history is prompt, half was generated; all ids differ. */
static hr_status set_row(hr_bench_rig *r, const hr_sampling *s, const hr_sampler_limits *l,
                         int64_t row)
{
    int32_t tokens[SEEN];
    hr_sampler_state state;
    for (int32_t i = 0; i < SEEN; i++)
        tokens[i] = (int32_t)((i * (r->vocab / SEEN) + row) % r->vocab);
    HR_TRY(hr_sampler_state_init(&state, &r->arena, s, l, NULL, 0, (uint32_t)row));
    int32_t slot = (int32_t)row + 1;
    hr_sampler_state_set_slots(&state, hr_sampler_state_wants_counts(&state) ? slot : 0,
                               hr_sampler_state_wants_allowed(&state) ? slot : 0);
    while (!hr_sampling_inputs_feed(r->inputs, &state, tokens, SEEN / 2, SEEN))
        HR_TRY(run_tables(r));
    if (hr_sampling_inputs_changes(r->inputs)) HR_TRY(run_tables(r));
    hr_sampling_inputs_set_row(r->inputs, row, &state, tokens, SEEN / 2, SEEN);
    return HR_OK;
}

hr_status hr_bench_rig_set(hr_bench_rig *r, hr_bench_case c)
{
    hr_sampling s;
    hr_sampler_limits l = { .vocab = r->vocab, .max_model_len = 4096, .max_logprobs = 20 };
    hr_arena_deinit(&r->arena);
    HR_TRY(make_sampling(r, c, &s));
    HR_TRY(hr_sampling_check(&s, &l));
    hr_sampling_inputs_clear(r->inputs, 0);
    hr_sampling_inputs_clear_tables(r->inputs);
    for (int64_t row = 0; row < r->rows; row++) HR_TRY(set_row(r, &s, &l, row));
    return HR_OK;
}
