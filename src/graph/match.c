/* Operands against dimension letters: the machinery of inference.
 *
 * Runs wherever graphs are built (start-up). An op's rule is written as its signature in ops.def
 * reads, "x is float [T,K], weight [N,K]"; letters bind at first use, so one line checks presence,
 * dtype, rank and agreement, and every refusal comes out as the same kind of sentence. */
#include "graph/graph_int.h"

#include <stdio.h>

const char *hr_shape_text(hr_shape s, char to[HR_SHAPE_TEXT])
{
    size_t n = (size_t)snprintf(to, HR_SHAPE_TEXT, "[");
    for (int i = 0; i < s.rank; i++)
        n += (size_t)snprintf(to + n, HR_SHAPE_TEXT - n, i ? ",%lld" : "%lld", (long long)s.dim[i]);
    snprintf(to + n, HR_SHAPE_TEXT - n, "]");
    return to;
}

hr_status hr_shape_check(hr_shape s, const char *what)
{
    char text[HR_SHAPE_TEXT];
    if (s.rank < 1 || s.rank > HR_MAX_RANK)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: rank %d, not 1 to %d", what, s.rank, HR_MAX_RANK);
    int64_t bytes = 8; /* above every dtype, so that any byte count fits */
    for (int i = 0; i < s.rank; i++)
        if (s.dim[i] < 1 || __builtin_mul_overflow(bytes, s.dim[i], &bytes))
            return hr_fail(HR_INVALID_ARGUMENT, "%s: bad shape %s", what, hr_shape_text(s, text));
    return HR_OK;
}

void hr_infer_require(hr_infer *m, bool ok, const char *fmt, ...)
{
    if (m->status || ok) return;
    char sentence[HR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    m->status = hr_fail(HR_INVALID_ARGUMENT, "%s: %.480s", hr_op_name(m->node->op), sentence);
}

/* "x %7 is i32 [16]" or "weight model.norm.weight is f32 [64]"; nothing when all is well, since
 * a start checks some hundred thousand operands. */
static const char *describe(bool ok, const char *name, const hr_value *v, char *to, size_t size)
{
    char shape[HR_SHAPE_TEXT];
    if (ok) return "";
    hr_shape_text(v->shape, shape);
    if (v->name)
        snprintf(to, size, "%s %.120s is %s %s", name, v->name, hr_dtype_name(v->dtype), shape);
    else snprintf(to, size, "%s %%%u is %s %s", name, v->id, hr_dtype_name(v->dtype), shape);
    return to;
}

/* Binds or compares the dims of v; '*' takes whatever lies between. */
static void match_dims(hr_infer *m, const char *name, const hr_value *v, const char *letters)
{
    char text[256];
    int wanted = (int)strlen(letters), rank = v->shape.rank;
    const char *star = strchr(letters, '*');
    int extra = star ? rank - (wanted - 1) : 0;
    bool ok = star ? extra >= 0 : rank == wanted;
    hr_infer_require(m, ok, "%s, wanted rank %d [%s]", describe(ok, name, v, text, sizeof text),
                     star ? wanted - 1 : wanted, letters);
    for (int i = 0, d = 0; !m->status && i < wanted; i++) {
        if (letters[i] == '*') {
            d += extra;
            continue;
        }
        int64_t *bound = &m->dim[(unsigned char)letters[i]], here = v->shape.dim[d++];
        ok = !*bound || *bound == here;
        hr_infer_require(m, ok, "%s, but its %c is %lld in an earlier operand",
                         describe(ok, name, v, text, sizeof text), letters[i], (long long)*bound);
        *bound = here;
    }
}

const hr_value *hr_infer_optional(hr_infer *m, int i, const char *name, unsigned set,
                                  const char *letters)
{
    const hr_value *v = m->node->in[i];
    char text[256];
    if (!v || m->status) return NULL;
    bool ok = (set >> v->dtype & 1) != 0;
    hr_infer_require(m, ok, "%s, a dtype that it does not take",
                     describe(ok, name, v, text, sizeof text));
    if (!m->status) match_dims(m, name, v, letters);
    return m->status ? NULL : v;
}

const hr_value *hr_infer_operand(hr_infer *m, int i, const char *name, unsigned set,
                                 const char *letters)
{
    hr_infer_require(m, m->node->in[i] != NULL, "operand %s is missing", name);
    return hr_infer_optional(m, i, name, set, letters);
}

void hr_infer_result(hr_infer *m, int i, hr_dtype dtype, const char *letters)
{
    if (m->status) return;
    hr_result_spec *r = &m->out[i];
    *r = (hr_result_spec){ .dtype = dtype, .live = m->node->in[0]->live };
    for (const char *c = letters; *c; c++)
        r->shape.dim[r->shape.rank++] = m->dim[(unsigned char)*c];
    m->status = hr_shape_check(r->shape, hr_op_name(m->node->op));
}

void hr_infer_result_like(hr_infer *m, int i, hr_dtype dtype, const hr_value *like)
{
    if (m->status) return;
    m->out[i] = (hr_result_spec){ dtype, like->shape, like->live };
}
