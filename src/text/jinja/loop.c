/* The for statement and the `loop` object.
 *
 * Items come one at a time, through the loop's filter, so that a filter may depend on what the body
 * did; asking for loop.last looks one ahead, asking for the length of something without one reads
 * the rest. A recursive loop is a function: loop(children) runs it again in an activation of its
 * own. Runs within a rendering. */
#include "text/jinja/jinja_int.h"

/* ---- items ---------------------------------------------------------------------------------- */

/* Does the loop's filter let the item pass? It runs where the loop runs, whoever asks. */
static hr_status passes(hr_jloop *l, hr_jval item, bool *out)
{
    hr_jinterp *it = l->it;
    hr_jactivation *caller = it->here;
    hr_jval v;
    *out = true;
    if (!l->node->c) return HR_OK;
    it->here = l->here;
    hr_status st = hr_jinja_enter_scope(it, l->node->scope_test);
    if (!st) st = hr_jinja_assign(it, l->node->star, item);
    if (!st) st = hr_jinja_eval(it, l->node->c, &v);
    if (!st) st = hr_jinja_truth(it, v, out);
    it->here = caller;
    return st;
}

/* The next item that passes; MISSING at the end. */
static hr_status pull(hr_jloop *l, hr_jval *out)
{
    if (l->rest) {
        *out = l->at_rest < l->n_rest ? l->rest[l->at_rest++] : (hr_jval){ 0 };
        return HR_OK;
    }
    for (bool more = true, yes = false;;) {
        HR_TRY(hr_jinja_next(l->it, &l->iter, out, &more));
        if (!more) {
            *out = (hr_jval){ 0 };
            return HR_OK;
        }
        HR_TRY(passes(l, *out, &yes));
        if (yes) return HR_OK;
    }
}

static hr_status peek(hr_jloop *l, hr_jval *out)
{
    if (!l->after.kind) HR_TRY(pull(l, &l->after));
    *out = l->after;
    return HR_OK;
}

static hr_status advance(hr_jloop *l, bool *more)
{
    hr_jval item = l->after;
    if (!item.kind) HR_TRY(pull(l, &item));
    *more = item.kind != HR_J_MISSING;
    if (!*more) return HR_OK;
    l->after = (hr_jval){ 0 };
    l->before = l->current;
    l->current = item;
    l->index0++;
    return HR_OK;
}

/* Reads all that is left, to count it. */
static hr_status read_rest(hr_jloop *l)
{
    hr_jval *items = NULL, item;
    size_t n = 0, capacity = 0;
    for (;;) {
        HR_TRY(pull(l, &item));
        if (!item.kind) break;
        if (n == capacity) {
            size_t bigger = capacity ? capacity * 2 : 8;
            hr_jval *more;
            HR_TRY(hr_jinja_alloc(l->it, bigger, sizeof *more, &more));
            if (n) memcpy(more, items, n * sizeof *more);
            items = more;
            capacity = bigger;
        }
        items[n++] = item;
    }
    if (!items) HR_TRY(hr_jinja_alloc(l->it, 1, sizeof *items, &items));
    l->rest = items;
    l->n_rest = n;
    l->at_rest = 0;
    l->length = (int64_t)n + l->index0 + 1 + (l->after.kind != HR_J_MISSING);
    return HR_OK;
}

static hr_status length(hr_jloop *l, int64_t *out)
{
    size_t n;
    if (l->length < 0) {
        if (!l->node->c && hr_jinja_length(l->iterable, &n)) l->length = (int64_t)n;
        else HR_TRY(read_rest(l));
    }
    *out = l->length;
    return HR_OK;
}

/* ---- what the template sees ----------------------------------------------------------------- */

static hr_status next_item(hr_jloop *l, hr_jval *out)
{
    HR_TRY(peek(l, out));
    return out->kind ? HR_OK : hr_jinja_hint(l->it, "there is no next item", out);
}

static hr_status previous_item(hr_jloop *l, hr_jval *out)
{
    *out = l->before;
    return l->index0 ? HR_OK : hr_jinja_hint(l->it, "there is no previous item", out);
}

static hr_status is_last(hr_jloop *l, hr_jval *out)
{
    hr_jval after;
    HR_TRY(peek(l, &after));
    *out = hr_jinja_bool(!after.kind);
    return HR_OK;
}

/* MISSING for a name that is none of the loop's fields. */
hr_status hr_jinja_loop_attr(hr_jinterp *it, hr_jloop *l, hr_str name, hr_jval *out)
{
    int64_t n = 0;
    *out = (hr_jval){ 0 };
    if (hr_str_eq_c(name, "last")) return is_last(l, out);
    if (hr_str_eq_c(name, "previtem")) return previous_item(l, out);
    if (hr_str_eq_c(name, "nextitem")) return next_item(l, out);
    if (hr_str_eq_c(name, "first")) {
        *out = hr_jinja_bool(l->index0 == 0);
        return HR_OK;
    }
    bool from_end = hr_str_eq_c(name, "revindex") || hr_str_eq_c(name, "revindex0");
    if (from_end || hr_str_eq_c(name, "length")) HR_TRY(length(l, &n));
    if (hr_str_eq_c(name, "index")) *out = hr_jinja_int(l->index0 + 1);
    if (hr_str_eq_c(name, "index0")) *out = hr_jinja_int(l->index0);
    if (hr_str_eq_c(name, "revindex")) *out = hr_jinja_int(n - l->index0);
    if (hr_str_eq_c(name, "revindex0")) *out = hr_jinja_int(n - l->index0 - 1);
    if (hr_str_eq_c(name, "length")) *out = hr_jinja_int(n);
    if (hr_str_eq_c(name, "depth")) *out = hr_jinja_int(l->depth0 + 1);
    if (hr_str_eq_c(name, "depth0")) *out = hr_jinja_int(l->depth0);
    if (out->kind) return HR_OK;
    const hr_jval self = { .kind = HR_J_LOOP, .as.loop = l };
    const hr_jfunction *method = hr_jinja_find_method(self, name);
    return method ? hr_jinja_bind(it, method, self, out) : HR_OK;
}

/* ---- running -------------------------------------------------------------------------------- */

static hr_status run_body(hr_jinterp *it, hr_jloop *l, bool *completed, hr_jflow *flow)
{
    const hr_jnode *n = l->node;
    HR_TRY(hr_jinja_enter_scope(it, n->scope));
    it->here->slots[n->slot_loop] = (hr_jval){ .kind = HR_J_LOOP, .as.loop = l };
    it->at = n->at;
    HR_TRY(hr_jinja_assign(it, n->a, l->current));
    HR_TRY(hr_jinja_exec(it, &n->body, flow));
    if (*flow == HR_JF_NEXT) *completed = true;
    return HR_OK;
}

/* The else branch runs when no pass reached the end of the body: that is what jinja2 tests, so a
 * break or continue in every pass leads there too. */
static hr_status run(hr_jinterp *it, hr_jloop *l, hr_jflow *flow)
{
    bool completed = false, more;
    for (;;) {
        HR_TRY(advance(l, &more));
        if (!more) break;
        HR_TRY(run_body(it, l, &completed, flow));
        if (*flow == HR_JF_BREAK) break;
    }
    *flow = HR_JF_NEXT;
    if (completed || !l->node->orelse.n) return HR_OK;
    HR_TRY(hr_jinja_enter_scope(it, l->node->scope_else));
    return hr_jinja_exec(it, &l->node->orelse, flow); /* its break is the outer loop's */
}

static hr_status new_loop(hr_jinterp *it, const hr_jnode *n, hr_jval iterable, hr_jloop **out)
{
    HR_TRY(hr_jinja_alloc(it, 1, sizeof **out, out));
    **out = (hr_jloop){
        .it = it, .iterable = iterable, .node = n, .here = it->here, .index0 = -1, .length = -1
    };
    return hr_jinja_iterate(it, iterable, &(*out)->iter);
}

/* A pass of a recursive loop: its own activation, its text as a string. */
static hr_status run_recursive(hr_jinterp *it, const hr_jnode *n, hr_jactivation *outer,
                               hr_jval iterable, int64_t depth0, hr_jval *out)
{
    hr_jactivation *a, *caller = it->here;
    hr_jbuilder b = { .it = it }, *outer_text = it->out;
    hr_jflow flow = HR_JF_NEXT;
    hr_jloop *l;
    HR_TRY(hr_jinja_alloc(it, 1, sizeof *a, &a));
    HR_TRY(hr_jinja_alloc(it, n->n_slots, sizeof *a->slots, &a->slots));
    a->outer = outer;
    it->here = a;
    it->out = &b;
    hr_status st = new_loop(it, n, iterable, &l);
    if (!st) {
        l->outer = outer;
        l->depth0 = depth0;
        st = run(it, l, &flow);
    }
    it->here = caller;
    it->out = outer_text;
    return st ? st : hr_jinja_finish(&b, out);
}

hr_status hr_jinja_loop_call(hr_jinterp *it, hr_jloop *l, const hr_jargs *args, hr_jval *out)
{
    if (args->n != 1 || args->n_kw) return hr_jinja_fail(it, "loop() takes one argument");
    if (!l->node->recursive)
        return hr_jinja_fail(it,
                             "The loop must have the 'recursive' marker to be called recursively.");
    return run_recursive(it, l->node, l->outer, args->pos[0], l->depth0 + 1, out);
}

hr_status hr_jinja_for(hr_jinterp *it, const hr_jnode *n, hr_jflow *flow)
{
    hr_jval iterable, text;
    hr_jloop *l;
    HR_TRY(hr_jinja_eval(it, n->b, &iterable));
    it->at = n->at;
    if (n->recursive) {
        HR_TRY(run_recursive(it, n, it->here, iterable, 0, &text));
        return hr_jinja_print(it->out, text);
    }
    HR_TRY(new_loop(it, n, iterable, &l));
    return run(it, l, flow);
}
