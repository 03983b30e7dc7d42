/* headrace tokenize: the ids of a text, for scripts and for comparison with other tokenizers.
 *
 * A line of --json-lines is a string, whose ids are printed; or the list of [text, is_data] that
 * `headrace render --spans` prints, whose ids are printed; or a list of ids, whose text is.
 *
 * Main thread. Loads metadata only: no weight is read, nothing is compiled. */
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "engine/engine.h"

hr_status hr_cli_load_tokenizer(const char *name, hr_tokenizer **out)
{
    *out = NULL;
    hr_buf text = { 0 };
    hr_model *m = NULL;
    hr_status st;
    if (hr_str_ends(hr_str_c(name), HR_STR(".json"))) {
        st = hr_file_slurp(name, (size_t)256 << 20, &text);
        if (!st) st = hr_tokenizer_load_json(hr_buf_str(&text), out);
    } else {
        st = hr_model_open(name, NULL, &m);
        if (!st) st = hr_engine_load_tokenizer(m, out);
        if (!st && !*out) st = hr_fail(HR_NOT_FOUND, "%s has no tokenizer", name);
    }
    hr_model_release(m);
    hr_buf_deinit(&text);
    return st;
}

typedef struct session {
    const hr_tokenizer *tokenizer;
    hr_encode_flags flags;
    hr_tokenizer_scratch scratch;
    hr_ids ids;
} session;

static hr_status print_spans(session *s, const hr_text_span *spans, size_t n)
{
    s->ids.n = 0;
    HR_TRY(hr_tokenizer_encode(s->tokenizer, spans, n, s->flags, &s->scratch, &s->ids));
    putchar('[');
    for (size_t i = 0; i < s->ids.n; i++) printf("%s%d", i ? ", " : "", s->ids.p[i]);
    puts("]");
    return HR_OK;
}

static hr_status print_ids(session *s, hr_str text)
{
    hr_text_span span = { text, HR_SPAN_SPECIAL };
    return print_spans(s, &span, 1);
}

static hr_status print_pairs(session *s, const hr_json *list, hr_arena *arena)
{
    hr_text_span *spans = hr_arena_array(arena, list->count, sizeof *spans);
    if (!spans) return hr_fail(HR_RESOURCE_EXHAUSTED, "spans");
    for (size_t i = 0; i < list->count; i++) {
        const hr_json *pair = &list->items[i];
        bool data;
        if (pair->type != HR_JSON_ARRAY || pair->count != 2)
            return hr_fail(HR_INVALID_ARGUMENT, "span %zu is not [text, is_data]", i);
        HR_TRY(hr_json_to_str(&pair->items[0], "the text of a span", &spans[i].text));
        HR_TRY(hr_json_to_bool(&pair->items[1], "is_data of a span", &data));
        spans[i].kind = data ? HR_SPAN_PLAIN : HR_SPAN_SPECIAL;
    }
    return print_spans(s, spans, list->count);
}

/* As a stream would: one id at a time. With --no-special, special tokens are skipped. */
static hr_status print_text(session *s, const hr_json *list)
{
    hr_buf text = { 0 }, out = { 0 };
    hr_json_writer w = { .out = &out, .ascii = true };
    hr_detok d;
    hr_detok_init(&d, s->tokenizer,
                  s->flags & HR_ENCODE_ADD_SPECIAL ? HR_DECODE_DEFAULT : HR_DECODE_SKIP_SPECIAL);
    hr_status st = HR_OK;
    for (size_t i = 0; !st && i < list->count; i++) {
        int64_t id;
        st = hr_json_to_i64(&list->items[i], "an id", &id);
        if (!st && (id < 0 || (uint64_t)id >= hr_tokenizer_size(s->tokenizer)))
            st = hr_fail(HR_OUT_OF_RANGE, "id %lld is no token", (long long)id);
        if (!st) st = hr_detok_push(&d, (int32_t)id, &text);
    }
    if (!st) st = hr_detok_flush(&d, &text);
    hr_json_str(&w, hr_buf_str(&text));
    if (!st) puts(hr_buf_c(&out));
    if (!st) st = hr_buf_status(&out);
    hr_buf_deinit(&text);
    hr_buf_deinit(&out);
    return st;
}

static hr_status print_line(session *s, hr_str line, size_t number)
{
    hr_arena arena = { 0 };
    const hr_json *v = NULL;
    hr_str text = { 0 };
    hr_status st = hr_json_parse(line, NULL, &arena, &v);
    if (!st && v->type == HR_JSON_ARRAY) {
        bool ids = v->count && v->items[0].type == HR_JSON_NUMBER;
        st = ids ? print_text(s, v) : print_pairs(s, v, &arena);
    } else {
        if (!st) st = hr_json_to_str(v, "a line", &text);
        if (!st) st = print_ids(s, text);
    }
    hr_arena_deinit(&arena);
    return st ? hr_fail_prefix(st, "line %zu", number) : HR_OK;
}

static hr_status print_lines(session *s, hr_str all)
{
    for (size_t from = 0, number = 1; from < all.n; number++) {
        size_t end = hr_str_find(all, HR_STR("\n"), from);
        if (end == SIZE_MAX) end = all.n;
        HR_TRY(print_line(s, hr_str_slice(all, from, end), number));
        from = end + 1;
    }
    return HR_OK;
}

static hr_status run(hr_args *a, session *s)
{
    hr_cli_command *c = &a->own;
    hr_str text;
    if (c->prompts.n) text = hr_str_c(*(const char **)c->prompts.at);
    else HR_TRY(hr_args_slurp(&a->arena, c->prompt_file ? c->prompt_file : "-", &text));
    s->flags = c->no_special ? HR_ENCODE_DEFAULT : HR_ENCODE_ADD_SPECIAL;
    return c->json_lines ? print_lines(s, text) : print_ids(s, text);
}

int hr_cli_tokenize(hr_args *a)
{
    session s = { 0 };
    hr_tokenizer *t = NULL;
    hr_status st = hr_cli_load_tokenizer(a->model, &t);
    s.tokenizer = t;
    if (!st) st = run(a, &s);
    hr_ids_deinit(&s.ids);
    hr_tokenizer_scratch_deinit(&s.scratch);
    hr_tokenizer_destroy(t);
    return st ? hr_cli_complain() : 0;
}
