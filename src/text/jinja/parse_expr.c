/* Expressions: tokens to trees, by recursive descent with jinja2's precedences.
 *
 * From loose to tight: x if y else z · or · and · not · comparisons (a chain) · + - · ~ · * / // %
 * · ** · sign · postfix (.name, [item], call) · filters and tests. A sign binds looser than a
 * postfix but tighter than a filter: -1|abs is (-1)|abs. Nesting is bounded, since input decides
 * it. Owns nothing; nodes go to the template's arena. */
#include <stdlib.h>

#include "text/jinja/jinja_int.h"

static const hr_jtoken *now(const hr_jparser *p)
{
    return &p->tokens[p->at];
}

static const hr_jtoken *take(hr_jparser *p)
{
    const hr_jtoken *t = now(p);
    if (t->kind != HR_JT_EOF) p->at++;
    return t;
}

static hr_status make(hr_jparser *p, hr_jnode_kind kind, hr_template_place at, hr_jnode **out)
{
    *out = hr_jinja_node(p, kind);
    if (!*out) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    (*out)->at = at;
    return HR_OK;
}

/* ---- primaries ------------------------------------------------------------------------------ */

static hr_status constant(hr_jparser *p, hr_jval v, hr_template_place at, hr_jnode **out)
{
    HR_TRY(make(p, HR_JN_CONST, at, out));
    (*out)->value = v;
    return HR_OK;
}

static hr_status parse_integer(hr_jparser *p, const hr_jtoken *t, hr_jnode **out)
{
    char x = t->text.n > 1 ? (char)(t->text.p[1] | 32) : ' ';
    int base = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
    char digits[72];
    hr_str s = base == 10 ? t->text : hr_str_slice(t->text, 2, t->text.n);
    if (s.n >= sizeof digits) return hr_jinja_syntax(p, "an integer beyond 64 bits");
    memcpy(digits, s.p, s.n);
    digits[s.n] = '\0';
    char *end;
    unsigned long long v = strtoull(digits, &end, base);
    if (*end || v > INT64_MAX) return hr_jinja_syntax(p, "an integer beyond 64 bits");
    return constant(p, hr_jinja_int((int64_t)v), t->at, out);
}

static hr_status parse_float(hr_jparser *p, const hr_jtoken *t, hr_jnode **out)
{
    double v;
    hr_status st = hr_str_to_f64(t->text, &v);
    if (st) return hr_jinja_syntax(p, "this number is out of range");
    return constant(p, hr_jinja_float(v), t->at, out);
}

/* Strings that stand side by side are one. */
static hr_status parse_string(hr_jparser *p, const hr_jtoken *t, hr_jnode **out)
{
    size_t n = t->text.n, from = p->at;
    while (now(p)->kind == HR_JT_STRING) n += take(p)->text.n;
    char *text = hr_arena_alloc(p->arena, n + 1);
    hr_jstr *s = hr_arena_new(p->arena, hr_jstr);
    if (!text || !s) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    size_t at = 0;
    for (size_t i = from - 1; i < p->at; i++) {
        hr_str part = p->tokens[i].text;
        if (part.n) memcpy(text + at, part.p, part.n);
        at += part.n;
    }
    *s = (hr_jstr){ .p = text, .n = n };
    for (size_t i = 0; i < n; i++) s->chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    return constant(p, (hr_jval){ .kind = HR_J_STR, .as.s = s }, t->at, out);
}

static hr_status parse_name(hr_jparser *p, const hr_jtoken *t, hr_jtuple_flags flags,
                            hr_jnode **out)
{
    hr_str s = t->text;
    if (hr_str_eq_c(s, "true") || hr_str_eq_c(s, "True"))
        return constant(p, hr_jinja_bool(true), t->at, out);
    if (hr_str_eq_c(s, "false") || hr_str_eq_c(s, "False"))
        return constant(p, hr_jinja_bool(false), t->at, out);
    if (hr_str_eq_c(s, "none") || hr_str_eq_c(s, "None"))
        return constant(p, hr_jinja_none(), t->at, out);
    bool ns = (flags & HR_JTUPLE_NAMESPACE) && hr_jinja_skip_op(p, ".");
    HR_TRY(make(p, ns ? HR_JN_NSREF : HR_JN_NAME, t->at, out));
    (*out)->name = s;
    if (!ns) return HR_OK;
    hr_str attr;
    HR_TRY(hr_jinja_expect_name(p, &attr));
    hr_jstr *key = hr_arena_new(p->arena, hr_jstr);
    if (!key) return hr_fail(HR_RESOURCE_EXHAUSTED, "memory for a chat template");
    *key = (hr_jstr){ .p = attr.p, .n = attr.n };
    for (size_t i = 0; i < attr.n; i++) key->chars += ((unsigned char)attr.p[i] & 0xC0) != 0x80;
    (*out)->value = (hr_jval){ .kind = HR_J_STR, .as.s = key };
    return HR_OK;
}

static hr_status parse_list(hr_jparser *p, hr_template_place at, hr_jnode **out)
{
    HR_TRY(make(p, HR_JN_LIST, at, out));
    while (!hr_jinja_skip_op(p, "]")) {
        if ((*out)->items.n) {
            HR_TRY(hr_jinja_expect_op(p, ","));
            if (hr_jinja_skip_op(p, "]")) break;
        }
        hr_jnode *item;
        HR_TRY(hr_jinja_parse_expression(p, &item));
        HR_TRY(hr_jinja_block_add(p->arena, &(*out)->items, item));
    }
    return HR_OK;
}

static hr_status parse_dict(hr_jparser *p, hr_template_place at, hr_jnode **out)
{
    HR_TRY(make(p, HR_JN_DICT, at, out));
    while (!hr_jinja_skip_op(p, "}")) {
        if ((*out)->items.n) {
            HR_TRY(hr_jinja_expect_op(p, ","));
            if (hr_jinja_skip_op(p, "}")) break;
        }
        hr_jnode *pair;
        HR_TRY(make(p, HR_JN_PAIR, now(p)->at, &pair));
        HR_TRY(hr_jinja_parse_expression(p, &pair->a));
        HR_TRY(hr_jinja_expect_op(p, ":"));
        HR_TRY(hr_jinja_parse_expression(p, &pair->b));
        HR_TRY(hr_jinja_block_add(p->arena, &(*out)->items, pair));
    }
    return HR_OK;
}

static hr_status parse_primary(hr_jparser *p, hr_jtuple_flags flags, hr_jnode **out)
{
    const hr_jtoken *t = now(p);
    switch (t->kind) {
    case HR_JT_NAME: take(p); return parse_name(p, t, flags, out);
    case HR_JT_STRING: take(p); return parse_string(p, t, out);
    case HR_JT_INTEGER: take(p); return parse_integer(p, t, out);
    case HR_JT_FLOAT: take(p); return parse_float(p, t, out);
    case HR_JT_OPERATOR:
        if (hr_jinja_skip_op(p, "(")) {
            HR_TRY(hr_jinja_parse_tuple(p, HR_JTUPLE_PARENS, NULL, out));
            return hr_jinja_expect_op(p, ")");
        }
        if (hr_jinja_skip_op(p, "[")) return parse_list(p, t->at, out);
        if (hr_jinja_skip_op(p, "{")) return parse_dict(p, t->at, out);
        break;
    case HR_JT_EOF:
    case HR_JT_DATA:
    case HR_JT_VARIABLE_BEGIN:
    case HR_JT_VARIABLE_END:
    case HR_JT_BLOCK_BEGIN:
    case HR_JT_BLOCK_END: break;
    }
    return hr_jinja_syntax(p, "an expression is expected");
}

static bool at_tuple_end(const hr_jparser *p, const char *end_name)
{
    hr_jtoken_kind k = now(p)->kind;
    return k == HR_JT_VARIABLE_END || k == HR_JT_BLOCK_END || hr_jinja_at_op(p, ")") ||
           (end_name && hr_jinja_at_name(p, end_name));
}

static hr_status parse_or(hr_jparser *p, hr_jnode **out);

static hr_status parse_tuple_item(hr_jparser *p, hr_jtuple_flags flags, hr_jnode **out)
{
    if (flags & HR_JTUPLE_SIMPLE) return parse_primary(p, flags, out);
    return flags & HR_JTUPLE_NO_COND ? parse_or(p, out) : hr_jinja_parse_expression(p, out);
}

hr_status hr_jinja_parse_tuple(hr_jparser *p, hr_jtuple_flags flags, const char *end_name,
                               hr_jnode **out)
{
    hr_jblock items = { 0 };
    hr_template_place at = now(p)->at;
    bool tuple = false;
    for (;;) {
        hr_jnode *item;
        if (items.n) HR_TRY(hr_jinja_expect_op(p, ","));
        if (at_tuple_end(p, end_name)) break;
        HR_TRY(parse_tuple_item(p, flags, &item));
        HR_TRY(hr_jinja_block_add(p->arena, &items, item));
        if (!hr_jinja_at_op(p, ",")) break;
        tuple = true;
    }
    if (!tuple && items.n) {
        *out = items.items[0];
        return HR_OK;
    }
    if (!tuple && !(flags & HR_JTUPLE_PARENS))
        return hr_jinja_syntax(p, "an expression is expected");
    HR_TRY(make(p, HR_JN_TUPLE, at, out));
    (*out)->items = items;
    return HR_OK;
}

/* ---- postfix: attributes, items, calls ------------------------------------------------------ */

static bool at_slice_end(const hr_jparser *p)
{
    return hr_jinja_at_op(p, "]") || hr_jinja_at_op(p, ",");
}

static hr_status parse_subscript_part(hr_jparser *p, hr_jnode **out)
{
    hr_template_place at = now(p)->at;
    hr_jnode *start = NULL, *slice;
    if (!hr_jinja_at_op(p, ":")) {
        HR_TRY(hr_jinja_parse_expression(p, &start));
        if (!hr_jinja_at_op(p, ":")) {
            *out = start;
            return HR_OK;
        }
    }
    take(p);
    HR_TRY(make(p, HR_JN_SLICE, at, &slice));
    slice->a = start;
    if (!hr_jinja_at_op(p, ":") && !at_slice_end(p))
        HR_TRY(hr_jinja_parse_expression(p, &slice->b));
    if (hr_jinja_skip_op(p, ":") && !at_slice_end(p))
        HR_TRY(hr_jinja_parse_expression(p, &slice->c));
    *out = slice;
    return HR_OK;
}

static hr_status parse_item(hr_jparser *p, hr_jnode *of, hr_jnode **out)
{
    hr_template_place at = now(p)->at;
    hr_jnode *tuple;
    HR_TRY(make(p, HR_JN_TUPLE, at, &tuple));
    while (!hr_jinja_skip_op(p, "]")) {
        hr_jnode *part;
        if (tuple->items.n) HR_TRY(hr_jinja_expect_op(p, ","));
        HR_TRY(parse_subscript_part(p, &part));
        HR_TRY(hr_jinja_block_add(p->arena, &tuple->items, part));
    }
    HR_TRY(make(p, HR_JN_GETITEM, at, out));
    (*out)->a = of;
    (*out)->b = tuple->items.n == 1 ? tuple->items.items[0] : tuple;
    for (size_t i = 0; tuple->items.n > 1 && i < tuple->items.n; i++)
        if (tuple->items.items[i]->kind == HR_JN_SLICE)
            return hr_jinja_syntax(p, "a slice of several dimensions is not supported");
    return HR_OK;
}

static hr_status parse_dot(hr_jparser *p, hr_jnode *of, hr_jnode **out)
{
    const hr_jtoken *t = now(p);
    if (t->kind == HR_JT_INTEGER) {
        HR_TRY(make(p, HR_JN_GETITEM, t->at, out));
        (*out)->a = of;
        take(p);
        return parse_integer(p, t, &(*out)->b);
    }
    HR_TRY(make(p, HR_JN_GETATTR, t->at, out));
    (*out)->a = of;
    return hr_jinja_expect_name(p, &(*out)->name);
}

static hr_status parse_keyword(hr_jparser *p, hr_jnode *n)
{
    hr_jnode *k;
    HR_TRY(make(p, HR_JN_KEYWORD, now(p)->at, &k));
    k->name = take(p)->text;
    take(p); /* "=" */
    HR_TRY(hr_jinja_parse_expression(p, &k->a));
    for (size_t i = 0; i < n->kw.n; i++)
        if (hr_str_eq(n->kw.items[i]->name, k->name))
            return hr_jinja_syntax(p, "keyword argument repeated: %.*s", HR_STR_ARG(k->name));
    return hr_jinja_block_add(p->arena, &n->kw, k);
}

static bool at_keyword(const hr_jparser *p)
{
    const hr_jtoken *t = now(p);
    return t->kind == HR_JT_NAME && t[1].kind == HR_JT_OPERATOR && hr_str_eq_c(t[1].text, "=");
}

static hr_status parse_argument(hr_jparser *p, hr_jnode *n)
{
    if (hr_jinja_at_op(p, "*") && !n->star && !n->star2) {
        take(p);
        return hr_jinja_parse_expression(p, &n->star);
    }
    if (hr_jinja_at_op(p, "**") && !n->star2) {
        take(p);
        return hr_jinja_parse_expression(p, &n->star2);
    }
    if (at_keyword(p) && !n->star2) return parse_keyword(p, n);
    if (n->star || n->star2 || n->kw.n)
        return hr_jinja_syntax(p, "invalid syntax for function call expression");
    hr_jnode *arg;
    HR_TRY(hr_jinja_parse_expression(p, &arg));
    return hr_jinja_block_add(p->arena, &n->items, arg);
}

/* After "(", up to and with ")". */
static hr_status parse_arguments(hr_jparser *p, hr_jnode *n)
{
    for (bool more = false; !hr_jinja_skip_op(p, ")"); more = true) {
        if (more) {
            HR_TRY(hr_jinja_expect_op(p, ","));
            if (hr_jinja_skip_op(p, ")")) break;
        }
        HR_TRY(parse_argument(p, n));
    }
    return HR_OK;
}

static hr_status parse_call(hr_jparser *p, hr_jnode *of, hr_jnode **out)
{
    HR_TRY(make(p, HR_JN_CALL, of->at, out)); /* shown by its name */
    (*out)->a = of;
    return parse_arguments(p, *out);
}

static hr_status parse_postfix(hr_jparser *p, hr_jnode **node)
{
    for (;;) {
        if (hr_jinja_skip_op(p, ".")) HR_TRY(parse_dot(p, *node, node));
        else if (hr_jinja_skip_op(p, "[")) HR_TRY(parse_item(p, *node, node));
        else if (hr_jinja_skip_op(p, "(")) HR_TRY(parse_call(p, *node, node));
        else return HR_OK;
    }
}

/* ---- filters and tests ---------------------------------------------------------------------- */

static hr_status dotted_name(hr_jparser *p, hr_str *out)
{
    HR_TRY(hr_jinja_expect_name(p, out));
    if (hr_jinja_at_op(p, ".")) return hr_jinja_syntax(p, "no filter or test has a dotted name");
    return HR_OK;
}

static hr_status parse_filter(hr_jparser *p, hr_jnode **node)
{
    hr_jnode *f;
    HR_TRY(make(p, HR_JN_FILTER, now(p)->at, &f));
    f->a = *node;
    HR_TRY(dotted_name(p, &f->name));
    f->filter = hr_jinja_find_filter(f->name);
    if (hr_jinja_skip_op(p, "(")) HR_TRY(parse_arguments(p, f));
    *node = f;
    return HR_OK;
}

hr_status hr_jinja_parse_filters(hr_jparser *p, hr_jchain first, hr_jnode **node)
{
    if (first == HR_JCHAIN_INLINE) HR_TRY(parse_filter(p, node));
    while (hr_jinja_skip_op(p, "|")) HR_TRY(parse_filter(p, node));
    return HR_OK;
}

/* A test's single argument may stand without parentheses: x is divisibleby 3. */
static bool at_bare_argument(const hr_jparser *p)
{
    switch (now(p)->kind) {
    case HR_JT_NAME:
        return !hr_jinja_at_name(p, "else") && !hr_jinja_at_name(p, "or") &&
               !hr_jinja_at_name(p, "and");
    case HR_JT_STRING:
    case HR_JT_INTEGER:
    case HR_JT_FLOAT: return true;
    case HR_JT_OPERATOR: return hr_jinja_at_op(p, "[") || hr_jinja_at_op(p, "{");
    case HR_JT_EOF:
    case HR_JT_DATA:
    case HR_JT_VARIABLE_BEGIN:
    case HR_JT_VARIABLE_END:
    case HR_JT_BLOCK_BEGIN:
    case HR_JT_BLOCK_END: break;
    }
    return false;
}

static hr_status parse_test(hr_jparser *p, hr_jnode **node)
{
    hr_jnode *t, *not ;
    hr_template_place at = now(p)->at;
    bool negated = hr_jinja_skip_name(p, "not");
    HR_TRY(make(p, HR_JN_TEST, at, &t));
    t->a = *node;
    HR_TRY(dotted_name(p, &t->name));
    t->test = hr_jinja_find_test(t->name);
    if (hr_jinja_skip_op(p, "(")) {
        HR_TRY(parse_arguments(p, t));
    } else if (at_bare_argument(p)) {
        hr_jnode *arg;
        if (hr_jinja_at_name(p, "is"))
            return hr_jinja_syntax(p, "you cannot chain multiple tests with is");
        HR_TRY(parse_primary(p, HR_JTUPLE_DEFAULT, &arg));
        HR_TRY(parse_postfix(p, &arg));
        HR_TRY(hr_jinja_block_add(p->arena, &t->items, arg));
    }
    *node = t;
    if (!negated) return HR_OK;
    HR_TRY(make(p, HR_JN_NOT, at, &not ));
    not ->a = t;
    *node = not ;
    return HR_OK;
}

static hr_status parse_filters_and_tests(hr_jparser *p, hr_jnode **node)
{
    for (;;) {
        if (hr_jinja_skip_op(p, "|")) HR_TRY(parse_filter(p, node));
        else if (hr_jinja_skip_name(p, "is")) HR_TRY(parse_test(p, node));
        else if (hr_jinja_skip_op(p, "(")) HR_TRY(parse_call(p, *node, node));
        else return HR_OK;
    }
}

/* ---- operators ------------------------------------------------------------------------------ */

static hr_status parse_sign(hr_jparser *p, hr_jnode **out)
{
    if (++p->depth > HR_JINJA_MAX_NESTING) return hr_jinja_syntax(p, "nested too deeply");
    hr_jop op = hr_jinja_at_op(p, "-") ? HR_JOP_SUB : HR_JOP_ADD;
    if (op == HR_JOP_SUB || hr_jinja_at_op(p, "+")) {
        HR_TRY(make(p, HR_JN_UNARY, take(p)->at, out));
        (*out)->op = (uint8_t)op;
        HR_TRY(parse_sign(p, &(*out)->a));
    } else {
        HR_TRY(parse_primary(p, HR_JTUPLE_DEFAULT, out));
    }
    p->depth--;
    return parse_postfix(p, out);
}

static hr_status parse_unary(hr_jparser *p, hr_jnode **out)
{
    HR_TRY(parse_sign(p, out));
    return parse_filters_and_tests(p, out);
}

typedef struct binary_op {
    const char *text;
    hr_jop op;
} binary_op;

/* left OP right OP right …, leaning left. */
static hr_status parse_left(hr_jparser *p, const binary_op *ops,
                            hr_status (*operand)(hr_jparser *, hr_jnode **), hr_jnode **out)
{
    HR_TRY(operand(p, out));
    for (const binary_op *o = ops; o->text;) {
        if (!hr_jinja_at_op(p, o->text)) {
            o++;
            continue;
        }
        hr_jnode *n;
        HR_TRY(make(p, HR_JN_BINARY, take(p)->at, &n));
        n->op = (uint8_t)o->op;
        n->a = *out;
        HR_TRY(operand(p, &n->b));
        *out = n;
        o = ops;
    }
    return HR_OK;
}

static hr_status parse_power(hr_jparser *p, hr_jnode **out)
{
    static const binary_op ops[] = { { "**", HR_JOP_POW }, { 0 } };
    return parse_left(p, ops, parse_unary, out);
}

static hr_status parse_product(hr_jparser *p, hr_jnode **out)
{
    static const binary_op ops[] = { { "*", HR_JOP_MUL },
                                     { "/", HR_JOP_DIV },
                                     { "//", HR_JOP_FLOORDIV },
                                     { "%", HR_JOP_MOD },
                                     { 0 } };
    return parse_left(p, ops, parse_power, out);
}

static hr_status parse_concat(hr_jparser *p, hr_jnode **out)
{
    HR_TRY(parse_product(p, out));
    if (!hr_jinja_at_op(p, "~")) return HR_OK;
    hr_jnode *n, *part = *out;
    HR_TRY(make(p, HR_JN_CONCAT, now(p)->at, &n));
    HR_TRY(hr_jinja_block_add(p->arena, &n->items, part));
    while (hr_jinja_skip_op(p, "~")) {
        HR_TRY(parse_product(p, &part));
        HR_TRY(hr_jinja_block_add(p->arena, &n->items, part));
    }
    *out = n;
    return HR_OK;
}

static hr_status parse_sum(hr_jparser *p, hr_jnode **out)
{
    static const binary_op ops[] = { { "+", HR_JOP_ADD }, { "-", HR_JOP_SUB }, { 0 } };
    return parse_left(p, ops, parse_concat, out);
}

/* Eats a comparison operator. */
static bool skip_comparison(hr_jparser *p, hr_jop *op)
{
    static const binary_op ops[] = { { "==", HR_JOP_EQ },
                                     { "!=", HR_JOP_NE },
                                     { "<", HR_JOP_LT },
                                     { "<=", HR_JOP_LE },
                                     { ">", HR_JOP_GT },
                                     { ">=", HR_JOP_GE },
                                     { 0 } };
    for (const binary_op *o = ops; o->text; o++)
        if (hr_jinja_skip_op(p, o->text)) {
            *op = o->op;
            return true;
        }
    *op = HR_JOP_IN;
    if (hr_jinja_skip_name(p, "in")) return true;
    const hr_jtoken *t = now(p);
    if (!hr_jinja_at_name(p, "not") || t[1].kind != HR_JT_NAME || !hr_str_eq_c(t[1].text, "in"))
        return false;
    p->at += 2;
    *op = HR_JOP_NOTIN;
    return true;
}

static hr_status parse_compare(hr_jparser *p, hr_jnode **out)
{
    hr_jnode *n = NULL, *operand;
    hr_jop op;
    HR_TRY(parse_sum(p, out));
    while (skip_comparison(p, &op)) {
        if (!n) {
            HR_TRY(make(p, HR_JN_COMPARE, now(p)->at, &n));
            n->a = *out;
        }
        HR_TRY(make(p, HR_JN_OPERAND, now(p)->at, &operand));
        operand->op = (uint8_t)op;
        HR_TRY(parse_sum(p, &operand->a));
        HR_TRY(hr_jinja_block_add(p->arena, &n->items, operand));
    }
    if (n) *out = n;
    return HR_OK;
}

static hr_status parse_not(hr_jparser *p, hr_jnode **out)
{
    if (!hr_jinja_at_name(p, "not")) return parse_compare(p, out);
    if (++p->depth > HR_JINJA_MAX_NESTING) return hr_jinja_syntax(p, "nested too deeply");
    HR_TRY(make(p, HR_JN_NOT, take(p)->at, out));
    HR_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return HR_OK;
}

static hr_status parse_logic(hr_jparser *p, const char *word, hr_jnode_kind kind,
                             hr_status (*operand)(hr_jparser *, hr_jnode **), hr_jnode **out)
{
    HR_TRY(operand(p, out));
    while (hr_jinja_at_name(p, word)) {
        hr_jnode *n;
        HR_TRY(make(p, kind, take(p)->at, &n));
        n->a = *out;
        HR_TRY(operand(p, &n->b));
        *out = n;
    }
    return HR_OK;
}

static hr_status parse_and(hr_jparser *p, hr_jnode **out)
{
    return parse_logic(p, "and", HR_JN_AND, parse_not, out);
}

static hr_status parse_or(hr_jparser *p, hr_jnode **out)
{
    return parse_logic(p, "or", HR_JN_OR, parse_and, out);
}

hr_status hr_jinja_parse_expression(hr_jparser *p, hr_jnode **out)
{
    *out = NULL;
    if (++p->depth > HR_JINJA_MAX_NESTING) return hr_jinja_syntax(p, "nested too deeply");
    HR_TRY(parse_or(p, out));
    while (hr_jinja_at_name(p, "if")) {
        hr_jnode *n;
        HR_TRY(make(p, HR_JN_COND, take(p)->at, &n));
        n->a = *out;
        HR_TRY(parse_or(p, &n->b));
        if (hr_jinja_skip_name(p, "else")) HR_TRY(hr_jinja_parse_expression(p, &n->c));
        *out = n;
    }
    p->depth--;
    return HR_OK;
}
