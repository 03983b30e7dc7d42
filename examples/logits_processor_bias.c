/* A logits processor with options: a logit_bias for every request.
 *   cc -shared -fPIC logits_processor_bias.c -o bias.so
 *   headrace serve smollm2-135m --logits-processor ./bias.so=15:-5,220:1.5 */
#include <headrace/headrace.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

typedef struct list {
    int32_t ids[MOST], n;
    float values[MOST];
} list;

/* The engine checks ids and values when they are used. */
static int read_list(list *l, const char *text)
{
    while (text && *text) {
        char *end;
        if (l->n == MOST) return HEADRACE_OUT_OF_RANGE;
        l->ids[l->n] = (int32_t)strtol(text, &end, 10);
        if (end == text || *end != ':') return HEADRACE_INVALID_ARGUMENT;
        text = end + 1;
        l->values[l->n++] = strtof(text, &end);
        if (end == text || (*end && *end != ',')) return HEADRACE_INVALID_ARGUMENT;
        text = *end ? end + 1 : end;
    }
    return l->n ? HEADRACE_OK : HEADRACE_INVALID_ARGUMENT;
}

static int create(const headrace_processor_info *info, void **processor)
{
    list *l = calloc(1, sizeof *l);
    if (!l) return HEADRACE_RESOURCE_EXHAUSTED;
    int status = read_list(l, info->options);
    if (status) {
        snprintf(info->message, info->message_bytes, "'%s' is not ID:VALUE,… of 1 to %d ids",
                 info->options ? info->options : "", MOST);
        free(l);
        return status;
    }
    *processor = l;
    return HEADRACE_OK;
}

static int process(void *processor, void *state, headrace_processor_row *row)
{
    const list *l = processor;
    (void)state;
    if (l->n > row->bias_capacity) return HEADRACE_RESOURCE_EXHAUSTED;
    for (int32_t i = 0; i < l->n; i++) {
        row->bias_ids[i] = l->ids[i];
        row->bias_values[i] = l->values[i];
    }
    row->n_bias = l->n;
    return HEADRACE_OK;
}

static const headrace_logits_processor bias = { .size = sizeof bias,
                                                .version = HEADRACE_LOGITS_PROCESSOR_VERSION,
                                                .name = "bias",
                                                .create = create,
                                                .destroy = free,
                                                .process = process };

const headrace_logits_processor *headrace_logits_processor_get(void)
{
    return &bias;
}
