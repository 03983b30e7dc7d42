/* Any bytes as a chat template, over variables that every branch of a real one finds something in.
 */
#include <string.h>

#include "fuzz/rendered.h"

static const char variables_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" a\\u4e2d\\u00e9 b<|x|>\"}, {\"role\": "
    "\"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", \"function\": "
    "{\"name\": \"f\", \"arguments\": {\"b\": 1.50, \"a\": [true, null, \"\\ud83d\\ude00\"]}}}]}, "
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\\ny\"}], \"children\": "
    "[{\"role\": \"r\", \"children\": []}]}], \"tools\": [{\"type\": \"function\", \"function\": "
    "{\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}}], \"eos_token\": \"</s>\", "
    "\"bos_token\": \"<s>\", \"a\": 1.5, \"n\": -7, \"big\": 123456789012345678901234567890, "
    "\"s\": \"Hello World\", \"l\": [3, 1, 2], \"objs\": [{\"k\": \"b\", \"n\": 1}, {\"k\": "
    "\"a\"}], \"add_generation_prompt\": true}";

static const hr_json *variables(void)
{
    static hr_arena arena;
    static const hr_json *parsed;
    if (!parsed)
        fuzz_require(!hr_json_parse(HR_STR(variables_text), NULL, &arena, &parsed),
                     "the variables are JSON");
    return parsed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    hr_str trusted[] = { HR_STR("bos_token"), HR_STR("eos_token") };
    static const struct tm now = { .tm_year = 124, .tm_mon = 1, .tm_mday = 29, .tm_wday = 4 };
    const hr_render_options options = {
        .limits = fuzz_limits, .trusted = trusted, .n_trusted = 2, .now = &now
    };
    hr_template *t;
    hr_rendered r;
    hr_status st = hr_template_parse((hr_str){ (const char *)data, n }, &t);
    if (!st) {
        st = hr_template_render(t, variables(), &options, &r);
        if (!st) fuzz_check_rendered(&r);
        hr_rendered_deinit(&r);
    }
    fuzz_require(st != HR_INTERNAL, "a template is never our bug");
    fuzz_require(!st || hr_message()[0], "a refusal has its words");
    hr_template_destroy(t);
    return 0;
}
