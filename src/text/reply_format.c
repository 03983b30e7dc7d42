/* Which format a model writes: by name, or by what its template and vocabulary look like.
 *
 * Immutable; any thread. */
#include "text/reply_int.h"

enum {
    PROMPT_END = 16,       /* tokens that a prompt's end may take to open or close reasoning */
    PROMPT_MESSAGE = 2048, /* of a message that is continued */
};

/* ---- marks ----------------------------------------------------------------------------------- */

hr_reply_marks hr_reply_call_marks(hr_call_format f)
{
    switch (f) {
    case HR_CALLS_NONE: break;
    case HR_CALLS_HERMES: return (hr_reply_marks){ "<tool_call>", "</tool_call>" };
    case HR_CALLS_LLAMA3: return (hr_reply_marks){ "<|python_tag|>", "" };
    case HR_CALLS_MISTRAL: return (hr_reply_marks){ "[TOOL_CALLS]", "" };
    }
    return (hr_reply_marks){ "", "" };
}

hr_reply_marks hr_reply_reasoning_marks(hr_reasoning_format f)
{
    switch (f) {
    case HR_REASONING_NONE: break;
    case HR_REASONING_DEEPSEEK_R1:
    case HR_REASONING_QWEN3: return (hr_reply_marks){ "<think>", "</think>" };
    case HR_REASONING_MISTRAL: return (hr_reply_marks){ "[THINK]", "[/THINK]" };
    }
    return (hr_reply_marks){ "", "" };
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *const call_names[] = { [HR_CALLS_NONE] = "none",
                                          [HR_CALLS_HERMES] = "hermes",
                                          [HR_CALLS_LLAMA3] = "llama3_json",
                                          [HR_CALLS_MISTRAL] = "mistral" };
static const char *const reasoning_names[] = { [HR_REASONING_NONE] = "none",
                                               [HR_REASONING_DEEPSEEK_R1] = "deepseek_r1",
                                               [HR_REASONING_QWEN3] = "qwen3",
                                               [HR_REASONING_MISTRAL] = "mistral" };

const char *hr_call_format_name(hr_call_format f)
{
    return call_names[f];
}

const char *hr_reasoning_format_name(hr_reasoning_format f)
{
    return reasoning_names[f];
}

static bool is_auto(const char *name)
{
    return !name || !strcmp(name, "auto");
}

static int find(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, names[i])) return (int)i;
    return -1;
}

/* ---- auto ------------------------------------------------------------------------------------ */

static bool has(hr_str template, const char *text)
{
    return template.n && hr_str_find(template, hr_str_c(text), 0) != SIZE_MAX;
}

static bool knows(const hr_tokenizer *t, const char *token)
{
    return t && hr_tokenizer_find(t, hr_str_c(token)) >= 0;
}

/* <tool_call> stands around JSON, and in other families around XML of their own. */
static hr_call_format guess_calls(hr_str template, const hr_tokenizer *t)
{
    bool xml = has(template, "<function=") || has(template, "<arg_key>");
    if (has(template, "<tool_call>")) return xml ? HR_CALLS_NONE : HR_CALLS_HERMES;
    if (has(template, "[TOOL_CALLS]")) return HR_CALLS_MISTRAL;
    bool llama = knows(t, "<|python_tag|>") || has(template, "<|python_tag|>");
    return llama && has(template, "\"parameters\"") ? HR_CALLS_LLAMA3 : HR_CALLS_NONE;
}

/* A template that has a word for it; one that takes reasoning out of the history has it, too. */
static hr_reasoning_format guess_reasoning(hr_str template, const hr_tokenizer *t)
{
    if (has(template, "</think>")) return HR_REASONING_QWEN3;
    bool mistral = has(template, "[THINK]") || (template.n && knows(t, "[THINK]"));
    return mistral ? HR_REASONING_MISTRAL : HR_REASONING_NONE;
}

hr_status hr_call_format_named(const char *name, hr_str chat_template, const hr_tokenizer *t,
                               hr_call_format *out)
{
    *out = guess_calls(chat_template, t);
    if (is_auto(name)) return HR_OK;
    int i = find(name, call_names, sizeof call_names / sizeof *call_names);
    *out = i < 0 ? HR_CALLS_NONE : (hr_call_format)i;
    if (i >= 0) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "--tool-call-parser %.40s: it is auto, hermes, llama3_json, mistral or none",
                   name);
}

hr_status hr_reasoning_format_named(const char *name, hr_str chat_template, const hr_tokenizer *t,
                                    hr_reasoning_format *out)
{
    *out = guess_reasoning(chat_template, t);
    if (is_auto(name)) return HR_OK;
    int i = find(name, reasoning_names, sizeof reasoning_names / sizeof *reasoning_names);
    *out = i < 0 ? HR_REASONING_NONE : (hr_reasoning_format)i;
    if (i >= 0) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT,
                   "--reasoning-parser %.40s: it is auto, deepseek_r1, qwen3, mistral or none",
                   name);
}

/* ---- prompts --------------------------------------------------------------------------------- */

static size_t last(hr_str text, const char *mark)
{
    size_t at = SIZE_MAX, next = 0;
    while ((next = hr_str_find(text, hr_str_c(mark), next)) != SIZE_MAX) at = next++;
    return at;
}

hr_reply_prompt hr_reply_prompt_of(hr_reasoning_format f, hr_str prompt_end, bool anywhere)
{
    hr_reply_marks marks = hr_reply_reasoning_marks(f);
    if (!*marks.open) return HR_REPLY_PROMPT_SILENT;
    hr_str text = hr_str_trim(prompt_end);
    if (hr_str_ends(text, hr_str_c(marks.open))) return HR_REPLY_PROMPT_OPENS;
    if (hr_str_ends(text, hr_str_c(marks.close))) return HR_REPLY_PROMPT_CLOSES;
    if (!anywhere) return HR_REPLY_PROMPT_SILENT;
    size_t open = last(text, marks.open), close = last(text, marks.close);
    if (open == SIZE_MAX || (close != SIZE_MAX && close > open)) return HR_REPLY_PROMPT_CLOSES;
    return HR_REPLY_PROMPT_OPENS;
}

hr_status hr_reply_prompt_of_ids(hr_reasoning_format f, const hr_tokenizer *t, const int64_t *ids,
                                 size_t n, bool anywhere, hr_reply_prompt *out)
{
    size_t most = anywhere ? PROMPT_MESSAGE : PROMPT_END;
    hr_buf text = { 0 };
    hr_detok d;
    hr_detok_init(&d, t, HR_DECODE_CONTINUES);
    hr_status st = HR_OK;
    for (size_t i = n < most ? 0 : n - most; i < n && !st; i++)
        st = hr_detok_push(&d, (int32_t)ids[i], &text);
    *out = hr_reply_prompt_of(f, hr_buf_str(&text), anywhere);
    hr_buf_deinit(&text);
    return st;
}
