/* JSON, ours because templates need key order, number lexemes and shortest round-trip output.
 *
 * Reader: strict RFC 8259 into an arena; nesting ≤ max_depth, duplicate keys refused, invalid UTF-8
 * and lone surrogates refused, trailing bytes refused; linear time, also for objects of 300,000
 * members. Writer: streaming, with separators as asked for. */
#ifndef HEADRACE_BASE_JSON_H
#define HEADRACE_BASE_JSON_H

#include "base/str.h"

typedef enum hr_json_type {
    HR_JSON_NULL,
    HR_JSON_FALSE,
    HR_JSON_TRUE,
    HR_JSON_NUMBER,
    HR_JSON_STRING,
    HR_JSON_ARRAY,
    HR_JSON_OBJECT,
} hr_json_type;

typedef struct hr_json hr_json;
struct hr_json {
    hr_json_type type;
    hr_str text;          /* NUMBER: its lexeme; STRING: decoded UTF-8, may hold NUL; ARRAY,
                             OBJECT: its source, brackets included, a part of the text parsed */
    hr_str key;           /* this value's member name when its parent is an object */
    const hr_json *items; /* ARRAY, OBJECT: count values, in the order of the text */
    size_t count;
};

typedef struct hr_json_limits {
    size_t max_depth;  /* 0 = 64 */
    size_t max_values; /* 0 = no limit; above it OUT_OF_RANGE */
} hr_json_limits;

/* Everything lives in `arena`; strings without escapes point into `text`, which must outlive it.
 * INVALID_ARGUMENT with the byte offset; RESOURCE_EXHAUSTED when memory is short. */
HR_MUST_USE hr_status hr_json_parse(hr_str text, const hr_json_limits *limits, hr_arena *arena,
                                    const hr_json **out);

/* Member by name; NULL when absent or `object` is not an object (NULL included). Linear. */
const hr_json *hr_json_get(const hr_json *object, const char *key);

/* INVALID_ARGUMENT names the first member of an object that is none of `known` [n]. */
HR_MUST_USE hr_status hr_json_check_members(const hr_json *object, const char *const *known,
                                            size_t n);

/* Typed reads; `what` names the value in the message ("config.json: rope_theta").
 * Integers accept 16.0 and 1e3, refuse 1.5; out of range → OUT_OF_RANGE. */
HR_MUST_USE hr_status hr_json_to_i64(const hr_json *v, const char *what, int64_t *out);
HR_MUST_USE hr_status hr_json_to_f64(const hr_json *v, const char *what, double *out);
HR_MUST_USE hr_status hr_json_to_bool(const hr_json *v, const char *what, bool *out);
HR_MUST_USE hr_status hr_json_to_str(const hr_json *v, const char *what, hr_str *out);
/* True when a NUMBER's lexeme has no '.', 'e' or 'E'. */
bool hr_json_is_integer(const hr_json *v);

/* Writer. Commas and colons are placed by the state; the caller opens, adds, closes.
 * `= { .out = &buf }` writes compactly. */
typedef struct hr_json_writer {
    hr_buf *out;          /* borrowed */
    const char *item_sep; /* NULL = "," */
    const char *key_sep;  /* NULL = ":", with indent ": " */
    int indent;           /* 0 = one line; n = Python's json.dumps(indent=n) */
    bool ascii;           /* escape all but U+0020..U+007E, as Python's ensure_ascii */
    int depth;            /* ≤ 255 */
    uint8_t used[32];     /* bit per depth: a value was written there */
    bool after_key;
} hr_json_writer;

void hr_json_begin_object(hr_json_writer *w);
void hr_json_end_object(hr_json_writer *w);
void hr_json_begin_array(hr_json_writer *w);
void hr_json_end_array(hr_json_writer *w);
void hr_json_key(hr_json_writer *w, hr_str key);
void hr_json_str(hr_json_writer *w, hr_str s); /* ill-formed UTF-8 becomes U+FFFD */
void hr_json_i64(hr_json_writer *w, int64_t v);
void hr_json_u64(hr_json_writer *w, uint64_t v);
/* Shortest text that reads back as v, spelt as Python's repr; not finite → null. */
void hr_json_f64(hr_json_writer *w, double v);
void hr_json_bool(hr_json_writer *w, bool v);
void hr_json_null(hr_json_writer *w);
void hr_json_raw(hr_json_writer *w, hr_str text); /* a value already in JSON */
/* A parsed value, its numbers as they were written. */
void hr_json_value(hr_json_writer *w, const hr_json *v);

/* A member: its key, then its value. */
static inline void hr_json_add_str(hr_json_writer *w, const char *key, const char *v)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_str(w, hr_str_c(v));
}
static inline void hr_json_add_i64(hr_json_writer *w, const char *key, int64_t v)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_i64(w, v);
}
static inline void hr_json_add_f64(hr_json_writer *w, const char *key, double v)
{
    hr_json_key(w, hr_str_c(key));
    hr_json_f64(w, v);
}

/* Shortest round-trip text of a finite double as Python's repr spells it ("1e-05", "0.1", "1.0").
 */
size_t hr_json_format_f64(double v, char out[32]);

#endif
