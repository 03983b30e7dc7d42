/* Any bytes as an answer: the first three choose how it is read and where it is cut, and cut or not
 * it is the same message, which holds nothing that the answer does not. */
#include "fuzz/fuzz.h"
#include "reply_parts.h"

static hr_reply_options options_of(const uint8_t *data)
{
    return (hr_reply_options){ .format = { .calls = (hr_call_format)(data[0] % 4),
                                           .reasoning = (hr_reasoning_format)(data[0] / 4 % 4) },
                               .prompt = (hr_reply_prompt)(data[1] % 3),
                               .one_call = data[1] / 3 % 2 == 1,
                               .sink = reply_parts_add };
}

/* Cut after every `step` bytes; 0: not at all. */
static void read_reply(hr_reply_options o, hr_str text, size_t step, reply_parts *out)
{
    hr_reply r;
    *out = (reply_parts){ 0 };
    o.context = out;
    hr_reply_init(&r, &o);
    for (size_t i = 0; i < text.n; i += step ? step : text.n) {
        size_t end = step && i + step < text.n ? i + step : text.n;
        fuzz_require(!hr_reply_feed(&r, hr_str_slice(text, i, end)), "memory");
    }
    fuzz_require(!hr_reply_finish(&r), "memory");
    hr_reply_deinit(&r);
    fuzz_require(!out->misplaced, "every piece has its place and says something");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    reply_parts whole, parts;
    if (n < 3) return 0;
    hr_reply_options o = options_of(data);
    hr_str text = { (const char *)data + 3, n - 3 };
    read_reply(o, text, 0, &whole);
    read_reply(o, text, 1 + data[2] % 16, &parts);
    fuzz_require(reply_parts_equal(&whole, &parts), "cuts change nothing");
    fuzz_require(!o.one_call || whole.n_calls <= 1, "one call is one");
    fuzz_require(whole.content.n + whole.reasoning.n <= text.n, "nothing is made up");
    bool plain = !o.format.calls && (!o.format.reasoning || o.prompt == HR_REPLY_PROMPT_CLOSES);
    fuzz_require(!plain || hr_str_eq(hr_buf_str(&whole.content), text),
                 "without formats, all is content");
    reply_parts_deinit(&whole);
    reply_parts_deinit(&parts);
    return 0;
}
