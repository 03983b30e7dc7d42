/* eval gsm8k: grade-school arithmetic, solved step by step.
 *
 * The prompt is lm-evaluation-harness's: solved examples, then the question, and the answer is
 * whatever follows up to the next "Question:". With loglikelihood the published answer is scored
 * instead, which even a weak model can do more or less well. */
#include <stdio.h>

#include "base/digest.h"
#include "base/sync.h"
#include "eval/eval_int.h"

#define MAX_FILE_BYTES ((size_t)64 << 20)

static const char *const stops[] = { "Question:", "</s>", "<|im_end|>" };

void hr_eval_gsm8k_init(hr_eval_gsm8k_options *o)
{
    *o = (hr_eval_gsm8k_options){ .num_shots = 8, .max_tokens = 256 };
}

typedef struct problem {
    hr_str question, answer;
} problem;

typedef struct problems {
    problem *at; /* in the arena */
    size_t n;
    char digest[HR_DIGEST_TEXT]; /* of the file */
} problems;

typedef struct exam {
    const hr_eval_gsm8k_options *o;
    hr_eval_source source;
    problems tests, shots;
    hr_eval_answers answers;
    hr_buf preface, settings;
    hr_eval_ask *asks; /* owned [n] */
    size_t *question;  /* owned [n] of each ask */
    size_t *from;      /* owned [n] place in a scored prompt where the answer begins */
    double *logprob;   /* owned [n] so far */
    size_t n;
    hr_arena arena; /* files, prompts and their ids */
} exam;

/* ---- files ----------------------------------------------------------------------------------- */

static hr_status read_problem(hr_arena *arena, hr_str line, problem *out)
{
    const hr_json *v;
    HR_TRY(hr_json_parse(line, NULL, arena, &v));
    HR_TRY(hr_json_to_str(hr_json_get(v, "question"), "question", &out->question));
    return hr_json_to_str(hr_json_get(v, "answer"), "answer", &out->answer);
}

static hr_status read_lines(hr_arena *arena, hr_str text, size_t most, problems *out)
{
    hr_str rest = text, line;
    size_t lines = 1, number = 0;
    for (size_t i = 0; i < text.n; i++) lines += text.p[i] == '\n';
    out->at = hr_arena_array(arena, lines, sizeof *out->at);
    if (!out->at) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu lines", lines);
    while (out->n < most && hr_str_next(&rest, '\n', &line)) {
        number++;
        if (!hr_str_trim(line).n) continue;
        hr_status st = read_problem(arena, line, &out->at[out->n]);
        if (st) return hr_fail_prefix(st, "line %zu", number);
        out->n++;
    }
    return HR_OK;
}

/* The first `most` problems of a file. */
static hr_status read_file(exam *e, const char *path, size_t most, problems *out)
{
    hr_buf file = { 0 };
    HR_TRY(hr_file_slurp(path, MAX_FILE_BYTES, &file));
    char *copy = hr_arena_copy(&e->arena, file.n ? file.p : "", file.n);
    hr_str text = { copy, file.n };
    hr_buf_deinit(&file);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "%s", path);
    hr_status st = read_lines(&e->arena, text, most, out);
    if (st) return hr_fail_prefix(st, "%s", path);
    hr_digest digest;
    HR_TRY(hr_digest_of(&text, 1, &digest));
    hr_digest_text(&digest, out->digest);
    return HR_OK;
}

static hr_status read_data(exam *e)
{
    const hr_eval_gsm8k_options *o = e->o;
    size_t shots = (size_t)o->num_shots;
    HR_TRY(read_file(e, o->data, o->limit ? (size_t)o->limit : SIZE_MAX, &e->tests));
    if (!e->tests.n) return hr_fail(HR_INVALID_ARGUMENT, "%s holds no question", o->data);
    if (shots) HR_TRY(read_file(e, o->shots, shots, &e->shots));
    if (e->shots.n < shots)
        return hr_fail(HR_INVALID_ARGUMENT, "%s holds %zu examples, not --num-fewshot %zu",
                       o->shots, e->shots.n, shots);
    return HR_OK;
}

static hr_status check(const hr_eval_gsm8k_options *o)
{
    if (!o->data)
        return hr_fail(HR_INVALID_ARGUMENT, "no questions: give --data FILE, GSM8K's test.jsonl");
    if (o->num_shots < 0 || o->num_shots > 1000)
        return hr_fail(HR_INVALID_ARGUMENT, "--num-fewshot must be 0 to 1000");
    if (o->num_shots && !o->shots)
        return hr_fail(HR_INVALID_ARGUMENT, "no examples: give --fewshot FILE, GSM8K's "
                                            "train.jsonl, or --num-fewshot 0");
    if (o->limit < 0) return hr_fail(HR_INVALID_ARGUMENT, "--limit must not be negative");
    if (o->max_tokens < 1 || o->max_tokens > 1 << 20)
        return hr_fail(HR_INVALID_ARGUMENT, "--max-tokens must be 1 to %d", 1 << 20);
    return HR_OK;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static void add_question(hr_buf *out, hr_str question)
{
    hr_buf_add_c(out, "Question: ");
    hr_buf_add_str(out, question);
    hr_buf_add_c(out, "\nAnswer:");
}

static hr_status make_preface(exam *e)
{
    for (size_t i = 0; i < e->shots.n; i++) {
        add_question(&e->preface, e->shots.at[i].question);
        hr_buf_add_byte(&e->preface, ' ');
        hr_buf_add_str(&e->preface, e->shots.at[i].answer);
        hr_buf_add_c(&e->preface, "\n\n");
    }
    return hr_buf_status(&e->preface);
}

static hr_status keep_ids(exam *e, hr_str text, const int64_t **out, size_t *n)
{
    int64_t *ids;
    HR_TRY(hr_eval_tokenize(&e->source, text, &ids, n));
    *out = (const int64_t *)hr_arena_copy(&e->arena, (const char *)ids, *n * sizeof *ids);
    hr_free(ids);
    return *out ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "%zu tokens", *n);
}

/* Scored: the tokens of question and answer that come after as many as the question alone has. */
static hr_status make_scored(exam *e, hr_buf *prompt, hr_str answer, size_t i)
{
    hr_eval_ask *a = &e->asks[i];
    const int64_t *unused;
    HR_TRY(keep_ids(e, hr_buf_str(prompt), &unused, &e->from[i]));
    hr_buf_add_byte(prompt, ' ');
    hr_buf_add_str(prompt, answer);
    HR_TRY(hr_buf_status(prompt));
    HR_TRY(keep_ids(e, hr_buf_str(prompt), &a->ids, &a->n_ids));
    a->top = 0;
    return HR_OK;
}

static hr_status make_asked(exam *e, const hr_buf *prompt, size_t i)
{
    char *copy = hr_arena_copy(&e->arena, prompt->p, prompt->n);
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "prompts");
    e->asks[i] = (hr_eval_ask){ .text = { copy, prompt->n },
                                .top = -1,
                                .max_tokens = e->o->max_tokens,
                                .stop = stops,
                                .n_stop = sizeof stops / sizeof *stops };
    return HR_OK;
}

static hr_status make_ask(exam *e, size_t question)
{
    hr_buf prompt = { 0 };
    size_t i = e->n;
    e->question[i] = question;
    hr_buf_add_str(&prompt, hr_buf_str(&e->preface));
    add_question(&prompt, e->tests.at[question].question);
    hr_status st = hr_buf_status(&prompt);
    if (!st)
        st = e->o->loglikelihood ? make_scored(e, &prompt, e->tests.at[question].answer, i)
                                 : make_asked(e, &prompt, i);
    hr_buf_deinit(&prompt);
    if (!st) e->n++;
    return st;
}

/* Of every question that has no answer yet. */
static hr_status make_asks(exam *e)
{
    size_t n = e->tests.n;
    e->asks = hr_alloc_array0(n, sizeof *e->asks);
    e->question = hr_alloc_array0(n, sizeof *e->question);
    e->from = hr_alloc_array0(n, sizeof *e->from);
    e->logprob = hr_alloc_array0(n, sizeof *e->logprob);
    if (!e->asks || !e->question || !e->from || !e->logprob)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu questions", n);
    HR_TRY(make_preface(e));
    for (size_t i = 0; i < n; i++)
        if (!e->answers.at[i].given) HR_TRY(make_ask(e, i));
    return HR_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* One line: whatever would make answers differ. */
static hr_status make_settings(exam *e)
{
    hr_json_writer w = { .out = &e->settings };
    hr_json_begin_object(&w);
    hr_json_add_str(&w, "task", e->o->loglikelihood ? "gsm8k_loglikelihood" : "gsm8k");
    hr_json_add_i64(&w, "num_fewshot", e->o->num_shots);
    hr_json_add_i64(&w, "max_tokens", e->o->max_tokens);
    hr_json_add_str(&w, "data_sha256", e->tests.digest);
    hr_json_add_str(&w, "fewshot_sha256", e->shots.digest);
    hr_eval_put_source(&e->source, &w);
    hr_json_end_object(&w);
    return hr_buf_status(&e->settings);
}

static hr_status on_answer(void *context, size_t ask, hr_str text, int64_t tokens)
{
    exam *e = context;
    size_t question = e->question[ask];
    hr_str right = hr_eval_strict_number(e->tests.at[question].answer);
    hr_eval_answer a = { .tokens = tokens };
    a.strict = hr_eval_same_number(hr_eval_strict_number(text), right);
    a.flexible = hr_eval_same_number(hr_eval_flexible_number(text), right);
    return hr_eval_answers_add(&e->answers, question, &a, text);
}

static hr_status on_scores(void *context, size_t ask, size_t first, const headrace_token *tokens,
                           size_t n)
{
    exam *e = context;
    size_t end = e->asks[ask].n_ids;
    for (size_t i = 0; i < n; i++)
        if (first + i >= e->from[ask]) e->logprob[ask] += tokens[i].chosen.logprob;
    if (first + n < end) return HR_OK;
    hr_eval_answer a = { .logprob = e->logprob[ask], .tokens = (int64_t)(end - e->from[ask]) };
    return hr_eval_answers_add(&e->answers, e->question[ask], &a, (hr_str){ 0 });
}

/* ---- report ---------------------------------------------------------------------------------- */

static void put_mean(hr_json_writer *w, const char *key, const hr_eval_mean *m)
{
    char name[64];
    hr_json_add_f64(w, key, m->mean);
    snprintf(name, sizeof name, "%s_stderr", key);
    hr_json_add_f64(w, name, hr_eval_mean_error(m));
}

static void report(const exam *e, double seconds, hr_buf *text, hr_buf *json)
{
    hr_eval_mean strict = { 0 }, flexible = { 0 }, logprob = { 0 }, token = { 0 };
    int64_t tokens = 0;
    double sum = 0;
    for (size_t i = 0; i < e->answers.n; i++) {
        const hr_eval_answer *a = &e->answers.at[i];
        hr_eval_mean_add(&strict, a->strict);
        hr_eval_mean_add(&flexible, a->flexible);
        hr_eval_mean_add(&logprob, a->logprob);
        hr_eval_mean_add(&token, a->tokens ? a->logprob / (double)a->tokens : 0);
        tokens += a->tokens;
        sum += a->logprob;
    }
    hr_json_writer w = { .out = json };
    hr_json_begin_object(&w);
    hr_json_add_i64(&w, "questions", (int64_t)e->answers.n);
    hr_json_add_i64(&w, "asked_now", (int64_t)e->n);
    hr_json_add_i64(&w, "num_fewshot", e->o->num_shots);
    if (e->o->loglikelihood) {
        put_mean(&w, "loglikelihood", &logprob);
        hr_json_add_f64(&w, "loglikelihood_per_token", tokens ? sum / (double)tokens : 0);
        hr_buf_printf(text,
                      "Log-likelihood of an answer:  %.4f ± %.4f\nOf a token of them:           "
                      "%.6f\n",
                      logprob.mean, hr_eval_mean_error(&logprob),
                      tokens ? sum / (double)tokens : 0);
    } else {
        put_mean(&w, "strict_match", &strict);
        put_mean(&w, "flexible_match", &flexible);
        hr_buf_printf(text, "Strict match:    %.4f ± %.4f\nFlexible match:  %.4f ± %.4f\n",
                      strict.mean, hr_eval_mean_error(&strict), flexible.mean,
                      hr_eval_mean_error(&flexible));
    }
    hr_buf_printf(text, "Questions:       %zu, %zu asked now, %lld-shot, %.1f s\n", e->answers.n,
                  e->n, (long long)e->o->num_shots, seconds);
    hr_json_add_i64(&w, "tokens", tokens);
    hr_json_add_f64(&w, "seconds", seconds);
    hr_eval_put_source(&e->source, &w);
    hr_json_end_object(&w);
}

static hr_status ask_all(exam *e)
{
    HR_TRY(read_data(e));
    HR_TRY(make_settings(e));
    HR_TRY(hr_eval_answers_open(e->o->answers, hr_buf_str(&e->settings), e->tests.n, &e->answers));
    HR_TRY(make_asks(e));
    hr_eval_listener to = { .on_scores = on_scores, .on_answer = on_answer, .context = e };
    return hr_eval_run(&e->source, e->asks, e->n, &to);
}

static void exam_deinit(exam *e)
{
    hr_eval_close(&e->source);
    hr_eval_answers_close(&e->answers);
    hr_buf_deinit(&e->preface);
    hr_buf_deinit(&e->settings);
    hr_free(e->asks);
    hr_free(e->question);
    hr_free(e->from);
    hr_free(e->logprob);
    hr_arena_deinit(&e->arena);
}

hr_status hr_eval_gsm8k(const hr_eval_target *target, const hr_eval_gsm8k_options *o, hr_buf *text,
                        hr_buf *json)
{
    HR_TRY(check(o));
    exam e = { .o = o, .answers = { .fd = -1 } };
    hr_status st = hr_eval_open(target, &e.source);
    if (!st) st = ask_all(&e);
    if (!st) report(&e, hr_now_s() - e.source.started, text, json);
    exam_deinit(&e);
    if (!st) st = hr_buf_status(text);
    return st ? st : hr_buf_status(json);
}
