/* Damaged templates: pieces of Jinja cut, doubled, swapped and overwritten, with a fixed seed. A
 * damaged template is refused or renders within its limits; what matters is that nothing is read or
 * written out of bounds (run under sanitizers) and that marks cover exactly what was written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/jinja/jinja.h"

#define ROUNDS 20000

static const char *const seeds[] = {
    "{%- for m in messages -%}\n  {{- '<|' + m.role + '|>' + m.content | trim + eos }}\n{% endfor "
    "%}",
    "{% macro f(a, b=1, c='x') %}{{ a }}{{ b ~ c }}{{ varargs }}{{ kwargs }}{% endmacro %}"
    "{{ f(1, c=[1, {'a': 2.5}], *[1, 2], **{'z': none}) }}",
    "{% set ns = namespace(x=0, s='é中😀') %}{% for i in range(5) if i is odd %}{% set ns.x = ns.x "
    "+ i %}"
    "{{ loop.index }}{{ loop.last }}{{ loop.nextitem }}{% else %}-{% endfor %}{{ ns.s[::-1][1:] }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('\\n') "
    "}}"
    "{{ messages[-1]['content'].split('a')[0].lstrip('\\u00e9 ') | tojson(indent=2) }}",
    "{% filter upper %}{% raw %}{{ x }}{% endraw %}{% endfilter %}{# c #}{%+ if a is defined and "
    "not b %}x"
    "{% elif 1 < 2 <= 3 %}y{% else %}{{ raise_exception('no') }}{% endif %}",
    "{% for x in messages recursive %}{{ x.role }}{{ loop.depth }}{{ loop(x.children or []) }}"
    "{% if loop.first %}{% continue %}{% endif %}{% break %}{% endfor %}",
    "{% call(y) g(3) %}{{ y }}{% endcall %}{% macro g(n) %}{{ caller(n) }}{% endmacro %}"
    "{% with a=1, b=a %}{{ a }}{% endwith %}{% set q | replace('a', 'b') %}aa{% endset %}{{ q }}",
    "{{ '%5.2f|%-4s|%(k)s' % (1.5, 'x') }}{{ '{:>{}}|{0!r}'.format('a', 4) }}{{ 7 // 2 ** -1 % 3 }}"
    "{{ [1, 2, 3][0:2:1] + [4] }}{{ {'a': (1,)}.items() | list }}{{ strftime_now('%Y-%j %c') }}",
    "{{ [3, 1, 2] | sort(reverse=true) | batch(2, 0) | list }}{{ 'a b c' | title | indent(2, true) "
    "}}"
    "{{ objs | groupby('k') }}{{ 'abc' | truncate(2, true, '') }}{{ 2.675 | round(2) | int }}",
};
static const char *const tokens[] = {
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "-",
    "+",
    "'",
    "\"",
    "\\",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    "~",
    ".",
    ",",
    ":",
    "=",
    "**",
    "//",
    "1e9",
    "0x",
    "for ",
    "in ",
    "if ",
    "else ",
    "endfor ",
    "endif ",
    "set ",
    "not ",
    "is ",
    "recursive ",
    "loop",
    "caller",
    "range(99999)",
    "*",
    "**kwargs",
    "\n",
    "\xC3",
    "é",
    "\\u12",
    "%s",
    "{0}",
    "namespace()",
    "|list",
    "|map('upper')",
    "|tojson",
};
#define N_SEEDS  (sizeof seeds / sizeof *seeds)
#define N_TOKENS (sizeof tokens / sizeof *tokens)

static uint64_t word = 88172645463325252u;

static size_t below(size_t n)
{
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    return (size_t)(word % n);
}

/* Replaces b[at, at + n) by text. */
static void splice(hr_buf *b, size_t at, size_t n, hr_str text)
{
    hr_buf out = { 0 };
    hr_buf_add(&out, b->p, at);
    hr_buf_add_str(&out, text);
    hr_buf_add(&out, b->p + at + n, b->n - at - n);
    hr_buf_deinit(b);
    *b = out;
}

static void damage(hr_buf *b)
{
    size_t at = below(b->n + 1), n = below(b->n - at + 1);
    if (n > 12) n = 12;
    switch (below(5)) {
    case 0: splice(b, at, n, (hr_str){ 0 }); break;
    case 1: splice(b, at, 0, hr_str_c(tokens[below(N_TOKENS)])); break;
    case 2: splice(b, at, n, hr_str_c(tokens[below(N_TOKENS)])); break;
    case 3: { /* a piece of another template */
        hr_str other = hr_str_c(seeds[below(N_SEEDS)]);
        size_t from = below(other.n), len = below(other.n - from) + 1;
        splice(b, at, 0, hr_str_slice(other, from, from + len));
        break;
    }
    default:
        if (at < b->n) b->p[at] = (char)below(128);
    }
}

static void check_spans(const hr_rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        assert_true(r->spans[i].text.n > 0);
        assert_ptr_equal(r->spans[i].text.p, r->text.p + at);
        at += r->spans[i].text.n;
    }
    assert_int_equal(at, r->text.n);
    assert_true(hr_utf8_valid(hr_buf_str(&r->text)));
}

static void damaged_templates(void **state)
{
    (void)state;
    hr_arena arena = { 0 };
    const hr_json *variables;
    static const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" a中é b\"}, {\"role\": \"assistant\", "
        "\"content\": \"x\", \"children\": [{\"role\": \"r\"}]}], \"eos\": \"</s>\", \"a\": 1.5, "
        "\"objs\": [{\"k\": \"b\"}, {\"k\": \"a\"}]}";
    assert_int_equal(hr_json_parse(HR_STR(text), NULL, &arena, &variables), HR_OK);
    const hr_render_options limits = {
        .limits = { .max_steps = 20000, .max_output = 1 << 20, .max_memory = 8 << 20 }
    };
    size_t rendered = 0;
    for (int i = 0; i < ROUNDS; i++) {
        hr_buf source = { 0 };
        hr_template *t;
        hr_rendered r = { 0 };
        hr_buf_add_c(&source, seeds[below(N_SEEDS)]);
        for (size_t k = below(4); k-- > 0;) damage(&source);
        hr_status st = hr_template_parse(hr_buf_str(&source), &t);
        if (!st) st = hr_template_render(t, variables, &limits, &r);
        assert_true(st != HR_INTERNAL);
        if (st) assert_true(hr_message()[0] != '\0');
        else check_spans(&r);
        rendered += st == HR_OK;
        hr_rendered_deinit(&r);
        hr_template_destroy(t);
        hr_buf_deinit(&source);
    }
    assert_true(rendered >
                ROUNDS / 10); /* damage that leaves nothing to run tests the parser only */
    hr_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(damaged_templates) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
