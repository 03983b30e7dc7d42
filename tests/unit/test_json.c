/* The JSON reader and writer. Expected spellings are those of Python's json module and repr. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/utf8.h"

static hr_arena arena;

static int teardown(void **state)
{
    (void)state;
    hr_arena_deinit(&arena);
    return 0;
}

static const hr_json *parse(const char *text)
{
    const hr_json *v;
    hr_status st = hr_json_parse(hr_str_c(text), NULL, &arena, &v);
    if (st) fail_msg("%s: %s", text, hr_message());
    return v;
}

/* ---- reader ------------------------------------------------------------------------------- */

static void containers_know_their_source(void **state)
{
    (void)state;
    const char *text = " { \"a\" : [ 1, {\"b\" : 2.50} ] , \"c\":[]} ";
    const hr_json *v = parse(text), *a = hr_json_get(v, "a");
    assert_ptr_equal(v->text.p, text + 1);
    assert_int_equal(v->text.n, strlen(text) - 2);
    assert_true(hr_str_eq_c(a->text, "[ 1, {\"b\" : 2.50} ]"));
    assert_true(hr_str_eq_c(a->items[1].text, "{\"b\" : 2.50}"));
    assert_true(hr_str_eq_c(hr_json_get(v, "c")->text, "[]"));
}

static void accepts_what_rfc_8259_accepts(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        " true ",
        "\t\r\n false",
        "0",
        "-0",
        "-0.0e-0",
        "1E+9",
        "12.50e01",
        "\"\"",
        "[]",
        "[ ]",
        "{}",
        "{ }",
        "[[],[[]],{\"\":{}}]",
        "{\"a\":1,\"A\":1}",
        "\"\\/\"",
        "\"\\ud83d\\ude00\"",
        "\"\xf0\x9f\x98\x80\"",
        "\"\x7f\"",
        "[1 , 2\n,3]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_non_null(parse(texts[i]));
}

static void refuses_what_rfc_8259_refuses(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-Infinity",
        "+1",
        "01",
        "-",
        "-a",
        ".5",
        "1.",
        "1.e5",
        "1e",
        "1e+",
        "0x10",
        "1 2",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[",
        "[1",
        "]",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{\"a\" 1}",
        "{1:1}",
        "{\"a\":1]",
        "[1}",
        "'a'",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\ud800x\"",
        "\"\n\"",
        "\"\x1f\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe4\xb8",
        "\xef\xbb\xbf[]",
        "[] //",
        "/**/1",
        "tru\xc3\xa9",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "{\"\\u0061\":1,\"a\":2}",
        "{\"x\":{\"k\":1,\"k\":1}}",
        "\v1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const hr_json *v = (const hr_json *)1;
        if (hr_json_parse(hr_str_c(texts[i]), NULL, &arena, &v) != HR_INVALID_ARGUMENT)
            fail_msg("accepted: %s", texts[i]);
        assert_null(v);
        assert_non_null(strstr(hr_message(), "JSON at byte"));
    }
    const hr_json *v;
    assert_int_equal(hr_json_parse((hr_str){ "1\0", 2 }, NULL, &arena, &v), HR_INVALID_ARGUMENT);
}

/* The text ends where its buffer ends: ASan sees a read past it. */
static void never_reads_past_the_end(void **state)
{
    (void)state;
    static const char text[] =
        "{\"k\\u00e9\":[1.5e3,true,null,\"\\ud83d\\ude00\xe4\xb8\xad\"],\"z\":{}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        const hr_json *v;
        assert_int_equal(hr_json_parse((hr_str){ copy, n }, NULL, &arena, &v), HR_INVALID_ARGUMENT);
        free(copy);
    }
}

static void keeps_order_text_and_escapes(void **state)
{
    (void)state;
    const hr_json *v =
        parse("{\"z\":1e2,\"a\":[true,\"x\\u0000y\\n\\ud83d\\ude00\"],\"\\u00e9\":{}}");
    assert_int_equal(v->count, 3);
    assert_true(hr_str_eq_c(v->items[0].key, "z"));
    assert_true(hr_str_eq_c(v->items[0].text, "1e2"));
    assert_true(hr_str_eq_c(v->items[1].key, "a"));
    assert_true(hr_str_eq(v->items[1].items[1].text, HR_STR("x\0y\n\xf0\x9f\x98\x80")));
    assert_true(hr_str_eq_c(v->items[2].key, "\xc3\xa9"));
    assert_ptr_equal(hr_json_get(v, "a"), &v->items[1]);
    assert_null(hr_json_get(v, "b"));
    assert_null(hr_json_get(NULL, "b"));
    assert_null(hr_json_get(&v->items[1], "a"));
}

static void bounds_values(void **state)
{
    (void)state;
    hr_json_limits limits = { .max_values = 5 };
    const hr_json *v;
    assert_int_equal(hr_json_parse(HR_STR("[1,[2],{\"a\":3}]"), &limits, &arena, &v),
                     HR_OUT_OF_RANGE); /* six: containers count */
    assert_non_null(strstr(hr_message(), "more than 5 values"));
    assert_int_equal(hr_json_parse(HR_STR("[1,[2],{}]"), &limits, &arena, &v), HR_OK);
}

/* The reader takes plain characters eight at a time: what is not plain is seen at every place. */
static void sees_special_bytes_at_every_place(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        hr_status status;
    } specials[] = { { "\\n", HR_OK },
                     { "\xC3\xA9", HR_OK },
                     { "\x7F", HR_OK },
                     { " ", HR_OK },
                     { "\x1F", HR_INVALID_ARGUMENT },
                     { "\x01", HR_INVALID_ARGUMENT },
                     { "\xFF", HR_INVALID_ARGUMENT },
                     { "\xC3", HR_INVALID_ARGUMENT },
                     { "\\x", HR_INVALID_ARGUMENT },
                     { "\"", HR_INVALID_ARGUMENT } };
    for (size_t n = 0; n < 40; n++) {
        for (size_t at = 0; at <= n; at++) {
            for (size_t s = 0; s < sizeof specials / sizeof *specials; s++) {
                hr_buf text = { 0 };
                hr_buf_add_byte(&text, '"');
                for (size_t i = 0; i < at; i++) hr_buf_add_byte(&text, (char)('!' + 2 * (i % 5)));
                hr_buf_add_c(&text, specials[s].bytes);
                for (size_t i = at; i < n; i++) hr_buf_add_byte(&text, 'z');
                hr_str inside = hr_str_slice(hr_buf_str(&text), 1, text.n);
                /* UTF-8 has no quarrel with quotes, escapes or control characters */
                bool ill = specials[s].bytes[0] == '\xFF' || !strcmp(specials[s].bytes, "\xC3");
                assert_int_equal(hr_utf8_valid(inside), !ill);
                hr_buf_add_byte(&text, '"');
                const hr_json *v;
                assert_int_equal(hr_json_parse(hr_buf_str(&text), NULL, &arena, &v),
                                 specials[s].status);
                if (v)
                    assert_int_equal(v->text.n, n + strlen(specials[s].bytes) -
                                                    (specials[s].bytes[0] == '\\'));
                hr_buf_deinit(&text);
            }
        }
    }
}

static void bounds_depth(void **state)
{
    (void)state;
    char text[4001];
    const hr_json *v;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(hr_json_parse((hr_str){ text, 128 }, NULL, &arena, &v), HR_OK);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(hr_json_parse((hr_str){ text, 130 }, NULL, &arena, &v), HR_INVALID_ARGUMENT);
    hr_json_limits limits = { .max_depth = 2000 };
    memset(text, '[', 2000);
    memset(text + 2000, ']', 2000);
    assert_int_equal(hr_json_parse((hr_str){ text, 4000 }, &limits, &arena, &v), HR_OK);
    memset(text, '[', 4000);
    assert_int_equal(hr_json_parse((hr_str){ text, 4000 }, &limits, &arena, &v),
                     HR_INVALID_ARGUMENT);
}

/* 300,000 members parse, each is found, and one duplicate at the far end is seen. */
static void large_objects(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    hr_json_writer w = { .out = &b };
    char key[16];
    hr_json_begin_object(&w);
    for (int i = 0; i < 300000; i++) {
        snprintf(key, sizeof key, "key%d", i);
        hr_json_key(&w, hr_str_c(key));
        hr_json_i64(&w, i);
    }
    hr_json_end_object(&w);
    const hr_json *v;
    assert_int_equal(hr_json_parse(hr_buf_str(&b), NULL, &arena, &v), HR_OK);
    assert_int_equal(v->count, 300000);
    assert_true(hr_str_eq_c(v->items[299999].text, "299999"));
    b.n--;
    hr_buf_add_c(&b, ",\"key17\":0}");
    assert_int_equal(hr_json_parse(hr_buf_str(&b), NULL, &arena, &v), HR_INVALID_ARGUMENT);
    assert_non_null(strstr(hr_message(), "\"key17\" twice"));
    hr_buf_deinit(&b);
}

static void short_memory_is_a_status(void **state)
{
    (void)state;
    hr_arena small = { .limit = 64 };
    const hr_json *v;
    assert_int_equal(hr_json_parse(HR_STR("[1,2,3,4]"), NULL, &small, &v), HR_RESOURCE_EXHAUSTED);
    assert_null(v);
    hr_arena_deinit(&small);
}

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        hr_status status;
        int64_t value;
    } cases[] = {
        { "0", HR_OK, 0 },
        { "-0", HR_OK, 0 },
        { "16.0", HR_OK, 16 },
        { "1e3", HR_OK, 1000 },
        { "1.5e1", HR_OK, 15 },
        { "100e-2", HR_OK, 1 },
        { "0e999999999999999999999", HR_OK, 0 },
        { "0.00e-5", HR_OK, 0 },
        { "9223372036854775807", HR_OK, INT64_MAX },
        { "-9223372036854775808", HR_OK, INT64_MIN },
        { "9223372036854775808", HR_OUT_OF_RANGE, 0 },
        { "-9223372036854775809", HR_OUT_OF_RANGE, 0 },
        { "18446744073709551616", HR_OUT_OF_RANGE, 0 },
        { "1e18", HR_OK, 1000000000000000000 },
        { "1e19", HR_OUT_OF_RANGE, 0 },
        { "1e400", HR_OUT_OF_RANGE, 0 },
        { "1e99999999999999999999", HR_OUT_OF_RANGE, 0 },
        { "1.5", HR_INVALID_ARGUMENT, 0 },
        { "1e-1", HR_INVALID_ARGUMENT, 0 },
        { "1e-99999999999999999999", HR_INVALID_ARGUMENT, 0 },
        { "\"1\"", HR_INVALID_ARGUMENT, 0 },
        { "null", HR_INVALID_ARGUMENT, 0 },
        { "true", HR_INVALID_ARGUMENT, 0 },
        { "1000000000000000000000.0e-20", HR_OK, 10 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t v = 99;
        hr_status st = hr_json_to_i64(parse(cases[i].text), "seed", &v);
        if (st != cases[i].status || v != cases[i].value)
            fail_msg("%s: status %d, value %lld", cases[i].text, (int)st, (long long)v);
        if (st) assert_ptr_equal(strstr(hr_message(), "seed: "), hr_message());
    }
    int64_t v;
    assert_int_equal(hr_json_to_i64(NULL, "n", &v), HR_INVALID_ARGUMENT);
    assert_string_equal(hr_message(), "n: must be an integer, not missing");
    assert_true(hr_json_is_integer(parse("12")));
    assert_false(hr_json_is_integer(parse("12.0")));
    assert_false(hr_json_is_integer(parse("1e2")));
    assert_false(hr_json_is_integer(parse("\"1\"")));
}

static void other_typed_reads(void **state)
{
    (void)state;
    double d;
    bool b;
    hr_str s;
    assert_int_equal(hr_json_to_f64(parse("-2.5e-3"), "t", &d), HR_OK);
    assert_true(d == -2.5e-3);
    assert_int_equal(hr_json_to_f64(parse("1e400"), "t", &d), HR_OUT_OF_RANGE);
    assert_int_equal(hr_json_to_f64(parse("1e-400"), "t", &d), HR_OK);
    assert_int_equal(hr_json_to_f64(parse("\"0.5\""), "t", &d), HR_INVALID_ARGUMENT);
    assert_int_equal(hr_json_to_bool(parse("true"), "t", &b), HR_OK);
    assert_true(b);
    assert_int_equal(hr_json_to_bool(parse("\"false\""), "stream", &b), HR_INVALID_ARGUMENT);
    assert_string_equal(hr_message(), "stream: must be true or false, not a string");
    assert_int_equal(hr_json_to_str(parse("\"x\""), "t", &s), HR_OK);
    assert_true(hr_str_eq_c(s, "x"));
    assert_int_equal(hr_json_to_str(parse("1"), "t", &s), HR_INVALID_ARGUMENT);
}

/* ---- writer ------------------------------------------------------------------------------- */

/* Reprints `text` with w's settings. */
static const char *reprint(const char *text, hr_json_writer w)
{
    static hr_buf b;
    hr_buf_deinit(&b);
    w.out = &b;
    hr_json_value(&w, parse(text));
    return hr_buf_c(&b);
}

static void writes_as_python_does(void **state)
{
    (void)state;
    const char *text = "{\"b\":[1,2.50,[]],\"a\":{},\"c\":{\"k\":null}}";
    assert_string_equal(reprint(text, (hr_json_writer){ 0 }), text);
    assert_string_equal(reprint(text, (hr_json_writer){ .item_sep = ", ", .key_sep = ": " }),
                        "{\"b\": [1, 2.50, []], \"a\": {}, \"c\": {\"k\": null}}");
    assert_string_equal(reprint(text, (hr_json_writer){ .indent = 2 }),
                        "{\n  \"b\": [\n    1,\n    2.50,\n    []\n  ],\n  \"a\": {},\n"
                        "  \"c\": {\n    \"k\": null\n  }\n}");
    const char *odd = "\"\\u0000\\u001f\\b\\t\\n\\f\\r\\\"\\\\/<&\\u007f\\u00e9\\ud83d\\ude00\"";
    assert_string_equal(reprint(odd, (hr_json_writer){ 0 }),
                        "\"\\u0000\\u001f\\b\\t\\n\\f\\r\\\"\\\\/<&\x7f\xc3\xa9\xf0\x9f\x98\x80\"");
    assert_string_equal(reprint(odd, (hr_json_writer){ .ascii = true }),
                        "\"\\u0000\\u001f\\b\\t\\n\\f\\r\\\"\\\\/<&\\u007f\\u00e9\\ud83d\\ude00\"");
}

static void writes_values(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    hr_json_writer w = { .out = &b };
    hr_json_begin_array(&w);
    hr_json_i64(&w, INT64_MIN);
    hr_json_u64(&w, UINT64_MAX);
    hr_json_f64(&w, (double)NAN);
    hr_json_f64(&w, -0.0);
    hr_json_str(&w, (hr_str){ "a\xff\xe4\xb8", 4 });
    hr_json_str(&w, (hr_str){ 0 });
    hr_json_bool(&w, false);
    hr_json_begin_object(&w);
    hr_json_key(&w, HR_STR("k"));
    hr_json_raw(&w, HR_STR("[1]"));
    hr_json_key(&w, HR_STR("l"));
    hr_json_null(&w);
    hr_json_end_object(&w);
    hr_json_end_array(&w);
    assert_string_equal(hr_buf_c(&b), "[-9223372036854775808,18446744073709551615,null,-0.0,"
                                      "\"a\xEF\xBF\xBD\xEF\xBF\xBD\",\"\",false,"
                                      "{\"k\":[1],\"l\":null}]");
    hr_buf_deinit(&b);
}

static void writer_depth_is_a_status(void **state)
{
    (void)state;
    hr_buf b = { 0 };
    hr_json_writer w = { .out = &b };
    for (int i = 0; i < 300; i++) hr_json_begin_array(&w);
    for (int i = 0; i < 300; i++) hr_json_end_array(&w);
    assert_int_equal(hr_buf_status(&b), HR_INVALID_ARGUMENT);
    hr_buf_deinit(&b);
}

static void doubles_as_python_repr(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        { 0.0, "0.0" },
        { -0.0, "-0.0" },
        { 1.0, "1.0" },
        { 0.1, "0.1" },
        { -2.5, "-2.5" },
        { 0.1 + 0.2, "0.30000000000000004" },
        { 1.0 / 3, "0.3333333333333333" },
        { 1e-4, "0.0001" },
        { 1e-5, "1e-05" },
        { 1.5e-5, "1.5e-05" },
        { 1e15, "1000000000000000.0" },
        { 1e16, "1e+16" },
        { 123456789012345680.0, "1.2345678901234568e+17" },
        { 1e22, "1e+22" },
        { 1e23, "1e+23" },
        { 1e100, "1e+100" },
        { 9007199254740993.0, "9007199254740992.0" },
        { 5e-324, "5e-324" },
        { 2.2250738585072014e-308, "2.2250738585072014e-308" },
        { 2.225073858507201e-308, "2.225073858507201e-308" },
        { 1e-310, "1e-310" },
        { 1.7976931348623157e308, "1.7976931348623157e+308" },
        { 0x1p-44, "5.684341886080802e-14" },
        { 9.5367431640625e-07, "9.5367431640625e-07" },
        { 0x1p+89, "6.189700196426902e+26" },
        { 0.001, "0.001" },
        { 123.456, "123.456" },
        { 100.0, "100.0" },
        { 0x1p-1074, "5e-324" },
        { 9.999999999999999e22, "1e+23" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32] = { 0 };
        size_t n = hr_json_format_f64(cases[i].v, text);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(n, strlen(cases[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_know_their_source),
        cmocka_unit_test(accepts_what_rfc_8259_accepts),
        cmocka_unit_test(refuses_what_rfc_8259_refuses),
        cmocka_unit_test(never_reads_past_the_end),
        cmocka_unit_test(keeps_order_text_and_escapes),
        cmocka_unit_test(bounds_depth),
        cmocka_unit_test(bounds_values),
        cmocka_unit_test(sees_special_bytes_at_every_place),
        cmocka_unit_test(large_objects),
        cmocka_unit_test(short_memory_is_a_status),
        cmocka_unit_test(integers),
        cmocka_unit_test(other_typed_reads),
        cmocka_unit_test(writes_as_python_does),
        cmocka_unit_test(writes_values),
        cmocka_unit_test(writer_depth_is_a_status),
        cmocka_unit_test(doubles_as_python_repr),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
