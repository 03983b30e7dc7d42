/* Inside the eval room: one way to ask, whoever answers. */
#ifndef HEADRACE_EVAL_EVAL_INT_H
#define HEADRACE_EVAL_EVAL_INT_H

#include "eval/eval.h"

/* ---- sources: source.c, source_engine.c, source_server.c ------------------------------------- */

/* What is asked of a prompt: log-probabilities of its tokens, or an answer. */
typedef struct hr_eval_ask {
    hr_str text; /* a prompt as text, or: */
    const int64_t *ids;
    size_t n_ids;
    int top; /* ≥ 0: score the prompt and tell so many of the likeliest at each place; -1: answer */
    int64_t max_tokens; /* of an answer */
    const char *const *stop;
    size_t n_stop;
} hr_eval_ask;

/* Greedy, raw log-probabilities. Pointers hold during the call. */
typedef struct hr_eval_listener {
    /* Places first … first + n - 1 of a scored prompt, in order, perhaps in several calls. Place 0
     * has no log-probability. NULL where nothing is scored. */
    hr_status (*on_scores)(void *context, size_t ask, size_t first, const headrace_token *tokens,
                           size_t n);
    /* A whole answer. NULL where nothing is answered. */
    hr_status (*on_answer)(void *context, size_t ask, hr_str text, int64_t tokens);
    void *context;
} hr_eval_listener;

typedef struct hr_eval_source hr_eval_source;
struct hr_eval_source {
    const hr_eval_target *target;
    hr_buf name;           /* the model's, terminated */
    hr_buf identity;       /* terminated: SHA-256 of the checkpoint, or the server's URL */
    hr_buf numerics;       /* JSON; n 0 = not told */
    int64_t max_model_len; /* 0 = not told */
    int64_t vocab_size;    /* 0 = not told */
    headrace_engine *engine;
    hr_http *http;
    double started; /* hr_now_s of the run at hand */
    hr_status (*tokenize)(hr_eval_source *s, hr_str text, int64_t **ids, size_t *n);
    hr_status (*run)(hr_eval_source *s, const hr_eval_ask *asks, size_t n,
                     const hr_eval_listener *to);
};

HR_MUST_USE hr_status hr_eval_open(const hr_eval_target *t, hr_eval_source *out);
void hr_eval_close(hr_eval_source *s); /* also after a failed open */
/* Ids of a text with what the tokenizer adds around it; free with hr_free. */
HR_MUST_USE hr_status hr_eval_tokenize(hr_eval_source *s, hr_str text, int64_t **ids, size_t *n);
/* Asks all, waits for all; the first that fails ends it. */
HR_MUST_USE hr_status hr_eval_run(hr_eval_source *s, const hr_eval_ask *asks, size_t n,
                                  const hr_eval_listener *to);
void hr_eval_tell(const hr_eval_source *s, size_t done, size_t total, int64_t output_tokens);
/* "model", "identity", "numerics" of an open object. */
void hr_eval_put_source(const hr_eval_source *s, hr_json_writer *w);

HR_MUST_USE hr_status hr_eval_open_engine(hr_eval_source *s);
HR_MUST_USE hr_status hr_eval_open_server(hr_eval_source *s);

/* ---- windows.c: a text, cut and scored ------------------------------------------------------- */

typedef struct hr_eval_windows {
    int64_t *ids; /* owned [n_ids] the whole text */
    size_t n_ids;
    hr_eval_ask *asks; /* owned [n] */
    size_t *first;     /* owned [n] place in a window from which its scores count */
    size_t n;
    size_t context, stride;
} hr_eval_windows;

HR_MUST_USE hr_status hr_eval_windows_make(hr_eval_source *s, const hr_eval_text_options *o,
                                           int top, hr_eval_windows *out);
/* Place in the text of a window's place. */
size_t hr_eval_windows_place(const hr_eval_windows *w, size_t window, size_t place);
void hr_eval_windows_deinit(hr_eval_windows *w);

/* ---- stats.c --------------------------------------------------------------------------------- */

/* Sums of a series, in one pass and in the order of arrival. */
typedef struct hr_eval_mean {
    size_t n;
    double mean, squares; /* squares: sum of (v - mean)² */
} hr_eval_mean;

void hr_eval_mean_add(hr_eval_mean *m, double v);
/* Sample standard deviation over √n; 0 for fewer than two values. */
double hr_eval_mean_error(const hr_eval_mean *m);

/* ---- gsm8k_match.c: what an answer says ------------------------------------------------------ */

/* The number that an answer comes to, as lm-evaluation-harness's filters take it: after the first
 * "#### " (strict), or the last number there is (flexible). n 0 = none. */
hr_str hr_eval_strict_number(hr_str answer);
hr_str hr_eval_flexible_number(hr_str answer);
/* Equal but for commas, dollars and a final full stop. */
bool hr_eval_same_number(hr_str a, hr_str b);

/* ---- gsm8k_answers.c: answers kept ----------------------------------------------------------- */

typedef struct hr_eval_answer {
    bool given;
    bool strict, flexible; /* right; both false with loglikelihood */
    double logprob;        /* of the published answer, with loglikelihood */
    int64_t tokens;
} hr_eval_answer;

typedef struct hr_eval_answers {
    hr_eval_answer *at; /* owned [n] by question */
    size_t n;
    int fd; /* -1 = not kept */
    const char *path;
} hr_eval_answers;

/* `settings`: a JSON object on one line, the file's first: a file of other settings is refused. A
 * last line that was broken off is dropped. path NULL = answers are not kept. */
HR_MUST_USE hr_status hr_eval_answers_open(const char *path, hr_str settings, size_t n,
                                           hr_eval_answers *out);
/* `answer`: the text, n 0 with loglikelihood. */
HR_MUST_USE hr_status hr_eval_answers_add(hr_eval_answers *a, size_t question,
                                          const hr_eval_answer *v, hr_str answer);
void hr_eval_answers_close(hr_eval_answers *a);

#endif
