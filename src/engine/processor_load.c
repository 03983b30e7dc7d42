/* Loading logits processors: shared objects that the operator named, never a request.
 *
 * The creating thread's. A processor runs inside this process with all that it may do, so what can
 * be checked is only that it is one, and of the version that this engine calls. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/utf8.h"
#include "engine/processor_int.h"

void hr_processor_said(char message[HR_PROCESSOR_MESSAGE], const char *otherwise)
{
    message[HR_PROCESSOR_MESSAGE - 1] = 0;
    for (char *p = message; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    if (!message[0] || !hr_utf8_valid(hr_str_c(message)))
        snprintf(message, HR_PROCESSOR_MESSAGE, "%s", otherwise);
}

hr_status hr_processor_status(int code)
{
    return code > HR_OK && code <= HR_UNAUTHENTICATED ? (hr_status)code : HR_UNKNOWN;
}

/* ---- one file -------------------------------------------------------------------------------- */

/* FILE=TEXT; options is NULL without "=". */
static hr_status split(hr_arena *a, const char *flag, const char **file, const char **options)
{
    const char *equals = strchr(flag, '=');
    char *copy = hr_arena_copy(a, flag, equals ? (size_t)(equals - flag) : strlen(flag));
    *file = copy;
    *options = equals ? equals + 1 : NULL;
    if (!copy) return hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor");
    return *copy ? HR_OK : hr_fail(HR_INVALID_ARGUMENT, "--logits-processor '%s': no file", flag);
}

/* What the library gives out, checked no further. */
static hr_status open_library(hr_processor *x, const char *file)
{
    char real[PATH_MAX]; /* a bare name would be looked for in the system's library folders */
    if (!realpath(file, real))
        return hr_fail(errno == EACCES ? HR_PERMISSION_DENIED : HR_NOT_FOUND,
                       "--logits-processor %s: %s", file, strerror(errno));
    x->library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!x->library)
        return hr_fail(HR_INVALID_ARGUMENT, "--logits-processor %s is no shared object: %s", file,
                       dlerror());
    /* POSIX lets a data pointer become a function's; ISO C has no cast for it */
    const headrace_logits_processor *(*get)(void) = NULL;
    void *symbol = dlsym(x->library, "headrace_logits_processor_get");
    if (!symbol)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor %s is no logits processor: it does not export "
                       "headrace_logits_processor_get",
                       file);
    memcpy(&get, &symbol, sizeof get);
    x->it = get();
    return HR_OK;
}

static hr_status check_struct(const headrace_logits_processor *it, const char *file)
{
    size_t least = offsetof(headrace_logits_processor, name);
    if (!it)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor %s: headrace_logits_processor_get returned NULL", file);
    if (it->size >= least && it->version != HEADRACE_LOGITS_PROCESSOR_VERSION)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor %s is of version %u, and this engine calls version %d: "
                       "build it with this engine's headrace.h",
                       file, it->version, HEADRACE_LOGITS_PROCESSOR_VERSION);
    if (it->size < sizeof *it)
        return hr_fail(HR_INVALID_ARGUMENT,
                       "--logits-processor %s: its struct has %zu bytes, and one of version %d has "
                       "%zu: is its size set?",
                       file, it->size, HEADRACE_LOGITS_PROCESSOR_VERSION, sizeof *it);
    if (!it->process)
        return hr_fail(HR_INVALID_ARGUMENT, "--logits-processor %s has no process function", file);
    return HR_OK;
}

/* "trigram (./trigram.so)" */
static hr_status set_name(hr_processor_chain *p, hr_processor *x, const char *file)
{
    hr_buf name = { 0 };
    const char *own = x->it->name;
    bool usable = own && *own && strlen(own) < 100 && hr_utf8_valid(hr_str_c(own));
    if (usable) hr_buf_printf(&name, "%s (%s)", own, file);
    else hr_buf_add_c(&name, file);
    const char *text = hr_buf_c(&name);
    x->name = hr_arena_copy(&p->arena, text, strlen(text));
    hr_status st = hr_buf_status(&name);
    hr_buf_deinit(&name);
    return x->name ? st : hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor %s", file);
}

static hr_status create(hr_processor_chain *p, hr_processor *x, const char *file,
                        const char *options)
{
    char message[HR_PROCESSOR_MESSAGE] = { 0 }, otherwise[32];
    const hr_processor_limits *l = &p->limits;
    headrace_processor_info info = { .size = sizeof info,
                                     .vocab_size = l->vocab,
                                     .max_model_len = l->max_model_len,
                                     .eos_ids = l->eos,
                                     .n_eos_ids = l->n_eos,
                                     .options = options,
                                     .message = message,
                                     .message_bytes = sizeof message };
    int code = x->it->create ? x->it->create(&info, &x->self) : 0;
    if (code) {
        snprintf(otherwise, sizeof otherwise, "status %d", code);
        hr_processor_said(message, otherwise);
        return hr_fail(hr_processor_status(code), "--logits-processor %s could not be created: %s",
                       file, message);
    }
    x->created = true;
    hr_log(HR_LOG_INFO, "engine: logits processor %s", x->name);
    return HR_OK;
}

static hr_status load(hr_processor_chain *p, hr_processor *x, const char *flag)
{
    const char *file, *options;
    HR_TRY(split(&p->arena, flag, &file, &options));
    HR_TRY(open_library(x, file));
    HR_TRY(check_struct(x->it, file));
    HR_TRY(set_name(p, x, file));
    return create(p, x, file, options);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void *guarded(hr_arena *a, size_t cells)
{
    return hr_arena_array(a, cells + HR_PROCESSOR_GUARD, sizeof(uint32_t));
}

static hr_status make_arrays(hr_processor_chain *p)
{
    hr_arena *a = &p->arena;
    size_t rows = (size_t)p->limits.rows, words = (size_t)p->words, cells, slots;
    if (!hr_mul_add(rows, HR_SAMPLING_MAX_BIAS, 0, &cells) ||
        !hr_mul_add(rows, words, words, &slots))
        return hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor: %zu rows", rows);
    p->ids = hr_arena_array(a, cells, sizeof *p->ids);
    p->values = hr_arena_array(a, cells, sizeof *p->values);
    p->table = hr_arena_array(a, slots, sizeof *p->table);
    p->table_is_known = hr_arena_array(a, rows + 1, sizeof *p->table_is_known);
    p->own_ids = guarded(a, HR_SAMPLING_MAX_BIAS);
    p->own_values = guarded(a, HR_SAMPLING_MAX_BIAS);
    p->own_mask = guarded(a, words);
    p->merge.sums = hr_arena_array(a, HR_SAMPLING_MAX_BIAS, sizeof *p->merge.sums);
    p->merge.places = hr_arena_array(a, (size_t)p->limits.vocab, sizeof *p->merge.places);
    p->merge.mask = hr_arena_array(a, words, sizeof *p->merge.mask);
    if (p->ids && p->values && p->table && p->table_is_known && p->own_ids && p->own_values &&
        p->own_mask && p->merge.sums && p->merge.places && p->merge.mask)
        return HR_OK;
    return hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor: arrays of %zu rows", rows);
}

static hr_status load_all(hr_processor_chain *p, const headrace_options *o)
{
    HR_TRY(make_arrays(p));
    p->list = hr_arena_array(&p->arena, o->n_logits_processors, sizeof *p->list);
    if (!p->list) return hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor");
    for (size_t i = 0; i < o->n_logits_processors; i++) {
        p->n++;
        HR_TRY(load(p, &p->list[i], o->logits_processors[i]));
    }
    return HR_OK;
}

hr_status hr_processor_chain_load(const headrace_options *o, const hr_processor_limits *l,
                                  hr_processor_chain **out)
{
    *out = NULL;
    if (!o->n_logits_processors) return HR_OK;
    hr_processor_chain *p = hr_new0(hr_processor_chain);
    if (!p) return hr_fail(HR_RESOURCE_EXHAUSTED, "--logits-processor");
    p->limits = *l;
    p->words = hr_sampler_words(l->vocab);
    hr_status st = load_all(p, o);
    if (st) hr_processor_chain_destroy(p);
    else *out = p;
    return st;
}

void hr_processor_chain_destroy(hr_processor_chain *p)
{
    if (!p) return;
    while (p->n--) {
        hr_processor *x = &p->list[p->n];
        if (x->created && x->it->destroy) x->it->destroy(x->self);
        if (x->library) dlclose(x->library);
    }
    hr_arena_deinit(&p->arena);
    hr_free(p);
}
