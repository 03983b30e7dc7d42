/* What a request may ask for: defaults and checks, one rule per public field.
 *
 * Any thread. Values arrive from JSON, flags or the embedding API: everything is hostile until
 * hr_sampling_check has passed, and every refusal starts with the field's public name. */
#include <errno.h>
#include <math.h>
#include <sys/random.h>

#include "sampler/sampler_int.h"

void hr_sampling_init(hr_sampling *s)
{
    *s = (hr_sampling){ .n = 1,
                        .temperature = 1,
                        .top_p = 1,
                        .repetition_penalty = 1,
                        .seed = -1,
                        .max_tokens = -1,
                        .skip_special_tokens = true,
                        .logprobs = -1,
                        .prompt_logprobs = -1 };
}

bool hr_sampling_is_greedy(const hr_sampling *s)
{
    return s->temperature < HR_SAMPLING_GREEDY_BELOW || s->top_k == 1;
}

hr_status hr_sampling_draw_seed(hr_sampling *s)
{
    uint64_t word;
    if (s->seed != -1) return HR_OK;
    if (getrandom(&word, sizeof word, 0) != (ssize_t)sizeof word)
        return hr_fail(HR_UNAVAILABLE, "seed: getrandom: %s", strerror(errno));
    s->seed = (int64_t)(word >> 1); /* 63 bits: never -1, and a JSON integer everywhere */
    return HR_OK;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static hr_status refuse(const char *field, double value, const char *rule)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %.9g is not %s", field, value, rule);
}

static hr_status refuse_integer(const char *field, int64_t value, int64_t least, int64_t most)
{
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %lld is not in %lld to %lld", field, (long long)value,
                   (long long)least, (long long)most);
}

/* A NaN fails every comparison, so each rule is written as what must hold. */
static hr_status check_numbers(const hr_sampling *s)
{
    if (!(s->temperature >= 0 && s->temperature <= 2))
        return refuse("temperature", s->temperature, "in 0 to 2");
    if (!(s->top_p > 0 && s->top_p <= 1)) return refuse("top_p", s->top_p, "above 0 and at most 1");
    if (!(s->min_p >= 0 && s->min_p <= 1)) return refuse("min_p", s->min_p, "in 0 to 1");
    if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
        return refuse("presence_penalty", s->presence_penalty, "in -2 to 2");
    if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
        return refuse("frequency_penalty", s->frequency_penalty, "in -2 to 2");
    if (!(s->repetition_penalty > 0 && s->repetition_penalty < (double)INFINITY))
        return refuse("repetition_penalty", s->repetition_penalty, "above 0 and finite");
    return HR_OK;
}

static hr_status check_lengths(const hr_sampling *s, const hr_sampler_limits *l)
{
    int64_t most = s->max_tokens >= 0 ? s->max_tokens : l->max_model_len;
    if (s->n < 1 || s->n > HR_SAMPLING_MAX_N)
        return refuse_integer("n", s->n, 1, HR_SAMPLING_MAX_N);
    if (s->top_k < -1) return refuse_integer("top_k", s->top_k, -1, l->vocab);
    if (s->default_max_tokens < 0)
        return refuse_integer("default_max_tokens", s->default_max_tokens, 0, l->max_model_len);
    if (s->max_tokens < -1 || (s->max_tokens == 0 && s->prompt_logprobs < 0))
        return refuse_integer("max_tokens", s->max_tokens, 1, l->max_model_len);
    if (s->min_tokens < 0 || s->min_tokens > most)
        return refuse_integer("min_tokens", s->min_tokens, 0, most);
    if (s->logprobs < -1 || s->logprobs > l->max_logprobs)
        return refuse_integer("logprobs", s->logprobs, 0, l->max_logprobs);
    if (s->prompt_logprobs < -1 || s->prompt_logprobs > l->max_logprobs)
        return refuse_integer("prompt_logprobs", s->prompt_logprobs, 0, l->max_logprobs);
    return HR_OK;
}

static hr_status check_count(const char *field, size_t n, size_t most)
{
    if (n <= most) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s: %zu entries, at most %zu are taken", field, n, most);
}

/* Ids index rows of width V: nothing outside may pass. */
static hr_status check_ids(const char *field, const int64_t *ids, size_t n, size_t most,
                           const hr_sampler_limits *l)
{
    HR_TRY(check_count(field, n, most));
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= l->vocab)
            return hr_fail(HR_INVALID_ARGUMENT, "%s: token id %lld is not in 0 to %lld", field,
                           (long long)ids[i], (long long)l->vocab - 1);
    return HR_OK;
}

static hr_status check_strings(const char *field, const hr_str *s, size_t n, size_t most)
{
    HR_TRY(check_count(field, n, most));
    for (size_t i = 0; i < n; i++)
        if (!s[i].n) return hr_fail(HR_INVALID_ARGUMENT, "%s: entry %zu is empty", field, i);
    return HR_OK;
}

static hr_status check_bias(const hr_sampling *s, const hr_sampler_limits *l)
{
    const int64_t *ids = s->logit_bias_ids;
    HR_TRY(check_ids("logit_bias", ids, s->n_logit_bias, HR_SAMPLING_MAX_BIAS, l));
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        if (!isfinite(s->logit_bias_values[i]))
            return hr_fail(HR_INVALID_ARGUMENT,
                           "logit_bias: the value of token id %lld is not "
                           "finite",
                           (long long)ids[i]);
        for (size_t j = 0; j < i; j++)
            if (ids[j] == ids[i])
                return hr_fail(HR_INVALID_ARGUMENT, "logit_bias: token id %lld is there twice",
                               (long long)ids[i]);
    }
    return HR_OK;
}

/* What the likeliest token cannot answer. Stop strings and ids, max_tokens, seed and n are nothing
 * to the sampler, and whoever is greedy has no use for top_k, top_p and min_p. */
static hr_status check_greedy(const hr_sampling *s)
{
    const struct {
        const char *field;
        bool wanted;
    } rules[] = {
        { "presence_penalty", s->presence_penalty != 0 },
        { "frequency_penalty", s->frequency_penalty != 0 },
        { "repetition_penalty", s->repetition_penalty != 1 },
        { "min_tokens", s->min_tokens > 0 },
        { "logit_bias", s->n_logit_bias > 0 },
        { "allowed_token_ids", s->allowed_token_ids != NULL },
        { "bad_words", s->n_bad_words > 0 },
        { "structured_outputs", s->grammar },
        { "logprob_token_ids", s->n_logprob_token_ids > 0 },
        { "logprobs", s->logprobs >= 0 },
        { "sampling_trace", s->sampling_trace },
        { "prompt_logprobs", s->prompt_logprobs >= 0 },
    };
    if (!hr_sampling_is_greedy(s))
        return hr_fail(HR_INVALID_ARGUMENT,
                       "temperature: %.9g draws tokens, and this engine was started with --sampler "
                       "greedy, which only takes the likeliest: ask for temperature 0",
                       s->temperature);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].wanted)
            return hr_fail(
                HR_INVALID_ARGUMENT,
                "%s: this engine was started with --sampler greedy, which takes the likeliest "
                "token as the model gives it: leave the field out",
                rules[i].field);
    return HR_OK;
}

hr_status hr_sampling_check(const hr_sampling *s, const hr_sampler_limits *l)
{
    HR_TRY(check_numbers(s));
    HR_TRY(check_lengths(s, l));
    HR_TRY(check_strings("stop", s->stop, s->n_stop, HR_SAMPLING_MAX_STOP));
    HR_TRY(check_ids("stop_token_ids", s->stop_token_ids, s->n_stop_token_ids, HR_SAMPLING_MAX_STOP,
                     l));
    HR_TRY(check_bias(s, l));
    if (s->allowed_token_ids && !s->n_allowed_token_ids)
        return hr_fail(HR_INVALID_ARGUMENT, "allowed_token_ids: the list is empty");
    HR_TRY(check_ids("allowed_token_ids", s->allowed_token_ids, s->n_allowed_token_ids,
                     (size_t)l->vocab, l));
    HR_TRY(check_strings("bad_words", s->bad_words, s->n_bad_words, HR_SAMPLING_MAX_BAD_WORDS));
    HR_TRY(check_ids("logprob_token_ids", s->logprob_token_ids, s->n_logprob_token_ids,
                     HR_SAMPLING_MAX_EXTRA, l));
    if (s->grammar && s->ignore_eos)
        return hr_fail(HR_INVALID_ARGUMENT, "ignore_eos: a structured output ends with EOS");
    return l->kind == HR_SAMPLER_GREEDY ? check_greedy(s) : HR_OK;
}

/* ---- what was chosen at start ---------------------------------------------------------------- */

hr_status hr_sampler_kind_parse(hr_str name, hr_sampler_kind *out)
{
    *out = hr_str_eq_c(name, "greedy") ? HR_SAMPLER_GREEDY : HR_SAMPLER_FULL;
    if (*out == HR_SAMPLER_GREEDY || hr_str_eq_c(name, "full")) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "sampler: '%.*s' is not full or greedy", HR_STR_ARG(name));
}

/* ---- logprobs mode --------------------------------------------------------------------------- */

static const char *const mode_names[] = {
    [HR_LOGPROBS_RAW] = "raw_logprobs",
    [HR_LOGPROBS_PROCESSED] = "processed_logprobs",
    [HR_LOGPROBS_RAW_LOGITS] = "raw_logits",
    [HR_LOGPROBS_PROCESSED_LOGITS] = "processed_logits",
};

const char *hr_logprobs_mode_name(hr_logprobs_mode m)
{
    return mode_names[m];
}

hr_status hr_logprobs_mode_parse(hr_str name, hr_logprobs_mode *out)
{
    *out = HR_LOGPROBS_RAW;
    for (size_t i = 0; i < sizeof mode_names / sizeof *mode_names; i++) {
        if (!hr_str_eq_c(name, mode_names[i])) continue;
        *out = (hr_logprobs_mode)i;
        return HR_OK;
    }
    return hr_fail(HR_INVALID_ARGUMENT,
                   "logprobs-mode: '%.*s' is not raw_logprobs, processed_logprobs, raw_logits or "
                   "processed_logits",
                   HR_STR_ARG(name));
}
