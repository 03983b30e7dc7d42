/* The host arrays of a step: parameters become rows, table changes become lists.
 *
 * Engine thread. The arrays are made once, R rows of the largest bucket; a step resets the rows it
 * uses and fills them, and takes no memory. Everything follows from HR_SAMPLING_INPUTS: the
 * arrays, their identity rows and the lookup by name. */
#include <float.h>
#include <math.h>

#include "sampler/sampler_int.h"

/* An identity that is not written: what the row's count says is not read. */
#define KEEP 0

const hr_sampling_input_info hr_sampling_input_list[HR_SAMPLING_INPUT_COUNT] = {
#define INFO(field, program, dtype, type, columns, identity)                                       \
    { #field, HR_PROGRAM_##program, HR_DTYPE_##dtype, columns },
    HR_SAMPLING_INPUTS(INFO)
#undef INFO
};

/* Rows and columns of an input's array. */
static int64_t array_rows(const hr_sampling_inputs *in, const hr_sampling_input_info *i)
{
    if (i->program == HR_PROGRAM_SAMPLER) return in->rows;
    return i->columns ? i->columns : HR_TABLE_ROWS;
}
static int64_t array_columns(const hr_sampling_inputs *in, const hr_sampling_input_info *i)
{
    if (i->program == HR_PROGRAM_SAMPLER) return i->columns;
    return i->columns ? 1 : hr_sampler_words(in->options.vocab);
}

static void *make_array(hr_sampling_inputs *in, hr_sampling_input input)
{
    const hr_sampling_input_info *i = &hr_sampling_input_list[input];
    size_t row = (size_t)array_columns(in, i) * hr_dtype_size(i->dtype);
    return hr_arena_array(&in->arena, (size_t)array_rows(in, i), row);
}

hr_status hr_sampling_inputs_create(const hr_sampler_options *o, int64_t rows,
                                    hr_sampling_inputs **out)
{
    *out = NULL;
    hr_sampling_inputs *in = hr_new0(hr_sampling_inputs);
    if (!in) return hr_fail(HR_RESOURCE_EXHAUSTED, "sampling inputs");
    in->options = *o;
    in->rows = rows;
    bool made = true;
#define MAKE(field, program, dtype, type, columns, identity)                                       \
    in->field = make_array(in, HR_INPUT_##field);                                                  \
    made = made && in->field;
    HR_SAMPLING_INPUTS(MAKE)
#undef MAKE
    if (!made) {
        hr_sampling_inputs_destroy(in);
        return hr_fail(HR_RESOURCE_EXHAUSTED, "sampling inputs for %lld rows", (long long)rows);
    }
    in->n_clear = HR_TABLE_CLEARS; /* all slots are reset by the first clear */
    in->n_counts = HR_TABLE_COUNTS;
    in->n_allowed = in->n_grammar = HR_TABLE_ROWS;
    in->filled = rows;
    hr_sampling_inputs_clear(in, 0);
    hr_sampling_inputs_clear_tables(in);
    *out = in;
    return HR_OK;
}

void hr_sampling_inputs_destroy(hr_sampling_inputs *in)
{
    if (!in) return;
    hr_arena_deinit(&in->arena);
    hr_free(in);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void mark_filled(hr_sampling_inputs *in, int64_t r)
{
    if (in->filled <= r) in->filled = r + 1;
}

static bool is_list(hr_sampling_input input)
{
    return input == HR_INPUT_bias_ids || input == HR_INPUT_bias_values ||
           input == HR_INPUT_banned_ids || input == HR_INPUT_draft_ids;
}

static void clear_row(hr_sampling_inputs *in, int64_t r)
{
#define CLEAR(field, program, dtype, type, columns, identity)                                      \
    if (HR_PROGRAM_##program == HR_PROGRAM_SAMPLER && !is_list(HR_INPUT_##field))                  \
        for (int64_t c = 0; c < columns; c++) in->field[r * columns + c] = identity;
    HR_SAMPLING_INPUTS(CLEAR)
#undef CLEAR
}

void hr_sampling_inputs_clear(hr_sampling_inputs *in, int64_t row)
{
    for (int64_t r = row; r < in->filled; r++) clear_row(in, r);
    if (in->filled > row) in->filled = row;
    if (in->biased > row) in->biased = row;
    if (in->banned > row) in->banned = row;
    if (in->drafted > row) in->drafted = row;
}

/* An f32 that is positive and finite whatever positive finite f64 it comes from. */
static float positive(double x)
{
    return (float)fmin(fmax(x, (double)FLT_MIN), (double)FLT_MAX);
}

static void set_distribution(hr_sampling_inputs *in, int64_t r, const hr_sampler_state *s,
                             int64_t position)
{
    const hr_sampling *p = s->sampling;
    bool greedy = hr_sampling_is_greedy(p), sharp = p->temperature < HR_SAMPLING_GREEDY_BELOW;
    bool processed = in->options.mode == HR_LOGPROBS_PROCESSED ||
                     in->options.mode == HR_LOGPROBS_PROCESSED_LOGITS;
    in->greedy[r] = greedy;
    in->position[r] = greedy ? -1 : (int32_t)position;
    in->seed[2 * r] = (uint32_t)s->seed;
    in->seed[2 * r + 1] = (uint32_t)(s->seed >> 32);
    in->temperature[r] = 0; /* nothing is tempered unless somebody looks at the result */
    if (sharp || (greedy && !processed)) return;
    in->temperature[r] = (float)fmax(p->temperature, HR_SAMPLING_LEAST_TEMPERATURE);
    in->top_p[r] = (float)p->top_p;
    in->min_p[r] = (float)p->min_p;
    if (p->top_k > 0 && p->top_k < in->options.vocab) in->top_k[r] = (int32_t)p->top_k;
}

static void set_penalties(hr_sampling_inputs *in, int64_t r, const hr_sampler_state *s)
{
    const hr_sampling *p = s->sampling;
    in->presence[r] = (float)p->presence_penalty;
    in->frequency[r] = (float)p->frequency_penalty;
    in->repetition[r] = positive(p->repetition_penalty);
    in->counts_slot[r] = s->counts_slot;
    in->allowed_slot[r] = s->allowed_slot;
    in->grammar_slot[r] = s->grammar_slot;
}

/* The tables program has counted the sequence's tokens; what the row sees beyond are guesses. */
static void set_drafts(hr_sampling_inputs *in, int64_t r, const hr_sampler_state *s,
                       const int32_t *tokens, int64_t n_tokens)
{
    int64_t n = s->counts_slot && s->counted >= 0 ? n_tokens - s->counted : 0;
    if (!in->options.drafts || n <= 0 || n > HR_SAMPLING_MAX_DRAFTS) return;
    memcpy(in->draft_ids + r * HR_SAMPLING_MAX_DRAFTS, tokens + s->counted,
           (size_t)n * sizeof *tokens);
    in->draft_count[r] = (int32_t)n;
    if (in->drafted <= r) in->drafted = r + 1;
}

double hr_sampling_clamp_bias(double x)
{
    return fmin(fmax(x, -100.0), 100.0);
}

static void set_bias(hr_sampling_inputs *in, int64_t r, const hr_sampler_state *s)
{
    const hr_sampling *p = s->sampling;
    int32_t *ids = in->bias_ids + r * HR_SAMPLING_MAX_BIAS;
    float *values = in->bias_values + r * HR_SAMPLING_MAX_BIAS;
    size_t n = s->bias.ids ? (size_t)s->bias.n : p->n_logit_bias;
    for (size_t i = 0; i < n; i++) {
        ids[i] = s->bias.ids ? s->bias.ids[i] : (int32_t)p->logit_bias_ids[i];
        values[i] = s->bias.ids ? s->bias.values[i]
                                : (float)hr_sampling_clamp_bias(p->logit_bias_values[i]);
    }
    in->bias_count[r] = (int32_t)n;
    if (n && in->biased <= r) in->biased = r + 1;
}

/* A bad word's last id is banned where the ids before it have just been generated. */
static bool about_to_end(const hr_id_list *word, const int32_t *output, int64_t n)
{
    int64_t prefix = (int64_t)word->n - 1;
    if (!prefix) return true;
    return prefix <= n &&
           memcmp(output + n - prefix, word->ids, (size_t)prefix * sizeof *output) == 0;
}

static void set_banned(hr_sampling_inputs *in, int64_t r, const hr_sampler_state *s,
                       const int32_t *output, int64_t n)
{
    const hr_sampling *p = s->sampling;
    int32_t *ids = in->banned_ids + r * HR_SAMPLING_MAX_BANNED, count = 0;
    for (size_t w = 0; w < p->n_bad_word_ids; w++) {
        const hr_id_list *word = &p->bad_word_ids[w];
        if (about_to_end(word, output, n)) ids[count++] = word->ids[word->n - 1];
    }
    if (n < p->min_tokens)
        for (size_t i = 0; i < s->stop.n; i++) ids[count++] = s->stop.ids[i];
    in->banned_count[r] = count;
    if (count && in->banned <= r) in->banned = r + 1;
}

/* Rows that want no log-probabilities at all do not pay for a softmax. */
static void set_wanted(hr_sampling_inputs *in, int64_t r, int32_t top, size_t extras)
{
    int32_t most = in->options.max_logprobs;
    in->wanted[r] = top < most ? top : most;
    if (top < 0) in->wanted[r] = extras ? 0 : -1;
}

void hr_sampling_inputs_set_row(hr_sampling_inputs *in, int64_t i, const hr_sampler_state *s,
                                const int32_t *tokens, int64_t n_prompt, int64_t n_tokens)
{
    const hr_sampling *p = s->sampling;
    clear_row(in, i);
    mark_filled(in, i);
    set_distribution(in, i, s, n_tokens);
    set_penalties(in, i, s);
    set_drafts(in, i, s, tokens, n_tokens);
    set_bias(in, i, s);
    set_banned(in, i, s, tokens + n_prompt, n_tokens - n_prompt);
    set_wanted(in, i, p->logprobs, p->n_logprob_token_ids);
    if (p->sampling_trace) in->trace[i] = in->greedy[i] ? 1 : 2;
    for (size_t k = 0; k < p->n_logprob_token_ids; k++)
        in->extra_ids[i * HR_SAMPLING_MAX_EXTRA + (int64_t)k] = (int32_t)p->logprob_token_ids[k];
}

void hr_sampling_inputs_set_prompt_row(hr_sampling_inputs *in, int64_t i, const hr_sampler_state *s)
{
    clear_row(in, i);
    mark_filled(in, i);
    set_wanted(in, i, s->sampling->prompt_logprobs, 0);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void fill(int32_t *slots, int32_t *n)
{
    for (int32_t i = 0; i < *n; i++) slots[i] = -1;
    *n = 0;
}

void hr_sampling_inputs_clear_tables(hr_sampling_inputs *in)
{
    fill(in->count_clear, &in->n_clear);
    fill(in->count_slots, &in->n_counts);
    fill(in->allowed_slots, &in->n_allowed);
    fill(in->grammar_slots, &in->n_grammar);
}

bool hr_sampling_inputs_changes(const hr_sampling_inputs *in)
{
    return in->n_clear || in->n_counts || in->n_allowed || in->n_grammar;
}

static bool feed_counts(hr_sampling_inputs *in, hr_sampler_state *s, const int32_t *tokens,
                        int64_t n_prompt, int64_t n_tokens)
{
    if (s->counted < 0) {
        if (in->n_clear == HR_TABLE_CLEARS) return false;
        in->count_clear[in->n_clear++] = s->counts_slot;
        /* only the repetition penalty looks at the prompt */
        s->counted = s->sampling->repetition_penalty == 1 ? n_prompt : 0;
    }
    for (; s->counted < n_tokens; s->counted++) {
        if (in->n_counts == HR_TABLE_COUNTS) return false;
        int32_t i = in->n_counts++;
        in->count_slots[i] = s->counts_slot;
        in->count_ids[i] = tokens[s->counted];
        in->count_add[i] = s->counted < n_prompt ? -1 : 1;
    }
    return true;
}

static bool feed_allowed(hr_sampling_inputs *in, hr_sampler_state *s)
{
    if (in->n_allowed == HR_TABLE_ROWS) return false;
    int64_t words = hr_sampler_words(in->options.vocab);
    uint32_t *row = in->allowed_rows + in->n_allowed * words;
    memset(row, 0, (size_t)words * sizeof *row);
    for (size_t i = 0; i < s->allowed.n; i++)
        row[s->allowed.ids[i] / 32] |= (uint32_t)1 << (s->allowed.ids[i] % 32);
    in->allowed_slots[in->n_allowed++] = s->allowed_slot;
    s->allowed_written = true;
    return true;
}

bool hr_sampling_inputs_feed(hr_sampling_inputs *in, hr_sampler_state *s, const int32_t *tokens,
                             int64_t n_prompt, int64_t n_tokens)
{
    if (s->allowed_slot && !s->allowed_written && !feed_allowed(in, s)) return false;
    return !s->counts_slot || feed_counts(in, s, tokens, n_prompt, n_tokens);
}

bool hr_sampling_inputs_allowed(hr_sampling_inputs *in, int32_t slot, const uint32_t *words)
{
    if (in->n_allowed == HR_TABLE_ROWS) return false;
    int64_t n = hr_sampler_words(in->options.vocab);
    memcpy(in->allowed_rows + in->n_allowed * n, words, (size_t)n * sizeof *words);
    in->allowed_slots[in->n_allowed++] = slot;
    return true;
}

uint32_t *hr_sampling_inputs_grammar(hr_sampling_inputs *in, int32_t slot)
{
    if (in->n_grammar == HR_TABLE_ROWS) return NULL;
    int64_t words = hr_sampler_words(in->options.vocab);
    uint32_t *row = in->grammar_rows + in->n_grammar * words;
    in->grammar_slots[in->n_grammar++] = slot;
    return memset(row, 0, (size_t)words * sizeof *row);
}

void hr_sampling_inputs_drop_grammar(hr_sampling_inputs *in)
{
    in->grammar_slots[--in->n_grammar] = -1;
}

/* ---- binding --------------------------------------------------------------------------------- */

static const void *array_at(const hr_sampling_inputs *in, hr_sampling_input input)
{
    switch (input) {
#define AT(field, program, dtype, type, columns, identity)                                         \
    case HR_INPUT_##field: return in->field;
        HR_SAMPLING_INPUTS(AT)
#undef AT
    case HR_SAMPLING_INPUT_COUNT: break;
    }
    return NULL;
}

static int64_t rows_needed(const hr_sampling_inputs *in, hr_sampling_input input, int64_t n_rows)
{
    const hr_sampling_input_info *i = &hr_sampling_input_list[input];
    int64_t most = n_rows;
    if (input == HR_INPUT_bias_ids || input == HR_INPUT_bias_values) most = in->biased;
    if (input == HR_INPUT_banned_ids) most = in->banned;
    if (input == HR_INPUT_draft_ids) most = in->drafted;
    if (input == HR_INPUT_allowed_rows) return in->n_allowed;
    if (input == HR_INPUT_grammar_rows) return in->n_grammar;
    if (i->program == HR_PROGRAM_TABLES) return array_rows(in, i);
    return most < n_rows ? most : n_rows;
}

int hr_sampling_inputs_index(const char *name)
{
    for (int k = 0; k < HR_SAMPLING_INPUT_COUNT; k++)
        if (!strcmp(hr_sampling_input_list[k].name, name)) return k;
    return -1;
}

hr_sampling_array hr_sampling_inputs_at(const hr_sampling_inputs *in, int index, int64_t n_rows)
{
    const hr_sampling_input_info *i = &hr_sampling_input_list[index];
    return (hr_sampling_array){ .data = array_at(in, (hr_sampling_input)index),
                                .rows = rows_needed(in, (hr_sampling_input)index, n_rows),
                                .row_bytes =
                                    (size_t)array_columns(in, i) * hr_dtype_size(i->dtype) };
}

bool hr_sampling_inputs_find(const hr_sampling_inputs *in, const char *name, int64_t n_rows,
                             hr_sampling_array *out)
{
    int index = hr_sampling_inputs_index(name);
    *out = (hr_sampling_array){ 0 };
    if (index >= 0) *out = hr_sampling_inputs_at(in, index, n_rows);
    return index >= 0;
}
