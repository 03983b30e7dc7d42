/* Chat templates: the known faults of other engines one by one, provenance filter by filter,
 * limits. Expected texts are jinja2's, from the fault list; tests/e2e/test_templates.py asks jinja2
 * itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "text/chat.h"

static hr_arena arena;

static int teardown(void **state)
{
    (void)state;
    hr_arena_deinit(&arena);
    return 0;
}

static const hr_json *json(const char *text)
{
    const hr_json *v;
    if (hr_json_parse(hr_str_c(text), NULL, &arena, &v)) fail_msg("%s: %s", text, hr_message());
    return v;
}

static hr_status render(const char *source, const char *variables, const hr_render_options *o,
                        hr_rendered *out)
{
    hr_template *t;
    *out = (hr_rendered){ 0 };
    hr_status st = hr_template_parse(hr_str_c(source), &t);
    if (!st) st = hr_template_render(t, json(variables), o, out);
    hr_template_destroy(t);
    return st;
}

static void gives(const char *source, const char *variables, const char *expected)
{
    hr_rendered r;
    if (render(source, variables, NULL, &r)) fail_msg("%s: %s", source, hr_message());
    assert_string_equal(hr_buf_c(&r.text), expected);
    hr_rendered_deinit(&r);
}

static void refuses(const char *source, const char *variables, const char *word)
{
    hr_rendered r;
    hr_status st = render(source, variables, NULL, &r);
    if (!st) fail_msg("%s gave '%s'", source, hr_buf_c(&r.text));
    assert_int_equal(st, HR_INVALID_ARGUMENT);
    if (!strstr(hr_message(), word)) fail_msg("%s: %s", source, hr_message());
}

/* ---- the fault list ------------------------------------------------------------------------- */

static void set_inside_a_loop(void **state)
{
    (void)state;
    gives(
        "{% for x in [1,2,3] %}{% if loop.first %}{% set y = x %}{% endif %}[{{ y }}]{% endfor %}",
        "{}", "[1][][]");
    gives("{% set y = 0 %}{% for x in [1,2] %}{% set y = x %}{% endfor %}{{ y }}", "{}", "0");
    gives("{% set n = namespace(y=0) %}{% for x in [1,2] %}{% set n.y = n.y + x %}{% endfor %}"
          "{{ n.y }}",
          "{}", "3");
}

static void macros(void **state)
{
    (void)state;
    gives("{% set a=1 %}{% macro x() %}{{ a }}{% endmacro %}{% set a=2 %}{{ x() }}", "{}", "2");
    gives("{% macro f(a,b=False) %}{% if b %}{{ a }}{% else %}nope{% endif %}{% endmacro %}"
          "{{ f(1,b=True) }}|{{ f(1) }}",
          "{}", "1|nope");
}

static void slices_with_step(void **state)
{
    (void)state;
    gives("{% for m in msgs[::-1] %}{{ m }}{{ loop.index0 }} {% endfor %}",
          "{\"msgs\": [\"a\", \"b\", \"c\"]}", "c0 b1 a2 ");
    gives("{{ 'abcdef'[:-2] }},{{ 'abcdef'[2:] }},{{ 'abcdef'[::-1] }},{{ 'abc'[5:] }}", "{}",
          "abcd,cdef,fedcba,");
}

static void characters_not_bytes(void **state)
{
    (void)state;
    gives("{{ '中<b'|length }} {{ 'a中b'[1:2] }} {{ '👍🏽'|length }}", "{}", "3 中 2");
}

static const char tool[] =
    "{\"t\": {\"name\": \"a/b\", \"description\": \"x > 10 & y < 5 (user's)\", \"b\": 1, "
    "\"a\": [1, 2], \"u\": \"—\", \"f\": 1.0, \"n\": null}}";

static void tojson_as_transformers(void **state)
{
    (void)state;
    gives("{{ t|tojson }}", tool,
          "{\"name\": \"a/b\", \"description\": \"x > 10 & y < 5 (user's)\", \"b\": 1, "
          "\"a\": [1, 2], \"u\": \"—\", \"f\": 1.0, \"n\": null}");
    gives("{{ [t.b, t.a]|tojson(indent=2) }}", tool, "[\n  1,\n  [\n    1,\n    2\n  ]\n]");
    gives("{{ t.u|tojson(ensure_ascii=true) }}", tool, "\"\\u2014\"");
    gives("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", tool,
          "{\"a\":2,\"b\":1}");
}

static void blocks_are_trimmed(void **state)
{
    (void)state;
    gives("A\n    {% if true %}\n  B\n    {% endif %}\nC\n", "{}", "A\n  B\nC");
    gives("A\n    {# c #}\nB", "{}", "A\nB");
}

static void time_in_english(void **state)
{
    (void)state;
    struct tm tm = { .tm_year = 125, .tm_mon = 2, .tm_mday = 9, .tm_hour = 4, .tm_min = 5 };
    hr_render_options o = { .now = &tm };
    hr_rendered r;
    assert_int_equal(
        render("{{ strftime_now('%d %b %Y') }} {{ strftime_now('%H:%M:%S') }}", "{}", &o, &r),
        HR_OK);
    assert_string_equal(hr_buf_c(&r.text), "09 Mar 2025 04:05:00");
    hr_rendered_deinit(&r);
}

static void tags_beyond_plain_jinja(void **state)
{
    (void)state;
    gives("{% generation %}a{{ 1 }}{% endgeneration %}b", "{}", "a1b");
    gives("{% for x in [1,2,3] %}{% if x==2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{}",
          "1");
    gives("{% for x in [1,2,3] %}{% if x==2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{}",
          "13");
}

static void undefined_none_string_methods(void **state)
{
    (void)state;
    gives("{% for x in nope %}x{% else %}none{% endfor %}|{{ nope|length }}", "{}", "none|0");
    gives("{{ 'x' ~ nope ~ 1 ~ none ~ true }}", "{}", "x1NoneTrue");
    refuses("{{ 'x' + nope }}", "{}", "'nope' is undefined");
    refuses("{{ a.b.c }}", "{}", "'a' is undefined");
    refuses("{{ a.b.c }}", "{\"a\": {}}", "'dict object' has no attribute 'b'");
    gives("{{ 'xy'.startswith(('x','q')) }}", "{}", "True");
    gives("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "{}", "b");
}

static void a_template_refuses_in_its_own_words(void **state)
{
    hr_rendered r;
    (void)state;
    assert_int_equal(
        render("{{ raise_exception('Roles must alternate: ' ~ r) }}", "{\"r\": \"x\"}", NULL, &r),
        HR_INVALID_ARGUMENT);
    assert_string_equal(hr_message(), "Roles must alternate: x");
}

static void templates_as_a_list(void **state)
{
    hr_str s;
    (void)state;
    const hr_json *c = json("{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
                            "{\"name\": \"tool_use\", \"template\": \"t\"}], "
                            "\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": null}");
    assert_int_equal(hr_chat_template_source(c, NULL, &s), HR_OK);
    assert_true(hr_str_eq_c(s, "d"));
    assert_int_equal(hr_chat_template_source(c, "tool_use", &s), HR_OK);
    assert_true(hr_str_eq_c(s, "t"));
    assert_int_equal(hr_chat_template_source(c, "rag", &s), HR_NOT_FOUND);
    assert_int_equal(hr_chat_special_token(c, "bos_token", &s), HR_OK);
    assert_true(hr_str_eq_c(s, "<s>"));
    assert_int_equal(hr_chat_special_token(c, "eos_token", &s), HR_OK);
    assert_int_equal(s.n, 0);
}

static void syntax_errors_name_line_and_column(void **state)
{
    (void)state;
    refuses("a\nb {{ 'x }}", "{}", "line 2 column 6");
    refuses("{% if x %}\n{% for %}", "{}", "line 2");
    refuses("\n\n{{ 1 + nope }}", "{}", "line 3");
    refuses("{% if x %}", "{}", "endif");
}

/* ---- provenance ----------------------------------------------------------------------------- */

/* Renders with d = "<Da>", l = ["<x>", "<y>"], n = 7, data, and bos_token trusted; the result is
 * spelt with data in braces. */
static void comes_from(const char *source, const char *expected)
{
    hr_str trusted = HR_STR("bos_token");
    hr_render_options o = { .trusted = &trusted, .n_trusted = 1 };
    hr_rendered r;
    hr_buf text = { 0 };
    if (render(source,
               "{\"d\": \"<Da>\", \"l\": [\"<x>\", \"<y>\"], \"n\": 7, \"bos_token\": \"<s>\"}", &o,
               &r))
        fail_msg("%s: %s", source, hr_message());
    size_t total = 0;
    for (size_t i = 0; i < r.n_spans; i++) {
        bool data = r.spans[i].kind == HR_SPAN_PLAIN;
        if (i) assert_int_not_equal(r.spans[i].kind, r.spans[i - 1].kind);
        assert_ptr_equal(r.spans[i].text.p, r.text.p + total);
        total += r.spans[i].text.n;
        if (data) hr_buf_add_c(&text, "{");
        hr_buf_add_str(&text, r.spans[i].text);
        if (data) hr_buf_add_c(&text, "}");
    }
    assert_int_equal(total, r.text.n);
    assert_string_equal(hr_buf_c(&text), expected);
    hr_buf_deinit(&text);
    hr_rendered_deinit(&r);
}

static void marks_follow_the_bytes(void **state)
{
    (void)state;
    comes_from("<t>{{ d }}<t>", "<t>{<Da>}<t>");
    comes_from("{{ bos_token }}{{ d }}", "<s>{<Da>}");
    comes_from("{{ '<t>' + d + bos_token ~ d }}", "<t>{<Da>}<s>{<Da>}");
    comes_from("{% set x = 'a' ~ d %}{% set y %}{{ x }}b{% endset %}{{ y }}", "a{<Da>}b");
    comes_from("{% macro m(x) %}({{ x }}{{ caller() }}){% endmacro %}"
               "{% call m(d) %}{{ d[1:3] }}{% endcall %}",
               "({<Da>Da})");
    comes_from("{% filter upper %}a{{ d }}{% endfilter %}", "A{<DA>}");
    comes_from("{% generation %}{{ d }}{% endgeneration %}", "{<Da>}");
    comes_from("{{ ('ab' ~ d ~ 'cd')[1:-1] }}", "b{<Da>}c");
    comes_from("{{ ('ab' ~ d)[::-1] }}", "{>aD<}ba");
    comes_from("{{ ('a' ~ d) * 2 }}", "a{<Da>}a{<Da>}");
    comes_from("{% for c in 'a' ~ d %}{{ c }}.{% endfor %}", "a.{<}.{D}.{a}.{>}.");
    comes_from("{{ (d if true else 'x') }}{{ d or 'x' }}{{ nope or 'x' }}", "{<Da><Da>}x");
}

static void marks_pass_through_filters(void **state)
{
    (void)state;
    comes_from("{{ (' ' ~ d ~ 'a ')|trim }}", "{<Da>}a");
    comes_from("{{ ('a' ~ d)|lower }}{{ d|title }}{{ d|capitalize }}", "a{<da><Da><da>}");
    comes_from("{{ 'a-b'|replace('-', d) }}", "a{<Da>}b");
    comes_from("{{ ('a-b' ~ d)|replace('D', '-') }}", "a-b{<}-{a>}");
    comes_from("{{ l|join('|') }}{{ ['a', 'b']|join(d) }}", "{<x>}|{<y>}a{<Da>}b");
    comes_from("{{ l }}", "['{<x>}', '{<y>}']");
    comes_from("{{ {'k': d}|tojson }}", "{\"k\": \"{<Da>}\"}");
    comes_from("{{ l|tojson }}", "[\"{<x>}\", \"{<y>}\"]");
    comes_from("{{ (d ~ '\\n' ~ d)|indent(2) }}", "{<Da>}\n  {<Da>}");
    comes_from("{{ (d ~ 'abcdefghijk')|truncate(8, true, '!', 0) }}", "{<Da>}abc!");
    comes_from("{{ d|e }}", "{&lt;Da&gt;}");
    comes_from("{{ d|urlencode }}", "{%3CDa%3E}");
    comes_from("{{ d|reverse }}{{ d|first }}{{ l|last }}{{ d|list|join }}", "{>aD<<<y><Da>}");
    comes_from("{{ l|map('upper')|join }}{{ l|sort(reverse=true)|first }}", "{<X><Y><y>}");
    comes_from("{{ nope|default(d) }}{{ d|default('x') }}{{ d|string }}{{ d|center(6) }}",
               "{<Da><Da><Da>} {<Da>} ");
    comes_from("{{ '[%s|%5s]' % (d, d) }}", "[{<Da>}| {<Da>}]");
    comes_from("{{ '<%s>'|format(d) }}{{ '({}-{:>5})'.format(d, d) }}", "<{<Da>}>({<Da>}- {<Da>})");
    comes_from("{{ (d ~ '%s') % 'x' }}", "{<Da>}x");
}

static void marks_pass_through_methods(void **state)
{
    (void)state;
    comes_from("{{ ('a' ~ d).split('D') }}", "['a{<}', '{a>}']");
    comes_from("{{ ('a' ~ d).partition('<')[2] }}{{ ('x,' ~ d).rsplit(',', 1)[1] }}", "{Da><Da>}");
    comes_from("{{ (d ~ 'a').rstrip('a') }}{{ d.upper() }}{{ d.strip('<>') }}", "{<Da><DA>Da}");
    comes_from("{{ d.replace('D', 'E') }}{{ '-'.join(l) }}{{ d.zfill(6) }}{{ d.ljust(5, '.') }}",
               "{<}E{a><x>}-{<y>}00{<Da><Da>}.");
    comes_from("{{ {'a': d}.get('a') }}{{ {'a': d}.values()|first }}{{ {d: 1}|first }}",
               "{<Da><Da><Da>}");
}

static void numbers_from_data_are_data(void **state)
{
    (void)state;
    comes_from("{{ n }}|{{ n + 1 }}|{{ 1 + 1 }}|{{ l|length }}|{{ [n]|tojson }}|{{ n ~ '' }}",
               "{7}|{8}|2|2|[{7}]|{7}");
    comes_from("{{ '7'|int }}{{ (n ~ '')|int }}{{ '%d' % n }}{{ n|float }}", "7{777.0}");
}

/* ---- limits --------------------------------------------------------------------------------- */

static void exhausts(const char *source, hr_template_limits limits)
{
    hr_rendered r;
    hr_render_options o = { .limits = limits };
    hr_status st = render(source, "{}", &o, &r);
    if (st != HR_RESOURCE_EXHAUSTED)
        fail_msg("%s: %s %s", source, hr_status_name(st), hr_message());
    assert_null(r.spans);
}

static void rendering_is_bounded(void **state)
{
    (void)state;
    hr_template_limits none = { 0 };
    exhausts("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
             none);
    exhausts("{{ 'x' * 100000000000 }}", none);
    exhausts("{% set l = [0] * 100000000000 %}", none);
    exhausts("{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s * 9 %}"
             "{% endfor %}",
             none);
    exhausts("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", none);
    exhausts("{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}", none);
    exhausts("{% set n = namespace(s=[]) %}{% for i in range(9999) %}{% set n.s = [n.s] %}"
             "{% endfor %}{{ n.s }}",
             none);
    exhausts("{% for i in range(1000) %}{{ i }}{% endfor %}",
             (hr_template_limits){ .max_steps = 500 });
    exhausts("{% for i in range(1000) %}{{ i }}{% endfor %}",
             (hr_template_limits){ .max_output = 99 });
    exhausts("{% for i in range(1000) %}{% set x = [i] %}{% endfor %}",
             (hr_template_limits){ .max_memory = 4096 });
    exhausts("{{ ((((((1)+1)+1)+1)+1)+1) }}", (hr_template_limits){ .max_depth = 4 });
}

static void deep_templates_are_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = { "(",  "[",  "{'a':", "-",    "not ",
                                          "f(", "1+", "a or ", "a.b.", "1 if 1 else " };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        hr_buf b = { 0 };
        hr_template *t;
        hr_buf_add_c(&b, "{{ ");
        for (int k = 0; k < 20000; k++) hr_buf_add_c(&b, pieces[i]);
        hr_buf_add_c(&b, "a }}");
        hr_status st = hr_template_parse(hr_buf_str(&b), &t);
        if (!st) fail_msg("20000 of %s", pieces[i]);
        hr_buf_deinit(&b);
    }
}

static void reads_tells_variables_from_locals(void **state)
{
    hr_template *t;
    (void)state;
    assert_int_equal(hr_template_parse(HR_STR("{% set a = 1 %}{% for m in messages %}{% if tools %}"
                                              "{{ a }}{{ m.enable }}{% endif %}{% endfor %}"
                                              "{% macro f(p) %}{{ deep }}{{ p }}{% endmacro %}"),
                                       &t),
                     HR_OK);
    assert_true(hr_template_reads(t, "messages"));
    assert_true(hr_template_reads(t, "tools"));
    assert_true(hr_template_reads(t, "deep"));
    assert_false(hr_template_reads(t, "a"));
    assert_false(hr_template_reads(t, "m"));
    assert_false(hr_template_reads(t, "p"));
    assert_false(hr_template_reads(t, "enable"));
    hr_template_destroy(t);
}

/* ---- memory that runs out ------------------------------------------------------------------- */

static size_t allowed; /* allocations until the next one fails */

static void *failing_alloc(void *self, size_t bytes, size_t align)
{
    (void)self;
    (void)align;
    return allowed && allowed-- ? malloc(bytes) : NULL;
}

static void *failing_realloc(void *self, void *p, size_t bytes)
{
    (void)self;
    return allowed && allowed-- ? realloc(p, bytes) : NULL;
}

static void plain_free(void *self, void *p)
{
    (void)self;
    free(p);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const hr_json *v = json("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    const hr_allocator a = { failing_alloc, failing_realloc, plain_free, NULL };
    hr_status st = HR_RESOURCE_EXHAUSTED;
    size_t n = 0;
    for (; st && n < 200; n++) {
        hr_template *t;
        hr_rendered r;
        hr_set_allocator(&a);
        allowed = n;
        st = hr_template_parse(HR_STR("{% for m in messages %}{{ m.content|upper ~ m|tojson }}"
                                      "{% endfor %}"),
                               &t);
        if (!st) st = hr_template_render(t, v, NULL, &r);
        if (!st) hr_rendered_deinit(&r);
        hr_template_destroy(t);
        hr_set_allocator(NULL);
        if (st) assert_int_equal(st, HR_RESOURCE_EXHAUSTED);
    }
    assert_int_equal(st, HR_OK);
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_inside_a_loop),
        cmocka_unit_test(macros),
        cmocka_unit_test(slices_with_step),
        cmocka_unit_test(characters_not_bytes),
        cmocka_unit_test(tojson_as_transformers),
        cmocka_unit_test(blocks_are_trimmed),
        cmocka_unit_test(time_in_english),
        cmocka_unit_test(tags_beyond_plain_jinja),
        cmocka_unit_test(undefined_none_string_methods),
        cmocka_unit_test(a_template_refuses_in_its_own_words),
        cmocka_unit_test(templates_as_a_list),
        cmocka_unit_test(syntax_errors_name_line_and_column),
        cmocka_unit_test(marks_follow_the_bytes),
        cmocka_unit_test(marks_pass_through_filters),
        cmocka_unit_test(marks_pass_through_methods),
        cmocka_unit_test(numbers_from_data_are_data),
        cmocka_unit_test(rendering_is_bounded),
        cmocka_unit_test(deep_templates_are_refused),
        cmocka_unit_test(reads_tells_variables_from_locals),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
