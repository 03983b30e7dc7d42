/* Answers kept in a file of JSON lines, so that a run that was broken off goes on where it was.
 *
 * The first line tells what was asked of whom; a file that tells something else is refused, since
 * its answers are not this run's. A last line without its end is what a kill leaves: it is cut off
 * and its question is asked again. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "eval/eval_int.h"

#define MAX_FILE_BYTES ((size_t)1 << 30)

static hr_status write_all(const hr_eval_answers *a, const hr_buf *line)
{
    HR_TRY(hr_buf_status(line));
    for (size_t at = 0; at < line->n;) {
        ssize_t n = write(a->fd, line->p + at, line->n - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return hr_fail(HR_UNAVAILABLE, "%s: %s", a->path, strerror(errno));
        at += (size_t)n;
    }
    return HR_OK;
}

static bool to_bool(const hr_json *v)
{
    return v && v->type == HR_JSON_TRUE;
}

static hr_status read_line(hr_eval_answers *a, hr_str line, size_t number)
{
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    int64_t question = -1, tokens = 0;
    double logprob = 0;
    hr_status st = hr_json_parse(line, NULL, &arena, &v);
    if (!st) st = hr_json_to_i64(hr_json_get(v, "question"), "question", &question);
    if (!st) st = hr_json_to_i64(hr_json_get(v, "tokens"), "tokens", &tokens);
    if (!st) st = hr_json_to_f64(hr_json_get(v, "logprob"), "logprob", &logprob);
    if (!st && (question < 0 || (uint64_t)question >= a->n))
        st = hr_fail(HR_OUT_OF_RANGE, "there is no question %lld", (long long)question);
    if (!st)
        a->at[question] = (hr_eval_answer){ .given = true,
                                            .strict = to_bool(hr_json_get(v, "strict_match")),
                                            .flexible = to_bool(hr_json_get(v, "flexible_match")),
                                            .logprob = logprob,
                                            .tokens = tokens };
    hr_arena_deinit(&arena);
    return st ? hr_fail_prefix(st, "%s: line %zu", a->path, number) : HR_OK;
}

/* All whole lines; *whole is where they end. */
static hr_status read_all(hr_eval_answers *a, hr_str rest, hr_str settings, size_t *whole)
{
    hr_str line;
    *whole = 0;
    while (rest.n && rest.p[rest.n - 1] != '\n') rest.n--;
    for (size_t number = 1; rest.n && hr_str_next(&rest, '\n', &line) && line.n; number++) {
        if (number == 1 && !hr_str_eq(line, settings))
            return hr_fail(
                HR_FAILED_PRECONDITION,
                "%s holds answers of another run (%.*s): give another file, or remove it", a->path,
                HR_STR_ARG(line));
        if (number > 1) HR_TRY(read_line(a, line, number));
        *whole += line.n + 1;
    }
    return HR_OK;
}

static hr_status begin(hr_eval_answers *a, hr_str settings)
{
    hr_buf line = { 0 };
    hr_buf_add_str(&line, settings);
    hr_buf_add_byte(&line, '\n');
    hr_status st = write_all(a, &line);
    hr_buf_deinit(&line);
    return st;
}

static hr_status open_file(hr_eval_answers *a, hr_str settings)
{
    hr_buf old = { 0 };
    size_t whole = 0;
    hr_status st = hr_path_exists(a->path) ? hr_file_slurp(a->path, MAX_FILE_BYTES, &old) : HR_OK;
    if (!st) st = read_all(a, hr_buf_str(&old), settings, &whole);
    hr_buf_deinit(&old);
    if (st) return st;
    a->fd = open(a->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (a->fd < 0 || ftruncate(a->fd, (off_t)whole))
        return hr_fail(HR_UNAVAILABLE, "%s: %s", a->path, strerror(errno));
    return whole ? HR_OK : begin(a, settings);
}

hr_status hr_eval_answers_open(const char *path, hr_str settings, size_t n, hr_eval_answers *out)
{
    *out = (hr_eval_answers){ .n = n, .fd = -1, .path = path };
    out->at = hr_alloc_array0(n + 1, sizeof *out->at);
    if (!out->at) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu answers", n);
    return path ? open_file(out, settings) : HR_OK;
}

hr_status hr_eval_answers_add(hr_eval_answers *a, size_t question, const hr_eval_answer *v,
                              hr_str answer)
{
    a->at[question] = *v;
    a->at[question].given = true;
    if (a->fd < 0) return HR_OK;
    hr_buf line = { 0 };
    hr_json_writer w = { .out = &line };
    hr_json_begin_object(&w);
    hr_json_add_i64(&w, "question", (int64_t)question);
    hr_json_key(&w, HR_STR("answer"));
    hr_json_str(&w, answer);
    hr_json_key(&w, HR_STR("strict_match"));
    hr_json_bool(&w, v->strict);
    hr_json_key(&w, HR_STR("flexible_match"));
    hr_json_bool(&w, v->flexible);
    hr_json_add_f64(&w, "logprob", v->logprob);
    hr_json_add_i64(&w, "tokens", v->tokens);
    hr_json_end_object(&w);
    hr_buf_add_byte(&line, '\n');
    hr_status st = write_all(a, &line);
    hr_buf_deinit(&line);
    return st;
}

void hr_eval_answers_close(hr_eval_answers *a)
{
    if (a->at && a->fd >= 0) close(a->fd);
    hr_free(a->at);
    *a = (hr_eval_answers){ .fd = -1 };
}
