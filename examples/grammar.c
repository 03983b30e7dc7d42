/* A grammar of one's own: the answer is a date, four digits, two and two.
 *   cc grammar.c -lheadrace && ./a.out smollm2-135m "World War II ended on " */
#include <headrace/headrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char shape[] = "dddd-dd-dd"; /* d: any digit */
enum { LENGTH = sizeof shape - 1 };

/* One for all requests: the tokens that are made of digits and dashes. */
typedef struct date_grammar {
    const headrace_engine *engine;
    int64_t *ids, n_ids;
    const int64_t *eos;
    size_t n_eos;
} date_grammar;

/* One for each answer. */
typedef struct date_state {
    const date_grammar *of;
    size_t written;
} date_state;

static int fits(const char *bytes, size_t n, size_t at)
{
    if (!n || at + n > LENGTH) return 0;
    for (size_t i = 0; i < n; i++) {
        int digit = bytes[i] >= '0' && bytes[i] <= '9';
        if (shape[at + i] == 'd' ? !digit : bytes[i] != shape[at + i]) return 0;
    }
    return 1;
}

static void *date_begin(void *context, uint32_t choice)
{
    date_state *s = calloc(1, sizeof *s);
    (void)choice;
    if (s) s->of = context;
    return s;
}

static void set(uint32_t *words, int64_t id)
{
    words[id / 32] |= (uint32_t)1 << (id % 32);
}

static int date_fill(void *state, uint32_t *words, size_t n_words)
{
    const date_state *s = state;
    const date_grammar *g = s->of;
    (void)n_words; /* enough for every id of the model */
    for (int64_t i = 0; i < g->n_ids; i++) {
        size_t n;
        const char *bytes = headrace_token_bytes(g->engine, g->ids[i], &n);
        if (fits(bytes, n, s->written)) set(words, g->ids[i]);
    }
    for (size_t i = 0; s->written == LENGTH && i < g->n_eos; i++) set(words, g->eos[i]);
    return 1;
}

static void date_accept(void *state, int64_t token_id)
{
    date_state *s = state;
    size_t n;
    (void)headrace_token_bytes(s->of->engine, token_id, &n);
    s->written += n; /* EOS has no bytes */
}

static int find_tokens(headrace_engine *engine, date_grammar *g)
{
    headrace_info info;
    headrace_info_get(engine, &info);
    *g = (date_grammar){ .engine = engine,
                         .eos = info.eos_token_ids,
                         .n_eos = info.n_eos_token_ids };
    g->ids = malloc((size_t)info.vocab_size * sizeof *g->ids);
    for (int64_t id = 0; g->ids && id < info.vocab_size; id++) {
        size_t n;
        const char *bytes = headrace_token_bytes(engine, id, &n);
        int made_of = n > 0;
        for (size_t i = 0; i < n; i++) made_of = made_of && strchr("0123456789-", bytes[i]);
        if (made_of) g->ids[g->n_ids++] = id;
    }
    return g->ids ? 0 : 1;
}

static int ask(headrace_engine *engine, const char *prompt, const headrace_grammar *grammar)
{
    headrace_sampling sampling;
    headrace_sampling_init(engine, &sampling);
    sampling.grammar = grammar;
    headrace_request request;
    headrace_request_init(&request);
    request.prompt = prompt;
    request.prompt_bytes = strlen(prompt);
    request.sampling = &sampling;
    uint64_t id;
    int failed = headrace_submit(engine, &request, &id);
    if (failed) fprintf(stderr, "%s\n", headrace_message());
    for (headrace_event event; !failed && !headrace_poll(engine, &event, -1);) {
        if (event.kind == HEADRACE_EVENT_TOKENS) fwrite(event.text, 1, event.text_bytes, stdout);
        if (event.kind == HEADRACE_EVENT_FAILED) fprintf(stderr, "%s\n", event.message);
        if (event.kind == HEADRACE_EVENT_DONE) break;
    }
    putchar('\n');
    return failed;
}

int main(int argc, char **argv)
{
    headrace_options options;
    headrace_options_init(&options);
    options.model = argc > 1 ? argv[1] : "smollm2-135m";
    headrace_engine *engine;
    if (headrace_engine_create(&options, &engine)) {
        fprintf(stderr, "%s\n", headrace_message());
        return 1;
    }
    date_grammar dates;
    headrace_grammar grammar = { .size = sizeof grammar,
                                 .context = &dates,
                                 .begin = date_begin,
                                 .fill = date_fill,
                                 .accept = date_accept,
                                 .end = free };
    int failed = find_tokens(engine, &dates);
    if (!failed) failed = ask(engine, argc > 2 ? argv[2] : "World War II ended on ", &grammar);
    headrace_engine_destroy(engine);
    free(dates.ids);
    return failed;
}
