/* A logits processor that does what its options say, well or badly, to the choices whose prompt
 * begins with token 7; the others it leaves alone. Variants that are no processor at all are built
 * from it, too. */
#include <headrace/headrace.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef STUB_VERSION
#define STUB_VERSION HEADRACE_LOGITS_PROCESSOR_VERSION
#endif
#ifndef STUB_SIZE
#define STUB_SIZE sizeof(headrace_logits_processor)
#endif

typedef struct stub {
    char what[64];
    int64_t vocab;
    int begun; /* choices, that have not ended */
} stub;

typedef struct choice {
    int concerned;
    int64_t seen; /* tokens there were when it was last asked */
} choice;

static int create(const headrace_processor_info *info, void **processor)
{
    stub *s = calloc(1, sizeof *s);
    if (!s) return HEADRACE_RESOURCE_EXHAUSTED;
    snprintf(s->what, sizeof s->what, "%s", info->options ? info->options : "");
    s->vocab = info->vocab_size;
    if (!strcmp(s->what, "create")) {
        snprintf(info->message, info->message_bytes, "no such luck");
        free(s);
        return HEADRACE_FAILED_PRECONDITION;
    }
    *processor = s;
    return HEADRACE_OK;
}

/* Every choice that began has ended, or the process does badly. */
static void destroy(void *processor)
{
    stub *s = processor;
    if (__atomic_load_n(&s->begun, __ATOMIC_SEQ_CST)) abort();
    free(s);
}

static int begin(void *processor, const headrace_processor_choice *c, void **state)
{
    stub *s = processor;
    choice *mine = calloc(1, sizeof *mine);
    if (!mine) return HEADRACE_RESOURCE_EXHAUSTED;
    mine->concerned = c->prompt_ids[0] == 7;
    if (mine->concerned && !strcmp(s->what, "begin")) {
        snprintf(c->message, c->message_bytes, "not\nthis one");
        free(mine);
        return HEADRACE_INVALID_ARGUMENT;
    }
    __atomic_add_fetch(&s->begun, 1, __ATOMIC_SEQ_CST);
    *state = mine;
    return HEADRACE_OK;
}

static void end(void *processor, void *state)
{
    stub *s = processor;
    __atomic_sub_fetch(&s->begun, 1, __ATOMIC_SEQ_CST);
    free(state);
}

static void allow_every_third(headrace_processor_row *row, int64_t first, int64_t vocab)
{
    memset(row->mask, 0, (size_t)row->mask_words * sizeof *row->mask);
    for (int64_t id = first % 3; id < vocab; id += 3)
        row->mask[id / 32] |= (uint32_t)1 << (id % 32);
    row->masked = 1;
}

static void bias(headrace_processor_row *row, int32_t id, float value)
{
    row->bias_ids[row->n_bias] = id;
    row->bias_values[row->n_bias++] = value;
}

/* Good: "thirds" (a token's id and its place are alike modulo 3), "twice" (one id, two entries),
 * "idle"; everything else is bad. */
static int act(const stub *s, headrace_processor_row *row)
{
    if (!strcmp(s->what, "thirds")) allow_every_third(row, row->n_tokens, s->vocab);
    if (!strcmp(s->what, "twice")) {
        bias(row, 65, 1.5f);
        bias(row, 65, 2);
    }
    if (!strcmp(s->what, "id")) bias(row, (int32_t)s->vocab, 1);
    if (!strcmp(s->what, "negative")) bias(row, -1, 1);
    if (!strcmp(s->what, "nan")) bias(row, 65, NAN);
    if (!strcmp(s->what, "infinite")) bias(row, 65, -INFINITY);
    if (!strcmp(s->what, "count")) row->n_bias = row->bias_capacity + 1;
    if (!strcmp(s->what, "uncount")) row->n_bias = -1;
    if (!strcmp(s->what, "bias-end")) row->bias_ids[row->bias_capacity] = 1;
    if (!strcmp(s->what, "mask-end")) row->mask[row->mask_words] = 0;
    if (!strcmp(s->what, "pointers")) row->bias_ids = NULL; /* the row is its own to spoil */
    if (!strcmp(s->what, "empty")) {
        memset(row->mask, 0, (size_t)row->mask_words * sizeof *row->mask);
        row->masked = 1;
    }
    return !strcmp(s->what, "fail") ? HEADRACE_INTERNAL : HEADRACE_OK;
}

static int process(void *processor, void *state, headrace_processor_row *row)
{
    const stub *s = processor;
    choice *mine = state;
    if (!mine->concerned) return HEADRACE_OK;
    if (mine->seen && row->n_tokens != mine->seen + 1) return HEADRACE_ABORTED; /* one skipped */
    mine->seen = row->n_tokens;
    if (row->n_tokens < row->n_prompt + 2 && strcmp(s->what, "thirds") && strcmp(s->what, "twice"))
        return HEADRACE_OK; /* a few tokens first */
    return act(s, row);
}

static const headrace_logits_processor it = {
    .size = STUB_SIZE,
    .version = STUB_VERSION,
    .name = "stub",
    .create = create,
    .destroy = destroy,
    .begin = begin,
    .end = end,
#ifndef STUB_NO_PROCESS
    .process = process,
#endif
};

#ifdef STUB_NO_SYMBOL
#define headrace_logits_processor_get headrace_logits_processor_give
const headrace_logits_processor *headrace_logits_processor_give(void);
#endif
const headrace_logits_processor *headrace_logits_processor_get(void)
{
#ifdef STUB_NULL
    return NULL;
#endif
    return &it;
}
