/* Looking the last tokens up in what came before them.
 *
 * A sequence's lists are made on the input thread, with its prompt in them, and then are the engine
 * thread's. A place is the index of a token that has `least` tokens before it; places with the same
 * tokens before them are chained, newest first, under a hash of those. A lookup goes back at most
 * WALK places, compares at most `most` tokens at each, and so takes as long in a context of a
 * hundred thousand tokens as in one of a hundred. The longest match wins, of equal ones the newest.
 * What is copied from there may run into the guesses themselves: of a text that repeats every two
 * tokens, all that is wanted is guessed.
 *
 * How often guesses come true is counted for each sequence, checked or not, since a guess's place
 * is sooner or later taken by a token. */
#include "engine/ngram.h"

#include "base/json.h"

enum { WALK = 32 };

/* What is remembered of a guess with each one after it, and what is thought before there was any:
 * that one of two comes true. */
static const double KEPT = 0.9, HOPE = 1, DOUBT = 2;

/* ---- the flag -------------------------------------------------------------------------------- */

static hr_status read_count(const hr_json *object, const char *name, int64_t most, int64_t *out)
{
    const hr_json *v = hr_json_get(object, name);
    if (!v) return HR_OK;
    HR_TRY(hr_json_to_i64(v, name, out));
    if (*out >= 1 && *out <= most) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "%s must be 1..%lld, not %lld", name, (long long)most,
                   (long long)*out);
}

static hr_status check_members(const hr_json *object)
{
    static const char *const known[] = { "method", "num_speculative_tokens", "prompt_lookup_max",
                                         "prompt_lookup_min", "enable_adaptive_verification" };
    if (object->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "not a JSON object like {\"method\": \"ngram\", "
                                            "\"num_speculative_tokens\": 5}");
    return hr_json_check_members(object, known, sizeof known / sizeof *known);
}

static hr_status check_method(const hr_json *object)
{
    const hr_json *method = hr_json_get(object, "method");
    if (!method || method->type != HR_JSON_STRING)
        return hr_fail(HR_INVALID_ARGUMENT, "method must be a string: \"ngram\"");
    if (hr_str_eq_c(method->text, "ngram")) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "method \"%.*s\" is not implemented; \"ngram\" is",
                   HR_STR_ARG(method->text));
}

static hr_status read_adaptive(const hr_json *object, bool *out)
{
    const char *name = "enable_adaptive_verification";
    const hr_json *v = hr_json_get(object, name);
    *out = true;
    return v ? hr_json_to_bool(v, name, out) : HR_OK;
}

/* One bound of the lookup is the other's default; 5 is vLLM's where there is none. */
static hr_status read_speculation(const hr_json *object, hr_speculation *s)
{
    enum { LOOKUP = 5 };
    HR_TRY(check_members(object));
    HR_TRY(check_method(object));
    HR_TRY(read_adaptive(object, &s->adaptive));
    HR_TRY(read_count(object, "num_speculative_tokens", HR_SPECULATION_TOKENS, &s->tokens));
    HR_TRY(read_count(object, "prompt_lookup_max", HR_SPECULATION_LOOKUP, &s->most));
    HR_TRY(read_count(object, "prompt_lookup_min", HR_SPECULATION_LOOKUP, &s->least));
    if (!s->tokens) return hr_fail(HR_INVALID_ARGUMENT, "num_speculative_tokens is missing");
    if (!s->most) s->most = s->least ? s->least : LOOKUP;
    if (!s->least) s->least = s->most;
    if (s->least <= s->most) return HR_OK;
    return hr_fail(HR_INVALID_ARGUMENT, "prompt_lookup_min %lld is above prompt_lookup_max %lld",
                   (long long)s->least, (long long)s->most);
}

hr_status hr_speculation_parse(hr_str json, hr_speculation *out)
{
    hr_arena arena = { 0 };
    const hr_json *root = NULL;
    *out = (hr_speculation){ 0 };
    hr_status st = hr_json_parse(json, NULL, &arena, &root);
    if (!st) st = read_speculation(root, out);
    hr_arena_deinit(&arena);
    if (!st) return HR_OK;
    *out = (hr_speculation){ 0 };
    return hr_fail_prefix(st, "--speculative-config");
}

/* ---- the lists ------------------------------------------------------------------------------- */

hr_status hr_ngram_init(hr_ngram *g, const hr_speculation *s, int32_t *before, int64_t capacity)
{
    enum { MOST_HEADS = 1 << 16 };
    uint32_t heads = 16;
    while ((int64_t)heads < capacity && heads < MOST_HEADS) heads *= 2;
    *g = (hr_ngram){
        .least = s->least, .most = s->most, .wanted = s->tokens, .before = before, .mask = heads - 1
    };
    g->noted = g->least;
    g->heads = hr_alloc_array0(heads, sizeof *g->heads);
    return g->heads ? HR_OK : hr_fail(HR_RESOURCE_EXHAUSTED, "n-grams");
}

void hr_ngram_deinit(hr_ngram *g)
{
    hr_free(g->heads);
    *g = (hr_ngram){ 0 };
}

/* The chain of places that have these tokens before them, and maybe of others. */
static int32_t *head_of(const hr_ngram *g, const int32_t *tokens, int64_t place)
{
    uint64_t h = 0;
    for (int64_t i = place - g->least; i < place; i++)
        h = (h ^ (uint32_t)tokens[i]) * 0x9E3779B97F4A7C15u;
    return &g->heads[(h >> 32) & g->mask];
}

void hr_ngram_note(hr_ngram *g, const int32_t *tokens, int64_t n)
{
    for (; g->noted < n; g->noted++) {
        int32_t *head = head_of(g, tokens, g->noted);
        g->before[g->noted] = *head;
        *head = (int32_t)g->noted;
    }
}

/* How many tokens before `place` are those before `n`, as far as it matters. */
static int64_t match(const hr_ngram *g, const int32_t *tokens, int64_t place, int64_t n)
{
    int64_t most = place < g->most ? place : g->most, i = 0;
    while (i < most && tokens[place - 1 - i] == tokens[n - 1 - i]) i++;
    return i;
}

/* Where the best match is followed; 0 = there is none. */
static int64_t look_up(const hr_ngram *g, const int32_t *tokens, int64_t n)
{
    int64_t best = g->least - 1, from = 0;
    if (n <= g->least) return 0;
    int32_t place = *head_of(g, tokens, n);
    for (int i = 0; i < WALK && place && best < g->most; i++, place = g->before[place]) {
        int64_t length = match(g, tokens, place, n);
        if (length <= best) continue;
        best = length;
        from = place;
    }
    return from;
}

/* Guesses that were not checked in a step of their own can be seen to have been right, too. */
static void settle(hr_ngram *g, const int32_t *tokens, int64_t n)
{
    int64_t known = n - g->guessed_at, right = 0;
    if (known > g->n_guesses) known = g->n_guesses;
    if (known <= 0) return;
    while (right < known && tokens[g->guessed_at + right] == g->guesses[right]) right++;
    g->right = g->right * KEPT + (double)right;
    g->tried = g->tried * KEPT + (double)(right + (right < known));
}

void hr_ngram_guess(hr_ngram *g, const int32_t *tokens, int64_t n)
{
    settle(g, tokens, n);
    hr_ngram_note(g, tokens, n);
    int64_t from = look_up(g, tokens, n);
    g->guessed_at = n;
    g->n_guesses = from ? g->wanted : 0;
    for (int64_t i = 0; i < g->n_guesses; i++)
        g->guesses[i] = from + i < n ? tokens[from + i] : g->guesses[from + i - n];
}

int64_t hr_ngram_worth(const hr_ngram *g, double price)
{
    double likely = (g->right + HOPE) / (g->tried + DOUBT), all = likely;
    int64_t n = 0;
    for (; n < g->n_guesses && all > price; n++) all *= likely;
    return n;
}
