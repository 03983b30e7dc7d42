/* The functions that every template has: jinja2's range, dict, namespace, cycler and joiner, and
 * transformers' raise_exception and strftime_now. */
#include "text/jinja/jinja_int.h"

/* The sandbox's bound on the items of a range. */
#define MAX_RANGE 100000

static hr_status global_range(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    int64_t a[3] = { 0, 0, 1 };
    (void)self;
    if (args->n_kw || args->n < 1 || args->n > 3)
        return hr_jinja_fail(it, "range() takes one to three arguments");
    for (size_t i = 0; i < args->n; i++) {
        if (args->pos[i].kind == HR_J_UNDEFINED) return hr_jinja_fail_undefined(it, args->pos[i]);
        if (!hr_jinja_as_int(args->pos[i], &a[args->n == 1 ? 1 : i]))
            return hr_jinja_fail(it, "'%s' object cannot be interpreted as an integer",
                                 hr_jinja_type_name(args->pos[i]));
    }
    if (a[2] == 0) return hr_jinja_fail(it, "range() arg 3 must not be zero");
    bool up = a[2] > 0;
    uint64_t stride = up ? (uint64_t)a[2] : 0 - (uint64_t)a[2];
    uint64_t distance = up ? (uint64_t)a[1] - (uint64_t)a[0] : (uint64_t)a[0] - (uint64_t)a[1];
    bool some = up ? a[0] < a[1] : a[0] > a[1];
    uint64_t n = some ? (distance - 1) / stride + 1 : 0;
    if (n > MAX_RANGE)
        return hr_jinja_fail(
            it, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    hr_jrange *r;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *r, &r));
    *r = (hr_jrange){ a[0], a[1], a[2], (size_t)n };
    *out = (hr_jval){ .kind = HR_J_RANGE, .as.r = r };
    return HR_OK;
}

static hr_status add_pair(hr_jinterp *it, hr_jdict *d, hr_jval pair)
{
    const hr_jval *items;
    size_t n;
    HR_TRY(hr_jinja_collect(it, pair, &items, &n));
    if (n != 2)
        return hr_jinja_fail(it, "dictionary update sequence element has length %zu; 2 is required",
                             n);
    return hr_jinja_dict_set(it, d, items[0], items[1]);
}

/* dict(mapping or pairs, name=value …) */
static hr_status make_dict(hr_jinterp *it, const hr_jargs *args, hr_jdict **out)
{
    hr_jiter i;
    HR_TRY(hr_jinja_dict_new(it, 0, out));
    if (args->n > 1) return hr_jinja_fail(it, "dict expected at most 1 argument, got %zu", args->n);
    if (args->n && args->pos[0].kind == HR_J_DICT) {
        const hr_jdict *from = args->pos[0].as.d;
        for (size_t k = 0; k < from->n; k++)
            HR_TRY(hr_jinja_dict_set(it, *out, from->entries[k].key, from->entries[k].value));
    } else if (args->n) {
        HR_TRY(hr_jinja_iterate(it, args->pos[0], &i));
        for (bool more = true;;) {
            hr_jval pair;
            HR_TRY(hr_jinja_next(it, &i, &pair, &more));
            if (!more) break;
            HR_TRY(add_pair(it, *out, pair));
        }
    }
    for (size_t k = 0; k < args->n_kw; k++) {
        hr_jval key;
        HR_TRY(hr_jinja_string(it, args->names[k], false, &key));
        HR_TRY(hr_jinja_dict_set(it, *out, key, args->kw[k]));
    }
    return HR_OK;
}

static hr_status global_dict(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jdict *d;
    (void)self;
    HR_TRY(make_dict(it, args, &d));
    *out = (hr_jval){ .kind = HR_J_DICT, .as.d = d };
    return HR_OK;
}

static hr_status global_namespace(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jdict *d;
    (void)self;
    HR_TRY(make_dict(it, args, &d));
    *out = (hr_jval){ .kind = HR_J_NAMESPACE, .as.d = d };
    return HR_OK;
}

static hr_status global_cycler(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    (void)self;
    if (args->n_kw || !args->n) return hr_jinja_fail(it, "at least one item has to be provided");
    HR_TRY(hr_jinja_generator(it, args->pos, args->n, out));
    out->kind = HR_J_CYCLER;
    return HR_OK;
}

static hr_status global_joiner(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval *separator;
    (void)self;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *separator, &separator));
    *separator = args->pos[0];
    if (!separator->kind) HR_TRY(hr_jinja_string(it, HR_STR(", "), false, separator));
    HR_TRY(hr_jinja_generator(it, separator, 1, out));
    out->kind = HR_J_JOINER;
    return HR_OK;
}

/* The template refuses its input: its words go to the client as they are. */
static hr_status global_raise(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    hr_jval text;
    (void)self;
    (void)out;
    HR_TRY(hr_jinja_to_str(it, args->pos[0], &text));
    hr_str s = hr_jinja_text(text.as.s);
    if (it->options->failed) *it->options->failed = it->at;
    return hr_fail(HR_INVALID_ARGUMENT, "%.*s", HR_STR_ARG(s));
}

static hr_status global_strftime_now(hr_jinterp *it, hr_jval self, const hr_jargs *args,
                                     hr_jval *out)
{
    hr_jbuilder b = { .it = it };
    struct timespec now;
    struct tm tm;
    (void)self;
    if (args->pos[0].kind != HR_J_STR)
        return hr_jinja_fail(it, "strftime() argument 1 must be str, not %s",
                             hr_jinja_type_name(args->pos[0]));
    int microseconds = it->options->now_microseconds;
    if (it->options->now) {
        tm = *it->options->now;
    } else {
        clock_gettime(CLOCK_REALTIME, &now);
        if (!localtime_r(&now.tv_sec, &tm)) return hr_jinja_fail(it, "the clock is out of range");
        microseconds = (int)(now.tv_nsec / 1000);
    }
    HR_TRY(hr_jinja_strftime(&b, args->pos[0].as.s, &tm, microseconds));
    return hr_jinja_finish(&b, out);
}

/* dict.fromkeys(keys, value) */
static hr_status dict_fromkeys(hr_jinterp *it, hr_jval self, const hr_jargs *args, hr_jval *out)
{
    const hr_jval *keys;
    size_t n;
    hr_jdict *d;
    (void)self;
    HR_TRY(hr_jinja_collect(it, args->pos[0], &keys, &n));
    HR_TRY(hr_jinja_dict_new(it, n, &d));
    for (size_t i = 0; i < n; i++)
        HR_TRY(
            hr_jinja_dict_set(it, d, keys[i], args->pos[1].kind ? args->pos[1] : hr_jinja_none()));
    *out = (hr_jval){ .kind = HR_J_DICT, .as.d = d };
    return HR_OK;
}

static const hr_jfunction globals[] = {
    { "range", "*", 0, global_range },
    { "dict", "*", 0, global_dict },
    { "namespace", "*", 0, global_namespace },
    { "cycler", "*", 0, global_cycler },
    { "joiner", "sep", 0, global_joiner },
    { "raise_exception", "message", 1, global_raise },
    { "strftime_now", "format", 1, global_strftime_now },
};

hr_status hr_jinja_find_global(hr_jinterp *it, hr_str name, hr_jval *out)
{
    *out = (hr_jval){ 0 };
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (hr_str_eq_c(name, globals[i].name))
            return hr_jinja_bind(it, &globals[i], hr_jinja_none(), out);
    return HR_OK;
}

bool hr_jinja_is_type(hr_jval v)
{
    if (v.kind != HR_J_FUNCTION) return false;
    hr_jcall call = v.as.fn->function->call;
    return call == global_dict || call == global_namespace || call == global_cycler ||
           call == global_joiner;
}

hr_status hr_jinja_dict_attr(hr_jinterp *it, hr_jval of, hr_str name, hr_jval *out)
{
    static const hr_jfunction fromkeys = { "fromkeys", "$ $", 1, dict_fromkeys };
    *out = (hr_jval){ 0 };
    if (of.kind != HR_J_FUNCTION || of.as.fn->function->call != global_dict) return HR_OK;
    if (hr_str_eq_c(name, "fromkeys")) return hr_jinja_bind(it, &fromkeys, hr_jinja_none(), out);
    hr_jval dict = { .kind = HR_J_DICT };
    if (hr_jinja_find_method(dict, name)) return HR_OK;
    *out = of; /* dict["name"] is how Python spells a dict of such keys: it still makes a dict */
    return HR_OK;
}
