/* What must hold of every rendering, whatever the template and the variables were. */
#ifndef HEADRACE_TESTS_FUZZ_RENDERED_H
#define HEADRACE_TESTS_FUZZ_RENDERED_H

#include "base/utf8.h"
#include "fuzz/fuzz.h"
#include "text/jinja/jinja.h"

/* Small enough that the worst template ends in a fraction of a second. */
static const hr_template_limits fuzz_limits = { .max_steps = 20000,
                                                .max_output = 1 << 20,
                                                .max_memory = 8 << 20 };

static inline void fuzz_check_rendered(const hr_rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        fuzz_require(r->spans[i].text.n > 0, "no span is empty");
        fuzz_require(r->spans[i].text.p == r->text.p + at, "spans cover the text in order");
        fuzz_require(i == 0 || r->spans[i].kind != r->spans[i - 1].kind, "neighbours differ");
        at += r->spans[i].text.n;
    }
    fuzz_require(at == r->text.n, "spans cover the whole text");
    fuzz_require(hr_utf8_valid(hr_buf_str(&r->text)), "a prompt is UTF-8");
}

#endif
