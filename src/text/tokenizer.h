/* Text to token ids and back, equal to Hugging Face `tokenizers` id for id. This room's door.
 *
 * A tokenizer is immutable once made and shared by any number of threads; what encoding writes to
 * is the caller's scratch, so it is re-entrant and allocates nothing once that has grown. Text is
 * UTF-8 with a length: NUL is a character. Time grows linearly with the text, for any text. */
#ifndef HEADRACE_TEXT_TOKENIZER_H
#define HEADRACE_TEXT_TOKENIZER_H

#include "base/str.h"
#include "text/span.h"

typedef struct hr_tokenizer hr_tokenizer;

/* ---- loading ------------------------------------------------------------------------------ */

/* From the text of a Hugging Face tokenizer.json, which may be freed afterwards.
 * INVALID_ARGUMENT: not what the format allows; UNIMPLEMENTED: names the component that is not
 * supported. Nothing in the file is ignored silently but what cannot change ids (padding,
 * truncation, dropout). */
HR_MUST_USE hr_status hr_tokenizer_load_json(hr_str tokenizer_json, hr_tokenizer **out);

/* A vocabulary as GGUF holds it. Plain data, borrowed for the call. */
typedef struct hr_vocab_spec {
    const char *model; /* tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (BPE by score) */
    const char *pre;   /* tokenizer.ggml.pre: "smollm", "llama-bpe", "qwen2", "gpt-2" … */
    const hr_str *tokens; /* [n_tokens]; gpt2: in the byte-level alphabet ("Ġthe") */
    const float *scores;  /* [n_tokens] or NULL */
    const int32_t *types; /* [n_tokens] or NULL (all normal): 1 normal 2 unknown 3 control
                             4 user-defined 5 unused 6 byte */
    size_t n_tokens;
    const hr_str *merges; /* [n_merges] "a b", best first */
    size_t n_merges;
    int64_t bos, eos, unk;                  /* -1 = absent */
    int add_bos, add_eos, add_space_prefix; /* 0, 1, or -1 = the file does not say */
} hr_vocab_spec;

HR_MUST_USE hr_status hr_tokenizer_create(const hr_vocab_spec *spec, hr_tokenizer **out);
void hr_tokenizer_destroy(hr_tokenizer *t); /* NULL is fine */

/* ---- encoding ----------------------------------------------------------------------------- */

/* What encoding writes to, one per thread. `= { 0 }` is an empty one and deinit of that is legal;
 * it may serve any tokenizer. */
typedef struct hr_tokenizer_scratch {
    struct hr_encoder *encoder; /* owned; made by the first encode */
} hr_tokenizer_scratch;

void hr_tokenizer_scratch_deinit(hr_tokenizer_scratch *s);

/* A growable list of ids. `= { 0 }` is empty; encode appends. */
typedef struct hr_ids {
    int32_t *p; /* owned */
    size_t n, capacity;
} hr_ids;

void hr_ids_deinit(hr_ids *ids);

/* Text with provenance. The spans of a call are tokenised as the one text that they join to, but a
 * special token ("<|im_start|>") is recognised only where every byte of it lies in spans that
 * parse special tokens; elsewhere its letters are letters. Added tokens that the vocabulary does
 * not call special are words and recognised everywhere, as Hugging Face does. The span type is
 * text/span.h's. */

typedef enum hr_encode_flags {
    HR_ENCODE_DEFAULT = 0,
    HR_ENCODE_ADD_SPECIAL = 1, /* what the post-processor adds around a text: BOS, EOS */
} hr_encode_flags;

/* Appends the ids of the joined spans to `ids`, which is unchanged on failure. INVALID_ARGUMENT
 * when the text is not UTF-8 or is longer than 2^31 - 1 bytes, RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_tokenizer_encode(const hr_tokenizer *t, const hr_text_span *spans,
                                          size_t n_spans, hr_encode_flags flags,
                                          hr_tokenizer_scratch *scratch, hr_ids *ids);

/* ---- the vocabulary ----------------------------------------------------------------------- */

/* Ids are 0 ≤ id < size; some below it may name nothing (holes in added tokens). */
size_t hr_tokenizer_size(const hr_tokenizer *t);
/* The id of a token by its text in the vocabulary ("Ġthe", "<|im_end|>"), or -1. */
int32_t hr_tokenizer_find(const hr_tokenizer *t, hr_str token_text);
/* The token as the vocabulary spells it; n 0 for an id that names nothing. Valid as long as t. */
hr_str hr_tokenizer_token_text(const hr_tokenizer *t, int32_t id);
/* The bytes that the id stands for inside a text (" the", "\xF0\x9F"), which need not be whole
 * characters; n 0 for an id that names nothing. Valid as long as t. */
hr_str hr_tokenizer_token_bytes(const hr_tokenizer *t, int32_t id);
/* True for special tokens (control tokens of GGUF): never shown when special tokens are skipped. */
bool hr_tokenizer_is_special(const hr_tokenizer *t, int32_t id);

/* ---- decoding ----------------------------------------------------------------------------- */

typedef enum hr_decode_flags {
    HR_DECODE_DEFAULT = 0,
    HR_DECODE_SKIP_SPECIAL = 1, /* special tokens become nothing */
    HR_DECODE_CONTINUES = 2,    /* the ids follow others: no first-word clean-up */
} hr_decode_flags;

/* Appends the text of ids to `out`: valid UTF-8, bytes that form no character as U+FFFD. An id that
 * names nothing adds nothing. */
HR_MUST_USE hr_status hr_tokenizer_decode(const hr_tokenizer *t, const int32_t *ids, size_t n,
                                          hr_decode_flags flags, hr_buf *out);

/* The same, one id at a time: what the pushes and one flush append, joined, is what decode gives
 * for all the ids; each push appends complete characters only. Fixed size, owns nothing, may be
 * copied. */
typedef struct hr_detok {
    const hr_tokenizer *tokenizer; /* borrowed */
    hr_decode_flags flags;
    bool started;   /* a token has been shown */
    uint8_t n_held; /* bytes held back */
    char held[4];   /* the beginning of a character */
} hr_detok;

void hr_detok_init(hr_detok *d, const hr_tokenizer *t, hr_decode_flags flags);
HR_MUST_USE hr_status hr_detok_push(hr_detok *d, int32_t id, hr_buf *out);
/* The end of the text: what is still held becomes U+FFFD. Ready for a new text afterwards. */
HR_MUST_USE hr_status hr_detok_flush(hr_detok *d, hr_buf *out);

#endif
