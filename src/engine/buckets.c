/* Building, compiling and binding every program.
 *
 * Engine thread. This is the only file that calls hr_backend_compile_start: what it compiles before
 * hr_programs_seal is all there will ever be. Each program's inputs are bound here once, by name:
 * to a host array of the batch, to a shared device buffer (caches, tables), or to the output
 * buffer of the program before it. A step then only copies host arrays and executes. */
#include "engine/buckets.h"
#include "engine/contract.h"

#include <assert.h>
#include <stdio.h>

#include "base/log.h"

size_t hr_programs_count(const hr_shapes *s)
{
    size_t t = (size_t)s->tokens.n, r = (size_t)s->requests.n;
    return t + t * r + r + hr_programs_have(s, HR_STAGE_PROMPT) +
           hr_programs_have(s, HR_STAGE_TABLES);
}

hr_batch_limits hr_shapes_limits(const hr_shapes *s, bool static_shapes)
{
    return (hr_batch_limits){ .tokens = hr_buckets_last(&s->tokens),
                              .requests = s->build.requests,
                              .rows = hr_buckets_last(&s->requests),
                              .table_width = s->build.table_width,
                              .block_size = s->build.block_size,
                              .static_shapes = static_shapes };
}

bool hr_programs_have(const hr_shapes *s, hr_stage stage)
{
    bool greedy = s->sampler.kind == HR_SAMPLER_GREEDY;
    return !greedy || (stage != HR_STAGE_PROMPT && stage != HR_STAGE_TABLES);
}

/* ---- binding ------------------------------------------------------------------------------- */

static hr_status create_buffer(hr_programs *p, hr_dtype dtype, hr_shape shape, hr_buffer **out)
{
    hr_tensor_desc d = { dtype, shape };
    p->buffer_bytes += (size_t)hr_shape_count(shape) * hr_dtype_size(dtype);
    return hr_buffer_create(p->backend, &d, out);
}

/* The plane of the KV cache that a graph calls `name`, "k_cache.3"; NULL = it is none. */
static hr_buffer *cache_buffer(const hr_programs *p, const char *name)
{
    hr_kv_plane plane[HR_KV_MAX_PLANES];
    const hr_kv_spec *specs;
    size_t layers;
    hr_model_kv_specs(p->model, &specs, &layers);
    hr_model_kv_planes(specs, &p->shapes.build, plane);
    for (int i = 0; i < p->planes; i++) {
        size_t n = strlen(plane[i].name);
        long long layer;
        if (strncmp(name, plane[i].name, n) || sscanf(name + n, ".%lld", &layer) != 1) continue;
        return layer >= 0 && (size_t)layer < layers ? p->caches[layer * p->planes + i] : NULL;
    }
    return NULL;
}

/* A device buffer that several programs share, by the name it has in a graph; NULL = none. */
static hr_buffer *shared_buffer(const hr_programs *p, const hr_ledger_row *r, const char *name)
{
    if (!strcmp(name, "hidden")) return p->hidden[hr_buckets_find(&p->shapes.tokens, r->tokens)];
    if (!strcmp(name, "selected"))
        return p->selected[hr_buckets_find(&p->shapes.requests, r->requests)];
    if (!strcmp(name, "counts")) return p->counts;
    if (!strcmp(name, "allowed")) return p->allowed;
    if (!strcmp(name, "grammar")) return p->grammar;
    return cache_buffer(p, name);
}

static hr_status bind_input(hr_programs *p, hr_program_slot *s, size_t i, const hr_value *v)
{
    hr_program_input *in = &s->inputs[i];
    in->buffer = shared_buffer(p, s->row, v->name);
    if (!in->buffer) {
        if (!hr_batch_input(p->batch, v->name, &in->host))
            return hr_fail(HR_INTERNAL, "program %s: nothing fills its input %s",
                           hr_stage_name(s->row->stage), v->name);
        HR_TRY(create_buffer(p, v->dtype, v->shape, &in->buffer));
        in->owned = true;
    }
    size_t count = (size_t)hr_shape_count(v->shape);
    in->bytes = count * hr_dtype_size(v->dtype);
    in->row_bytes = (size_t)hr_shape_row(v->shape) * hr_dtype_size(v->dtype);
    s->input_buffers[i] = in->buffer;
    return HR_OK;
}

static hr_status bind_output(hr_programs *p, hr_program_slot *s, size_t i,
                             const struct hr_output *o)
{
    s->outputs[i] = shared_buffer(p, s->row, o->name);
    if (s->outputs[i]) return HR_OK;
    s->output_owned[i] = true;
    return create_buffer(p, o->value->dtype, o->value->shape, &s->outputs[i]);
}

static hr_status bind(hr_programs *p, hr_program_slot *s, const hr_graph *g)
{
    s->inputs = hr_arena_array(&p->arena, g->n_inputs, sizeof *s->inputs);
    s->input_buffers = hr_arena_array(&p->arena, g->n_inputs, sizeof *s->input_buffers);
    s->outputs = hr_arena_array(&p->arena, g->n_outputs, sizeof *s->outputs);
    s->output_owned = hr_arena_array(&p->arena, g->n_outputs, sizeof *s->output_owned);
    if (!s->inputs || !s->input_buffers || !s->outputs || !s->output_owned)
        return hr_fail(HR_RESOURCE_EXHAUSTED, "bindings of %s", hr_stage_name(s->row->stage));
    s->n_inputs = g->n_inputs;
    s->n_outputs = g->n_outputs;
    for (size_t i = 0; i < g->n_inputs; i++) HR_TRY(bind_input(p, s, i, g->inputs[i]));
    for (size_t i = 0; i < g->n_outputs; i++) HR_TRY(bind_output(p, s, i, &g->outputs[i]));
    return HR_OK;
}

static hr_status start_slot(hr_programs *p, hr_program_slot *s)
{
    double start = hr_now_s(), weights = p->backend->weights_s;
    hr_graph *g = NULL;
    hr_status st = hr_program_graph(&p->shapes, p->model, s->row, &g);
    if (!st) st = hr_contract_check_graph(p, s->row, g);
    if (!st) st = hr_backend_compile_start(p->backend, g, &s->program);
    if (!st) st = bind(p, s, g);
    if (!st) st = hr_contract_note(p, s, g);
    hr_graph_destroy(g);
    if (st) return hr_fail_prefix(st, "program %s", hr_stage_name(s->row->stage));
    s->pending = true;
    s->row->compile_ms = (hr_now_s() - start - (p->backend->weights_s - weights)) * 1e3;
    return HR_OK;
}

static hr_status finish_slot(hr_programs *p, hr_program_slot *s)
{
    hr_program_info info;
    HR_TRY(hr_program_await(p->backend, s->program));
    hr_program_info_get(p->backend, s->program, &info);
    s->pending = false;
    s->row->peak_bytes = info.peak_bytes;
    s->row->steps = info.steps;
    s->row->code_bytes = info.code_bytes;
    s->row->cached = info.cached;
    s->row->compile_ms += info.worker_ms;
    if (!info.cached) hr_counter_add(&p->ledger->compiled[s->row->stage], 1);
    return HR_OK;
}

static hr_status compile_slot(hr_programs *p, hr_program_slot *s)
{
    if (!s->program) HR_TRY(start_slot(p, s));
    return finish_slot(p, s);
}

hr_status hr_programs_start(hr_programs *p)
{
    for (size_t i = 0; p->backend->v->program_await && i < hr_programs_count(&p->shapes); i++)
        if (!p->backbone[i].program) HR_TRY(start_slot(p, &p->backbone[i])); /* and all after it */
    return HR_OK;
}

/* ---- slots --------------------------------------------------------------------------------- */

static hr_program_slot *find_slot(hr_programs *p, hr_stage stage, int t, int r)
{
    switch (stage) {
    case HR_STAGE_BACKBONE: return &p->backbone[t];
    case HR_STAGE_SELECT: return &p->select[t * p->shapes.requests.n + r];
    case HR_STAGE_SAMPLER: return &p->sampler[r];
    case HR_STAGE_PROMPT: return p->prompt;
    case HR_STAGE_TABLES: return p->tables;
    case HR_STAGE_COUNT: break;
    }
    assert(!"no such stage");
    return NULL;
}

/* Compiles after the seal: an event that must never happen, so it says everything about itself. */
static hr_status compile_late(hr_programs *p, hr_program_slot *s, const char *caller)
{
    hr_buf bucket = { 0 };
    hr_ledger_bucket_text(s->row, &bucket);
    hr_counter_add(&p->ledger->late, 1);
    hr_status st = hr_fail(
        HR_FAILED_PRECONDITION,
        "late compilation of %s for %s (%s), wanted by %s; nearest compiled bucket: %lld tokens, "
        "%lld requests; add it to --buckets or lower the limits",
        hr_stage_name(s->row->stage), hr_buf_c(&bucket), hr_dtype_name(p->shapes.build.activation),
        caller, (long long)hr_buckets_last(&p->shapes.tokens),
        (long long)hr_buckets_last(&p->shapes.requests));
    hr_buf_deinit(&bucket);
    if (p->shapes.late == HR_LATE_FATAL) return st;
    hr_log(HR_LOG_WARNING, "engine: %s", hr_message());
    p->backend->sealed = false; /* here and nowhere else */
    st = compile_slot(p, s);
    hr_backend_seal(p->backend);
    return st;
}

hr_status hr_programs_get(hr_programs *p, hr_stage stage, int t, int r, const char *caller,
                          hr_program_slot **out)
{
    hr_program_slot *s = find_slot(p, stage, t, r);
    *out = s;
    if (s->program && !s->pending) return HR_OK;
    return p->sealed ? compile_late(p, s, caller) : compile_slot(p, s);
}

void hr_programs_seal(hr_programs *p)
{
    if (p->shapes.late == HR_LATE_EAGER) return;
    hr_backend_seal(p->backend);
    p->sealed = true;
}

/* ---- life ---------------------------------------------------------------------------------- */

static hr_status create_caches(hr_programs *p)
{
    const hr_kv_spec *specs;
    hr_kv_plane plane[HR_KV_MAX_PLANES];
    size_t layers;
    hr_model_kv_specs(p->model, &specs, &layers);
    p->caches = hr_arena_array(&p->arena, layers * HR_KV_MAX_PLANES, sizeof *p->caches);
    if (!p->caches) return hr_fail(HR_RESOURCE_EXHAUSTED, "KV caches");
    for (size_t l = 0; l < layers; l++) {
        p->planes = hr_model_kv_planes(&specs[l], &p->shapes.build, plane);
        for (int i = 0; i < p->planes; i++)
            HR_TRY(create_buffer(p, plane[i].dtype, plane[i].shape, &p->caches[p->n_caches++]));
    }
    p->buffer_bytes = 0; /* the caches, which are counted apart, come first */
    return HR_OK;
}

static hr_status create_boundaries(hr_programs *p)
{
    int64_t hidden = hr_model_config(p->model)->hidden;
    hr_dtype dtype = p->shapes.build.activation;
    for (int t = 0; t < p->shapes.tokens.n; t++)
        HR_TRY(create_buffer(p, dtype, HR_SHAPE(p->shapes.tokens.at[t], hidden), &p->hidden[t]));
    for (int r = 0; r < p->shapes.requests.n; r++)
        HR_TRY(
            create_buffer(p, dtype, HR_SHAPE(p->shapes.requests.at[r], hidden), &p->selected[r]));
    return HR_OK;
}

static hr_status create_tables(hr_programs *p)
{
    if (!hr_programs_have(&p->shapes, HR_STAGE_TABLES)) return HR_OK;
    const hr_sampler_options *o = &p->shapes.sampler;
    int64_t words = hr_sampler_words(o->vocab);
    HR_TRY(create_buffer(p, HR_DTYPE_U16, HR_SHAPE(o->slots, o->vocab), &p->counts));
    HR_TRY(create_buffer(p, HR_DTYPE_U32, HR_SHAPE(o->slots, words), &p->allowed));
    return create_buffer(p, HR_DTYPE_U32, HR_SHAPE(o->slots, words), &p->grammar);
}

static void open_row(hr_programs *p, hr_program_slot *s, hr_stage stage, int64_t t, int64_t r)
{
    s->row = hr_ledger_add(p->ledger, stage, t, r);
    s->row->backend = p->backend->v->name;
    s->row->activation = p->shapes.build.activation;
}

static hr_status create_slots(hr_programs *p)
{
    const hr_bucket_list *tokens = &p->shapes.tokens, *requests = &p->shapes.requests;
    size_t nt = (size_t)tokens->n, nr = (size_t)requests->n;
    hr_program_slot *s = hr_arena_array(&p->arena, hr_programs_count(&p->shapes), sizeof *s);
    p->hidden = hr_arena_array(&p->arena, nt, sizeof *p->hidden);
    p->selected = hr_arena_array(&p->arena, nr, sizeof *p->selected);
    if (!s || !p->hidden || !p->selected) return hr_fail(HR_RESOURCE_EXHAUSTED, "program slots");
    p->backbone = s;
    p->select = p->backbone + nt;
    p->sampler = p->select + nt * nr;
    hr_program_slot *next = p->sampler + nr;
    if (hr_programs_have(&p->shapes, HR_STAGE_PROMPT)) p->prompt = next++;
    if (hr_programs_have(&p->shapes, HR_STAGE_TABLES)) p->tables = next++;
    for (size_t t = 0; t < nt; t++)
        open_row(p, &p->backbone[t], HR_STAGE_BACKBONE, tokens->at[t], 0);
    for (size_t i = 0; i < nt * nr; i++)
        open_row(p, &p->select[i], HR_STAGE_SELECT, tokens->at[i / nr], requests->at[i % nr]);
    for (size_t r = 0; r < nr; r++)
        open_row(p, &p->sampler[r], HR_STAGE_SAMPLER, 0, requests->at[r]);
    if (p->prompt) open_row(p, p->prompt, HR_STAGE_PROMPT, 0, hr_buckets_last(requests));
    if (p->tables) open_row(p, p->tables, HR_STAGE_TABLES, 0, 0);
    return HR_OK;
}

hr_status hr_programs_create(const hr_shapes *shapes, hr_backend *backend, const hr_model *model,
                             hr_batch *batch, hr_ledger *ledger, hr_programs **out)
{
    *out = NULL;
    hr_programs *p = hr_new0(hr_programs);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "programs");
    p->shapes = *shapes;
    p->backend = backend;
    p->model = model;
    p->batch = batch;
    p->ledger = ledger;
    hr_status st = create_slots(p);
    if (!st) st = create_caches(p);
    if (!st) st = create_boundaries(p);
    if (!st) st = create_tables(p);
    if (st) {
        hr_programs_destroy(p);
        return st;
    }
    *out = p;
    return HR_OK;
}

static void destroy_slot(hr_programs *p, hr_program_slot *s)
{
    hr_program_destroy(s->program, p->backend);
    for (size_t i = 0; i < s->n_inputs; i++)
        if (s->inputs[i].owned) hr_buffer_destroy(s->inputs[i].buffer, p->backend);
    for (size_t i = 0; i < s->n_outputs; i++)
        if (s->output_owned[i]) hr_buffer_destroy(s->outputs[i], p->backend);
}

void hr_programs_destroy(hr_programs *p)
{
    if (!p) return;
    size_t slots = p->backbone ? hr_programs_count(&p->shapes) : 0;
    for (size_t i = 0; i < slots; i++) destroy_slot(p, &p->backbone[i]);
    for (int t = 0; p->hidden && t < p->shapes.tokens.n; t++)
        hr_buffer_destroy(p->hidden[t], p->backend);
    for (int r = 0; p->selected && r < p->shapes.requests.n; r++)
        hr_buffer_destroy(p->selected[r], p->backend);
    for (size_t i = 0; i < p->n_caches; i++) hr_buffer_destroy(p->caches[i], p->backend);
    hr_buffer_destroy(p->counts, p->backend);
    hr_buffer_destroy(p->allowed, p->backend);
    hr_buffer_destroy(p->grammar, p->backend);
    hr_arena_deinit(&p->arena);
    hr_free(p);
}
