/* The tests of "is", with jinja2's names. */
#include "text/jinja/jinja_int.h"

static hr_status say(hr_jval *out, bool yes)
{
    *out = hr_jinja_bool(yes);
    return HR_OK;
}

static hr_status remainder_is(hr_jinterp *it, hr_jval a, hr_jval b, int64_t want, hr_jval *out)
{
    hr_jval rest;
    bool same;
    HR_TRY(hr_jinja_binary(it, HR_JOP_MOD, a, b, &rest));
    HR_TRY(hr_jinja_equal(it, rest, hr_jinja_int(want), &same));
    return say(out, same);
}

static hr_status test_odd(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return remainder_is(it, self, hr_jinja_int(2), 1, out);
}

static hr_status test_even(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    return remainder_is(it, self, hr_jinja_int(2), 0, out);
}

static hr_status test_divisibleby(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return remainder_is(it, self, args->pos[0], 0, out);
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static hr_status test_defined(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind != HR_J_UNDEFINED);
}

static hr_status test_undefined(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_UNDEFINED);
}

static hr_status test_none(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_NONE);
}

static hr_status test_boolean(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_BOOL);
}

static hr_status test_true(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_BOOL && self.as.b);
}

static hr_status test_false(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_BOOL && !self.as.b);
}

static hr_status test_integer(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_INT || self.kind == HR_J_BIG);
}

static hr_status test_float(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_FLOAT);
}

/* Truth values are numbers, as in Python. */
static hr_status test_number(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind >= HR_J_BOOL && self.kind <= HR_J_FLOAT);
}

static hr_status test_string(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_STR);
}

static hr_status test_mapping(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_DICT);
}

/* Has a length and items by index; an undefined value passes, as in jinja2. */
static hr_status test_sequence(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    size_t n;
    (void)it;
    (void)args;
    return say(out, hr_jinja_length(self, &n) && self.kind != HR_J_VIEW);
}

static hr_status test_iterable(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, hr_jinja_iterable(self));
}

static hr_status test_callable(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, self.kind == HR_J_FUNCTION || self.kind == HR_J_MACRO ||
                        self.kind == HR_J_LOOP || self.kind == HR_J_JOINER ||
                        self.kind == HR_J_UNDEFINED);
}

static hr_status test_escaped(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)it;
    (void)args;
    return say(out, hr_jinja_is_markup(self));
}

/* The same object: the same singleton, number, or place in memory. */
static hr_status test_sameas(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval other = args->pos[0];
    (void)it;
    if (self.kind != other.kind) return say(out, false);
    if (self.kind == HR_J_NONE) return say(out, true);
    if (self.kind == HR_J_BOOL) return say(out, self.as.b == other.as.b);
    if (self.kind == HR_J_INT) return say(out, self.as.i == other.as.i);
    if (self.kind == HR_J_FLOAT) return say(out, self.as.f == other.as.f);
    return say(out, self.as.s == other.as.s);
}

static hr_status test_lower(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return say(out, hr_jinja_all_cased(self.as.s, HR_JC_LOWER));
}

static hr_status test_upper(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    HR_TRY(hr_jinja_to_str(it, self, &self));
    return say(out, hr_jinja_all_cased(self.as.s, HR_JC_UPPER));
}

static hr_status need_hashable(hr_jinterp *it, hr_jval v)
{
    if (hr_jinja_hashable(v)) return HR_OK;
    return hr_jinja_fail(it, "unhashable type: '%s'", hr_jinja_type_name(v));
}

static hr_status test_filter(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    HR_TRY(need_hashable(it, self));
    return say(out, self.kind == HR_J_STR && hr_jinja_find_filter(hr_jinja_text(self.as.s)));
}

static hr_status test_test(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)args;
    HR_TRY(need_hashable(it, self));
    return say(out, self.kind == HR_J_STR && hr_jinja_find_test(hr_jinja_text(self.as.s)));
}

/* ---- comparisons ---------------------------------------------------------------------------- */

static hr_status compare(hr_jinterp *it, hr_jop op, hr_jval a, const hr_jargs *args, hr_jval *out)
{
    bool yes;
    HR_TRY(hr_jinja_compare(it, op, a, args->pos[0], &yes));
    return say(out, yes);
}

static hr_status test_eq(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_EQ, self, args, out);
}

static hr_status test_ne(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_NE, self, args, out);
}

static hr_status test_lt(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_LT, self, args, out);
}

static hr_status test_le(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_LE, self, args, out);
}

static hr_status test_gt(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_GT, self, args, out);
}

static hr_status test_ge(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_GE, self, args, out);
}

static hr_status test_in(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    return compare(it, HR_JOP_IN, self, args, out);
}

static const hr_jtest tests[] = {
    { { "!=", "$", 1, test_ne } },
    { { "<", "$", 1, test_lt } },
    { { "<=", "$", 1, test_le } },
    { { "==", "$", 1, test_eq } },
    { { ">", "$", 1, test_gt } },
    { { ">=", "$", 1, test_ge } },
    { { "boolean", "", 0, test_boolean } },
    { { "callable", "", 0, test_callable } },
    { { "defined", "", 0, test_defined } },
    { { "divisibleby", "num", 1, test_divisibleby } },
    { { "eq", "$", 1, test_eq } },
    { { "equalto", "$", 1, test_eq } },
    { { "escaped", "", 0, test_escaped } },
    { { "even", "", 0, test_even } },
    { { "false", "", 0, test_false } },
    { { "filter", "", 0, test_filter } },
    { { "float", "", 0, test_float } },
    { { "ge", "$", 1, test_ge } },
    { { "greaterthan", "$", 1, test_gt } },
    { { "gt", "$", 1, test_gt } },
    { { "in", "seq", 1, test_in } },
    { { "integer", "", 0, test_integer } },
    { { "iterable", "", 0, test_iterable } },
    { { "le", "$", 1, test_le } },
    { { "lessthan", "$", 1, test_lt } },
    { { "lower", "", 0, test_lower } },
    { { "lt", "$", 1, test_lt } },
    { { "mapping", "", 0, test_mapping } },
    { { "ne", "$", 1, test_ne } },
    { { "none", "", 0, test_none } },
    { { "number", "", 0, test_number } },
    { { "odd", "", 0, test_odd } },
    { { "sameas", "other", 1, test_sameas } },
    { { "sequence", "", 0, test_sequence } },
    { { "string", "", 0, test_string } },
    { { "test", "", 0, test_test } },
    { { "true", "", 0, test_true } },
    { { "undefined", "", 0, test_undefined } },
    { { "upper", "", 0, test_upper } },
};

const hr_jtest *hr_jinja_find_test(hr_str name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (hr_str_eq_c(name, tests[i].f.name)) return &tests[i];
    return NULL;
}
