/* Any bytes as JSON: what is read is written so that reading it again gives the same, and pretty or
 * ASCII-only spellings of it are the same value too. */
#include <string.h>

#include "base/json.h"
#include "fuzz/fuzz.h"

static hr_buf written(const hr_json *v, int indent, bool ascii)
{
    hr_buf out = { 0 };
    hr_json_writer w = { .out = &out, .indent = indent, .ascii = ascii };
    hr_json_value(&w, v);
    fuzz_require(!hr_buf_status(&out), "memory");
    return out;
}

static void check_respelt(const hr_json *v, hr_str plain, int indent, bool ascii)
{
    hr_arena arena = { 0 };
    const hr_json *again;
    hr_buf text = written(v, indent, ascii);
    fuzz_require(!hr_json_parse(hr_buf_str(&text), NULL, &arena, &again), "our JSON is JSON");
    hr_buf last = written(again, 0, false);
    fuzz_require(hr_str_eq(hr_buf_str(&last), plain), "reading what was written gives the same");
    hr_buf_deinit(&text);
    hr_buf_deinit(&last);
    hr_arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hr_arena arena = { 0 };
    const hr_json *v;
    const hr_json_limits limits = { .max_depth = 64, .max_values = 5000 };
    hr_status st = hr_json_parse((hr_str){ (const char *)data, n }, &limits, &arena, &v);
    fuzz_require(st != HR_INTERNAL, "a text is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    if (!st) {
        hr_buf plain = written(v, 0, false);
        check_respelt(v, hr_buf_str(&plain), 0, false);
        check_respelt(v, hr_buf_str(&plain), 0, true);
        check_respelt(v, hr_buf_str(&plain), 2, false);
        hr_buf_deinit(&plain);
    }
    hr_arena_deinit(&arena);
    return 0;
}
