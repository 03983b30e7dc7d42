/* A logits processor: no answer repeats three tokens in a row that it had before.
 *   cc -shared -fPIC logits_processor_trigram.c -o trigram.so
 *   headrace serve smollm2-135m --logits-processor ./trigram.so */
#include <headrace/headrace.h>

/* Forbids whatever followed the last two tokens where they stood before. */
static int process(void *processor, void *state, headrace_processor_row *row)
{
    (void)processor;
    (void)state;
    const int32_t *answer = row->tokens + row->n_prompt;
    int64_t n = row->n_tokens - row->n_prompt;
    for (int64_t i = 2; i < n; i++) {
        if (answer[i - 2] != answer[n - 2] || answer[i - 1] != answer[n - 1]) continue;
        row->mask[answer[i] / 32] &= ~((uint32_t)1 << (answer[i] % 32));
        row->masked = 1;
    }
    return HEADRACE_OK;
}

static const headrace_logits_processor trigram = { .size = sizeof trigram,
                                                   .version = HEADRACE_LOGITS_PROCESSOR_VERSION,
                                                   .name = "trigram",
                                                   .process = process };

const headrace_logits_processor *headrace_logits_processor_get(void)
{
    return &trigram;
}
