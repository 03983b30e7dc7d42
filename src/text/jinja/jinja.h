/* Chat templates: a Jinja interpreter equal to the environment that transformers makes, which is
 * jinja2's ImmutableSandboxedEnvironment(trim_blocks, lstrip_blocks, loop controls, generation
 * tag) with its own tojson, raise_exception and strftime_now. This room's door.
 *
 * A template is parsed once, is immutable, and renders on any thread. Rendering is bounded in
 * steps, depth, memory and output, whatever the template or the variables say.
 *
 * Provenance: every byte of the result is either the template's (its text, its literals, the
 * trusted variables such as bos_token) or data (whatever came in through the other variables).
 * The mark follows the bytes through concatenation, slices, filters, methods, macros and JSON; a
 * byte is data when any byte that it was made from is data. So text in a message that looks like
 * a special token can be told from the template's own, and stays text. */
#ifndef HEADRACE_TEXT_JINJA_JINJA_H
#define HEADRACE_TEXT_JINJA_JINJA_H

#include <time.h>

#include "base/json.h"
#include "text/span.h"

typedef struct hr_template hr_template;

/* Where in a template's source something is wrong. */
typedef struct hr_template_place {
    uint32_t line, column; /* from 1, columns in bytes; line 0 = nowhere */
} hr_template_place;

/* INVALID_ARGUMENT with line and column for what is not a template; UNIMPLEMENTED for tags that
 * need other templates (extends, include, import). `source` is UTF-8, copied. */
HR_MUST_USE hr_status hr_template_parse(hr_str source, hr_template **out);
/* The same, and *failed tells where it is wrong. */
HR_MUST_USE hr_status hr_template_check(hr_str source, hr_template_place *failed,
                                        hr_template **out);
void hr_template_destroy(hr_template *t); /* NULL is fine */
/* True when the template reads the variable `name` (from its own text, not from a value): how a
 * caller learns that a template knows `tools` or `enable_thinking`. */
bool hr_template_reads(const hr_template *t, const char *name);

typedef struct hr_template_limits {
    uint64_t max_steps; /* 0 = 20 million: nodes evaluated, items visited, bytes / 16 copied */
    size_t max_depth;   /* 0 = 400 nested evaluations, macro calls included; at most 2000 */
    size_t max_output;  /* 0 = 64 MiB */
    size_t max_memory;  /* 0 = 512 MiB, all values of one rendering together */
} hr_template_limits;

typedef struct hr_render_options {
    hr_template_limits limits;
    const hr_str *trusted; /* [n_trusted] top-level variables that count as the template's text */
    size_t n_trusted;
    const struct tm *now;      /* local time for strftime_now; NULL = the clock */
    int now_microseconds;      /* %f, with `now` */
    hr_template_place *failed; /* NULL, or becomes the place that a failure came from */
} hr_render_options;

typedef struct hr_rendered {
    hr_buf text; /* owned, UTF-8 */
    hr_text_span
        *spans; /* owned [n_spans]; they cover `text` in order, neighbours differ in kind */
    size_t n_spans;
} hr_rendered;

void hr_rendered_deinit(hr_rendered *r); /* `= { 0 }` is fine */

/* `variables` is a JSON object: messages, tools, add_generation_prompt, bos_token … A failure
 * leaves *out empty. INVALID_ARGUMENT: raise_exception (the message is the template's own words)
 * and every error that jinja2 raises, with line and column; RESOURCE_EXHAUSTED: a limit was met.
 * `options` may be NULL. */
HR_MUST_USE hr_status hr_template_render(const hr_template *t, const hr_json *variables,
                                         const hr_render_options *options, hr_rendered *out);

#endif
