/* A config.json, a NUL, a generation_config.json: refused in words, or numbers that hold what the
 * builders of graphs rely on. */
#include "fuzz/fuzz.h"
#include "model/model_int.h"

static void check_status(hr_status st)
{
    fuzz_require(st != HR_INTERNAL, "a file is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
}

static void check_config(const hr_config *c)
{
    fuzz_require(c->hidden > 0 && c->layers > 0 && c->vocab > 0 && c->head_dim > 0, "sizes");
    fuzz_require(c->kv_heads > 0 && c->heads % c->kv_heads == 0, "whole groups of heads");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t end = 0;
    while (end < n && data[end]) end++;
    hr_arena arena = { 0 };
    const hr_json_limits limits = { .max_depth = 64, .max_values = 5000 };
    const hr_json *json;
    hr_config config = { 0 };
    const hr_family *family;
    const char *text = (const char *)data;
    hr_status st = hr_json_parse((hr_str){ text, end }, &limits, &arena, &json);
    if (!st) {
        st = hr_config_from_json(json, &arena, &config, &family);
        check_status(st);
        if (!st) check_config(&config);
    }
    if (end < n) {
        hr_str rest = { text + end + 1, n - end - 1 };
        if (!hr_json_parse(rest, &limits, &arena, &json))
            check_status(hr_config_read_generation(json, &config));
        check_status(hr_config_override_generation(rest, &config));
    }
    hr_arena_deinit(&arena);
    return 0;
}
