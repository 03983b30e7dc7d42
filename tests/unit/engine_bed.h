/* An engine on a model of random weights, with a tokenizer of bytes and a chat template: for tests
 * of what happens between submit and the last event. Ids 0 to 255 are bytes; then the special
 * tokens. */
#ifndef HEADRACE_TESTS_ENGINE_BED_H
#define HEADRACE_TESTS_ENGINE_BED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_int.h"
#include "model_files.h"

enum { BED_BOS = 256, BED_EOS, BED_START, BED_END, BED_VOCAB };

static const char bed_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
    "\"hidden_size\": 64, \"intermediate_size\": 128, \"num_hidden_layers\": 2,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 260,"
    "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
    "\"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 256,"
    "\"eos_token_id\": 257, \"torch_dtype\": \"float32\"}";

/* Bytes of a KV block of 16 tokens of that model: two layers, k and v, two heads of 16 floats, of
 * which each of a pair of devices has one. */
#define BED_BLOCK_BYTES (2 * 2 * (getenv("HEADRACE_BED_PAIR") ? 1 : 2) * 16 * 4 * 16)

static const char bed_template[] =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>{% endfor %}"
    "{%- if tone %}[{{ tone }}]{% endif %}"
    "{%- for d in documents or [] %}({{ d.text }}){% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}";

/* GPT-2's alphabet, as its encoder.py builds it; the special tokens; BOS before a text. */
static inline void bed_put_tokenizer(void)
{
    static const char *const special[] = { "<s>", "</s>", "<|im_start|>", "<|im_end|>" };
    hr_buf out = { 0 };
    hr_buf_add_c(&out, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        hr_buf_printf(&out, "%s\"\\u%04x\":%u", b ? "," : "", printable ? b : next++, b);
    }
    hr_buf_add_c(&out, "}},\"added_tokens\":[");
    for (int i = 0; i < 4; i++)
        hr_buf_printf(&out, "%s{\"id\":%d,\"content\":\"%s\",\"special\":true}", i ? "," : "",
                      256 + i, special[i]);
    hr_buf_add_c(&out, "],\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                       "\"decoder\":{\"type\":\"ByteLevel\"},"
                       "\"post_processor\":{\"type\":\"TemplateProcessing\",\"pair\":[],"
                       "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                       "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":"
                       "{\"<s>\":{\"id\":\"<s>\",\"ids\":[256],\"tokens\":[\"<s>\"]}}}}");
    put_file("tokenizer.json", out.p, out.n);
    hr_buf_deinit(&out);
}

static inline int bed_setup(void **state)
{
    if (scratch_setup(state)) return 1;
    put_text("config.json", bed_config);
    bed_put_tokenizer();
    hr_buf config = { 0 };
    hr_buf_printf(&config,
                  "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"chat_template\":\"%s\"}",
                  bed_template);
    put_file("tokenizer_config.json", config.p, config.n);
    hr_buf_deinit(&config);
    return 0;
}

/* HEADRACE_BED_DEVICE runs the suites on another device, "pjrt:PATH"; its programs of fixed shapes
 * are compiled into HEADRACE_BED_COMPILED, a folder. HEADRACE_BED_PAIR=1 has two of XLA's CPU
 * devices share the model. */
static inline void bed_place(headrace_options *o)
{
    o->compile_cache = "";
    if (!getenv("HEADRACE_BED_DEVICE")) return;
    o->device = getenv("HEADRACE_BED_DEVICE");
    o->compile_cache = getenv("HEADRACE_BED_COMPILED");
    o->dtype = "float32";
    if (getenv("HEADRACE_BED_PAIR")) {
        o->device_options = "cpu_device_count=2";
        o->tensor_parallel_size = 2;
    }
    o->threads = 0; /* the native backend's */
}

static inline void bed_options(headrace_options *o)
{
    headrace_options_init(o);
    o->model = scratch;
    o->load_format = "dummy";
    o->max_num_seqs = 16;
    o->max_num_batched_tokens = 256;
    o->max_model_len = 1024;
    o->kv_cache_memory_bytes = 256 * BED_BLOCK_BYTES;
    o->check_recompilation = 1;
    o->threads = 1;
    bed_place(o);
}

static inline headrace_engine *bed_start(const headrace_options *o)
{
    headrace_engine *e;
    if (headrace_engine_create(o, &e)) fail_msg("%s", headrace_message());
    return e;
}

/* One choice's answer, everything that must not change with its circumstances. */
typedef struct bed_answer {
    hr_buf essence; /* ids and the bits of every log-probability; then the text */
    char finish[16];
    int64_t output_tokens, cached_tokens;
    double queue_s, prefill_s, decode_s;
    char stop_string[32];
    int tokens_events;
    bool started, done, failed;
    int status;
    char message[256];
    int64_t *prompt_ids; /* of its request */
    size_t n_prompt_ids;
} bed_answer;

typedef struct bed_want {
    uint64_t id;
    bed_answer choices[4];
    bool done;
} bed_want;

static inline void bed_free(bed_want *w)
{
    for (size_t i = 0; i < 4; i++) {
        hr_buf_deinit(&w->choices[i].essence);
        free(w->choices[i].prompt_ids);
    }
    *w = (bed_want){ 0 };
}

static inline void bed_add_token(hr_buf *out, const headrace_token *t)
{
    uint64_t bits;
    memcpy(&bits, &t->chosen.logprob, sizeof bits);
    hr_buf_printf(out, "%d:%llx:%d ", (int)t->chosen.token_id, (unsigned long long)bits,
                  (int)t->chosen.rank);
    for (size_t k = 0; k < t->n_top; k++) {
        memcpy(&bits, &t->top[k].logprob, sizeof bits);
        hr_buf_printf(out, "(%d:%llx)", (int)t->top[k].token_id, (unsigned long long)bits);
    }
}

static inline void bed_note(bed_want *w, const headrace_event *v)
{
    bed_answer *a = &w->choices[v->choice];
    switch (v->kind) {
    case HEADRACE_EVENT_STARTED:
        a->started = true;
        a->n_prompt_ids = v->n_prompt_ids;
        a->prompt_ids = calloc(v->n_prompt_ids + 1, sizeof *a->prompt_ids);
        memcpy(a->prompt_ids, v->prompt_ids, v->n_prompt_ids * sizeof *a->prompt_ids);
        break;
    case HEADRACE_EVENT_PROMPT:
    case HEADRACE_EVENT_TOKENS:
        a->tokens_events++;
        for (size_t i = 0; i < v->n_tokens; i++) bed_add_token(&a->essence, &v->tokens[i]);
        hr_buf_printf(&a->essence, "|%.*s|", (int)v->text_bytes, v->text ? v->text : "");
        break;
    case HEADRACE_EVENT_FINISHED:
        snprintf(a->finish, sizeof a->finish, "%s", v->finish_reason);
        if (v->stop_string) snprintf(a->stop_string, sizeof a->stop_string, "%s", v->stop_string);
        a->output_tokens = v->output_tokens;
        a->cached_tokens = v->cached_tokens;
        a->queue_s = v->queue_s;
        a->prefill_s = v->prefill_s;
        a->decode_s = v->decode_s;
        break;
    case HEADRACE_EVENT_FAILED:
        a->failed = true;
        a->status = v->status;
        snprintf(a->message, sizeof a->message, "%s", v->message);
        break;
    case HEADRACE_EVENT_DONE: w->done = true; break;
    }
}

/* Polls until every request is done; ids that are none of these are an error. */
static inline void bed_await(headrace_engine *e, bed_want *wants, size_t n)
{
    for (size_t left = n; left;) {
        headrace_event v;
        left = 0;
        for (size_t i = 0; i < n; i++) left += !wants[i].done;
        if (!left) return;
        if (headrace_poll(e, &v, 60000)) fail_msg("no event within a minute");
        size_t i = 0;
        while (i < n && wants[i].id != v.id) i++;
        if (i == n) fail_msg("an event of request %llu", (unsigned long long)v.id);
        assert_false(wants[i].done);
        bed_note(&wants[i], &v);
    }
}

static inline void bed_submit(headrace_engine *e, const headrace_request *r, bed_want *w)
{
    *w = (bed_want){ 0 };
    if (headrace_submit(e, r, &w->id)) fail_msg("%s", headrace_message());
}

/* A prompt of text and its answer. */
static inline void bed_ask(headrace_engine *e, const headrace_request *r, bed_want *w)
{
    bed_submit(e, r, w);
    bed_await(e, w, 1);
}

static inline void bed_request(headrace_request *r, const char *text, const headrace_sampling *s)
{
    headrace_request_init(r);
    r->prompt = text;
    r->prompt_bytes = text ? strlen(text) : 0;
    r->sampling = s;
}

/* Waits for what other threads do: until `get` gives `want`, ten seconds at most. */
static inline bool bed_settles(headrace_engine *e, uint64_t (*get)(const hr_engine_gauges *),
                               uint64_t want)
{
    hr_engine_gauges g;
    for (int i = 0; i < 10000; i++) {
        hr_engine_gauges_get(e, &g);
        if (get(&g) == want) return true;
        usleep(1000);
    }
    return false;
}

#endif
