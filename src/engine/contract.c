/* Boundaries between programs are contracts, kept at start-up.
 *
 * Engine thread, while programs are made and warmed. A graph says what its outputs are, and is
 * checked before it is compiled; then the program runs for the first time, and what came back is
 * compared with what was declared. A device that types its buffers is asked. The memory of the
 * native backend has no types, so there the run leaves a footprint: the output's first rows are
 * filled with a pattern, and exactly the live ones must be written over. Float32 where bfloat16 was
 * declared runs on into the next rows; the other way round the last live row stays as it was. */
#include "engine/contract.h"

#include <stdio.h>
#include <string.h>

#define PATTERN 0xFF /* a NaN in every float dtype, with a payload that no arithmetic makes */

static bool is_boundary(const char *name)
{
    return !strcmp(name, "hidden") || !strcmp(name, "selected");
}

static const char *maker_of(const hr_value *v, char out[HR_NODE_TEXT])
{
    return v->producer ? hr_graph_node_text(v->producer, out) : "an input";
}

hr_status hr_contract_check_graph(const hr_programs *p, const hr_ledger_row *r, const hr_graph *g)
{
    char text[HR_NODE_TEXT];
    hr_dtype want = p->shapes.build.activation;
    for (size_t i = 0; i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        if (!is_boundary(o->name) || o->value->dtype == want) continue;
        return hr_fail(HR_FAILED_PRECONDITION,
                       "program %s: output %s is %s, the activation dtype is %s (made by %s)",
                       hr_stage_name(r->stage), o->name, hr_dtype_name(o->value->dtype),
                       hr_dtype_name(want), maker_of(o->value, text));
    }
    return HR_OK;
}

hr_status hr_contract_note(hr_programs *p, hr_program_slot *s, const hr_graph *g)
{
    char text[HR_NODE_TEXT];
    s->declared = hr_arena_array(&p->arena, g->n_outputs, sizeof *s->declared);
    for (size_t i = 0; s->declared && i < g->n_outputs; i++) {
        const struct hr_output *o = &g->outputs[i];
        const char *maker = maker_of(o->value, text);
        hr_program_output *d = &s->declared[i];
        *d = (hr_program_output){ .name = hr_arena_copy(&p->arena, o->name, strlen(o->name)),
                                  .maker = hr_arena_copy(&p->arena, maker, strlen(maker)),
                                  .row_bytes = (size_t)hr_shape_row(o->value->shape) *
                                               hr_dtype_size(o->value->dtype),
                                  .dtype = o->value->dtype };
        if (!d->name || !d->maker) s->declared = NULL;
    }
    return s->declared
               ? HR_OK
               : hr_fail(HR_RESOURCE_EXHAUSTED, "outputs of %s", hr_stage_name(s->row->stage));
}

static hr_status refuse(const hr_program_slot *s, const hr_program_output *d, const char *what)
{
    return hr_fail(HR_FAILED_PRECONDITION, "program %s: output %s came back %s (made by %s)",
                   hr_stage_name(s->row->stage), d->name, what, d->maker);
}

/* ---- footprints ------------------------------------------------------------------------------ */

/* Twice as wide a result reaches into the row behind twice the live ones at most. */
static size_t armed_bytes(const hr_program_output *d, int64_t live)
{
    return 2 * (size_t)live * d->row_bytes;
}

static bool is_pattern(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] == PATTERN) i++;
    return i == n;
}

static hr_status arm(hr_programs *p, hr_program_slot *s, size_t i, int64_t live)
{
    size_t bytes = armed_bytes(&s->declared[i], live);
    void *pattern = hr_alloc(bytes);
    if (!pattern) return hr_fail(HR_RESOURCE_EXHAUSTED, "a pattern of %zu bytes", bytes);
    memset(pattern, PATTERN, bytes);
    hr_status st = hr_buffer_put(p->backend, s->outputs[i], pattern, bytes);
    hr_free(pattern);
    return st;
}

static hr_status look(hr_programs *p, hr_program_slot *s, size_t i, int64_t live)
{
    const hr_program_output *d = &s->declared[i];
    size_t bytes = armed_bytes(d, live), size = hr_dtype_size(d->dtype);
    unsigned char *now = hr_alloc(bytes);
    if (!now) return hr_fail(HR_RESOURCE_EXHAUSTED, "%zu bytes of an output", bytes);
    hr_status st = hr_buffer_get(p->backend, s->outputs[i], now, bytes);
    bool wide = !st && !is_pattern(now + bytes / 2, bytes / 2);
    bool narrow = !st && !wide && is_pattern(now + bytes / 2 - size, size);
    hr_free(now);
    if (!wide && !narrow) return st;
    char what[64];
    snprintf(what, sizeof what, "%s than %s, which is declared", wide ? "wider" : "narrower",
             hr_dtype_name(d->dtype));
    return refuse(s, d, what);
}

static bool leaves_footprint(const hr_programs *p, const hr_program_slot *s, size_t i)
{
    return !p->backend->v->buffer_verify && is_boundary(s->declared[i].name);
}

hr_status hr_contract_arm(hr_programs *p, hr_program_slot *s, int64_t live)
{
    for (size_t i = 0; i < s->n_outputs; i++)
        if (leaves_footprint(p, s, i)) HR_TRY(arm(p, s, i, live));
    return HR_OK;
}

hr_status hr_contract_check(hr_programs *p, hr_program_slot *s, int64_t live)
{
    for (size_t i = 0; i < s->n_outputs; i++) {
        if (leaves_footprint(p, s, i)) HR_TRY(look(p, s, i, live));
        hr_status st = hr_buffer_verify(p->backend, s->outputs[i]);
        if (!st) continue;
        char what[HR_MESSAGE_MAX];
        memcpy(what, hr_message(), sizeof what);
        return refuse(s, &s->declared[i], what);
    }
    return HR_OK;
}
