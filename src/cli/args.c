/* Parsing the command line from the table in flags.def.
 *
 * Main thread. The clever idea is to have one: a flag is a line that names the field it sets, so
 * parsing, help and "did you mean" cannot disagree. */
#include "cli/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

#define TARGET_OPTIONS  headrace_options
#define TARGET_SAMPLING headrace_sampling
#define TARGET_SERVER   hr_server_options
#define TARGET_BENCH    hr_cli_bench
#define TARGET_EVAL     hr_cli_eval
#define TARGET_COMMAND  hr_cli_command

static const hr_cli_flag flags[] = {
#define HR_FLAG(name, value, kind, target, field, commands, help)                                  \
    { name,     value, HR_FLAG_##kind, HR_ARGS_##target, offsetof(TARGET_##target, field),         \
      commands, help },
#include "cli/flags.def"
#undef HR_FLAG
};
#define N_FLAGS (sizeof flags / sizeof *flags)

/* ---- values ---------------------------------------------------------------------------------- */

static hr_status add_to_list(hr_cli_list *l, const void *item, size_t size)
{
    HR_TRY(hr_grow(&l->at, &l->capacity, l->n + 1, size));
    memcpy((char *)l->at + l->n++ * size, item, size);
    return HR_OK;
}

/* 4096, 16.0, 1k = 1000, 1K = 1024, 1m, 1M, 1g, 1G. */
static hr_status parse_i64(const char *text, int64_t *out)
{
    hr_str s = hr_str_c(text);
    int64_t unit = 1;
    const char *letters = "kKmMgG";
    const int64_t units[] = { 1000, 1024, 1000000, 1 << 20, 1000000000, 1 << 30 };
    const char *letter = s.n > 1 ? strchr(letters, s.p[s.n - 1]) : NULL;
    if (letter) {
        unit = units[letter - letters];
        s.n--;
    }
    hr_status st = hr_str_to_i64(s, out);
    double v;
    if (st == HR_INVALID_ARGUMENT && !hr_str_to_f64(s, &v)) {
        if (!(v >= -0x1p63 && v < 0x1p63))
            return hr_fail(HR_OUT_OF_RANGE, "'%s' is out of range", text);
        *out = (int64_t)v;
        st = v == (double)*out ? HR_OK
                               : hr_fail(HR_INVALID_ARGUMENT, "'%s' is not a whole number", text);
    }
    if (!st && __builtin_mul_overflow(*out, unit, out))
        st = hr_fail(HR_OUT_OF_RANGE, "'%s' is out of range", text);
    return st;
}

static hr_status parse_int(const char *text, int *out)
{
    int64_t v;
    HR_TRY(parse_i64(text, &v));
    if (v < INT32_MIN || v > INT32_MAX)
        return hr_fail(HR_OUT_OF_RANGE, "'%s' is out of range", text);
    *out = (int)v;
    return HR_OK;
}

/* Calls `add` for each comma-separated part. */
static hr_status each_part(const char *text, hr_status (*add)(void *, hr_str), void *to)
{
    hr_str rest = hr_str_c(text);
    for (hr_str part; hr_str_next(&rest, ',', &part);) HR_TRY(add(to, hr_str_trim(part)));
    return HR_OK;
}

static hr_status add_id(void *list, hr_str part)
{
    int64_t id;
    HR_TRY(hr_str_to_i64(part, &id));
    return add_to_list(list, &id, sizeof id);
}

/* `to` is the command's bias_ids; bias_values grow beside it. */
static hr_status add_bias(void *to, hr_str part)
{
    hr_cli_command *c = to;
    size_t colon = hr_str_find(part, HR_STR(":"), 0);
    if (colon == SIZE_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "'%.*s' is not ID:VALUE", HR_STR_ARG(part));
    int64_t id;
    double value;
    HR_TRY(hr_str_to_i64(hr_str_slice(part, 0, colon), &id));
    HR_TRY(hr_str_to_f64(hr_str_slice(part, colon + 1, part.n), &value));
    HR_TRY(add_to_list(&c->bias_ids, &id, sizeof id));
    return add_to_list(&c->bias_values, &value, sizeof value);
}

hr_status hr_args_slurp(hr_arena *a, const char *path, hr_str *out)
{
    hr_buf text = { .limit = (size_t)64 << 20 };
    hr_status st = HR_OK;
    if (strcmp(path, "-")) st = hr_file_slurp(path, text.limit, &text);
    else
        for (char *to; !st && (to = hr_buf_reserve(&text, 1 << 16));) {
            ssize_t n = read(STDIN_FILENO, to, 1 << 16);
            if (n <= 0) break;
            text.n += (size_t)n;
        }
    if (!st) st = hr_buf_status(&text);
    char *copy = st ? NULL : hr_arena_copy(a, text.p ? text.p : "", text.n);
    if (!st && !copy) st = hr_fail(HR_RESOURCE_EXHAUSTED, "%s", path);
    *out = (hr_str){ copy, text.n };
    hr_buf_deinit(&text);
    return st;
}

static hr_status join(hr_args *a, const char **field, const char *value)
{
    hr_buf text = { 0 };
    if (*field) hr_buf_printf(&text, "%s,", *field);
    hr_buf_add_c(&text, value);
    const char *c = hr_buf_c(&text);
    *field = hr_arena_copy(&a->arena, c, strlen(c));
    hr_status st = hr_buf_status(&text);
    hr_buf_deinit(&text);
    return *field ? st : hr_fail(HR_RESOURCE_EXHAUSTED, "'%s'", value);
}

static hr_status set_field(hr_args *a, const hr_cli_flag *f, const char *value, void *base)
{
    void *field = (char *)base + f->offset;
    hr_str text;
    switch (f->kind) {
    case HR_FLAG_ON: *(int *)field = 1; return HR_OK;
    case HR_FLAG_OFF: *(int *)field = 0; return HR_OK;
    case HR_FLAG_TEXT: *(const char **)field = value; return HR_OK;
    case HR_FLAG_FILE:
        HR_TRY(hr_args_slurp(&a->arena, value, &text));
        *(const char **)field = text.p;
        return HR_OK;
    case HR_FLAG_JOINED: return join(a, field, value);
    case HR_FLAG_INT: return parse_int(value, field);
    case HR_FLAG_I64: return parse_i64(value, field);
    case HR_FLAG_LENGTH:
        if (strcmp(value, "auto")) return parse_i64(value, field);
        *(int64_t *)field = -1;
        return HR_OK;
    case HR_FLAG_F64: return hr_str_to_f64(hr_str_c(value), field);
    case HR_FLAG_TEXTS:
    case HR_FLAG_WORDS: return add_to_list(field, &value, sizeof value);
    case HR_FLAG_IDS: return each_part(value, add_id, field);
    case HR_FLAG_BIAS: return each_part(value, add_bias, base);
    }
    return HR_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static const hr_cli_flag *find_flag(const char *name, size_t n, unsigned command)
{
    for (size_t i = 0; i < N_FLAGS; i++)
        if (flags[i].commands & command && strlen(flags[i].name) == n &&
            !memcmp(flags[i].name, name, n))
            return &flags[i];
    return NULL;
}

static hr_status unknown_flag(const char *name, unsigned command)
{
    const char *names[N_FLAGS];
    size_t n = 0;
    for (size_t i = 0; i < N_FLAGS; i++)
        if (flags[i].commands & command) names[n++] = flags[i].name;
    const char *nearest = hr_str_nearest(name, names, n);
    return hr_fail(HR_INVALID_ARGUMENT, "unknown flag %s%s%s%s; --help lists them all", name,
                   nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

static void *target_of(hr_args *a, hr_cli_flag_target t)
{
    switch (t) {
    case HR_ARGS_OPTIONS: return &a->options;
    case HR_ARGS_SERVER: return &a->server;
    case HR_ARGS_BENCH: return &a->bench;
    case HR_ARGS_EVAL: return &a->eval;
    case HR_ARGS_COMMAND: return &a->own;
    case HR_ARGS_SAMPLING: break; /* needs the model's defaults first */
    }
    return NULL;
}

static hr_status apply(hr_args *a, const hr_cli_flag *f, const char *value)
{
    hr_status st = HR_OK;
    if (f->target == HR_ARGS_SAMPLING) { /* checked now, applied later */
        headrace_sampling trial;
        headrace_sampling_init(NULL, &trial);
        st = set_field(a, f, value, &trial);
        if (!st)
            st = hr_grow((void **)&a->typed, &a->typed_capacity, a->n_typed + 1, sizeof *a->typed);
        if (!st) a->typed[a->n_typed++] = (struct hr_typed){ f, value };
    } else st = set_field(a, f, value, target_of(a, f->target));
    return st ? hr_fail_prefix(st, "%s", f->name) : HR_OK;
}

/* One argument and perhaps the one after it; *i moves past what was taken. */
static hr_status take(hr_args *a, int argc, char **argv, int *i)
{
    char *arg = argv[(*i)++];
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
        a->help = true;
        return HR_OK;
    }
    if (arg[0] != '-' || !arg[1]) {
        if (a->command == HR_CLI_REPLAY && !a->own.replay_file) {
            a->own.replay_file = arg;
            return HR_OK;
        }
        if (a->command == HR_CLI_QUANTIZE && a->model && !a->own.out) {
            a->own.out = arg;
            return HR_OK;
        }
        if (a->model) return hr_fail(HR_INVALID_ARGUMENT, "'%s': one model is enough", arg);
        a->model = arg;
        return HR_OK;
    }
    const char *equals = strchr(arg, '=');
    size_t length = equals ? (size_t)(equals - arg) : strlen(arg);
    const hr_cli_flag *f = find_flag(arg, length, a->command);
    if (!f) {
        if (equals) arg[length] = '\0';
        return unknown_flag(arg, a->command);
    }
    const char *value = equals ? equals + 1 : NULL;
    if (!f->value && value) return hr_fail(HR_INVALID_ARGUMENT, "%s takes no value", f->name);
    if (f->value && !value) {
        if (*i == argc) return hr_fail(HR_INVALID_ARGUMENT, "%s needs a value", f->name);
        value = argv[(*i)++];
    }
    HR_TRY(apply(a, f, value));
    while (f->kind == HR_FLAG_WORDS && !equals && *i < argc && argv[*i][0] != '-')
        HR_TRY(apply(a, f, argv[(*i)++]));
    return HR_OK;
}

hr_status hr_args_parse(int argc, char **argv, unsigned command, const char *program, hr_args *out)
{
    *out = (hr_args){ .program = program, .command = command };
    headrace_options_init(&out->options);
    hr_server_options_init(&out->server);
    hr_bench_serve_init(&out->bench.serve);
    hr_bench_engine_init(&out->bench.engine);
    out->bench.sampler.num_runs = 40;
    hr_bench_kernels_init(&out->bench.kernels);
    hr_eval_gsm8k_init(&out->eval.gsm8k);
    out->eval.top = 256;
    out->bench.encode.num_runs = 5;
    const char *check = getenv("HEADRACE_CHECK_RECOMPILATION");
    if (!check) check = getenv("VLLM_XLA_CHECK_RECOMPILATION");
    out->options.check_recompilation = check && !strcmp(check, "1");
    out->own.log_level = getenv("HEADRACE_LOG_LEVEL");
    for (int i = 0; i < argc;) HR_TRY(take(out, argc, argv, &i));
    out->options.logits_processors = out->own.logits_processors.at;
    out->options.n_logits_processors = out->own.logits_processors.n;
    return HR_OK;
}

void hr_args_deinit(hr_args *a)
{
    hr_cli_command *c = &a->own;
    hr_cli_list *lists[] = { &c->prompts,
                             &c->prompt_ids,
                             &c->stop,
                             &c->bad_words,
                             &c->stop_token_ids,
                             &c->allowed_token_ids,
                             &c->logprob_token_ids,
                             &c->bias_ids,
                             &c->bias_values,
                             &c->api_keys,
                             &c->served_names,
                             &c->allowed_origins,
                             &a->bench.headers,
                             &a->bench.goodput,
                             &a->bench.hidden_sizes,
                             &a->bench.vocab_sizes,
                             &a->bench.batch_sizes,
                             &c->choice,
                             &c->logits_processors,
                             &c->ignore,
                             &a->bench.rows,
                             &a->bench.contexts };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) hr_free(lists[i]->at);
    hr_free(a->typed);
    hr_arena_deinit(&a->arena);
}

hr_status hr_args_sampling(hr_args *a, headrace_sampling *s)
{
    for (size_t i = 0; i < a->n_typed; i++) {
        hr_status st = set_field(a, a->typed[i].flag, a->typed[i].value, s);
        if (st) return hr_fail_prefix(st, "%s", a->typed[i].flag->name);
    }
    const hr_cli_command *c = &a->own;
    s->stop = c->stop.at;
    s->n_stop = c->stop.n;
    s->bad_words = c->bad_words.at;
    s->n_bad_words = c->bad_words.n;
    s->choice = c->choice.at;
    s->n_choice = c->choice.n;
    s->stop_token_ids = c->stop_token_ids.at;
    s->n_stop_token_ids = c->stop_token_ids.n;
    s->allowed_token_ids = c->allowed_token_ids.at;
    s->n_allowed_token_ids = c->allowed_token_ids.n;
    s->logprob_token_ids = c->logprob_token_ids.at;
    s->n_logprob_token_ids = c->logprob_token_ids.n;
    s->logit_bias_ids = c->bias_ids.at;
    s->logit_bias_values = c->bias_values.at;
    s->n_logit_bias = c->bias_ids.n;
    return HR_OK;
}

void hr_args_each(unsigned command, void (*tell)(void *to, const hr_cli_flag *f), void *to)
{
    for (size_t i = 0; i < N_FLAGS; i++)
        if (flags[i].commands & command) tell(to, &flags[i]);
}

static void add_flag_help(void *to, const hr_cli_flag *f)
{
    int wide = (int)strlen(f->name) + (f->value ? (int)hr_utf8_length(hr_str_c(f->value)) + 1 : 0);
    hr_buf_printf(to, "  %s%s%s%*s%s\n", f->name, f->value ? " " : "", f->value ? f->value : "",
                  wide < 33 ? 34 - wide : 2, "", f->help);
}

void hr_args_help(unsigned command, const char *usage, hr_buf *out)
{
    hr_buf_add_c(out, usage);
    hr_args_each(command, add_flag_help, out);
}
