/* Inside the room: the stages of a tokenizer and what encoding writes to.
 *
 * Text passes: added tokens met in the raw text → normalizers → added tokens met in the normalized
 * text → splitters → BPE → what the post-processor adds. Each stage is small, made by the loaders
 * (load_json.c, load_gguf.c) and never changed afterwards. */
#ifndef HEADRACE_TEXT_TEXT_INT_H
#define HEADRACE_TEXT_TEXT_INT_H

#include "text/pattern.h"
#include "text/scan.h"
#include "text/tokenizer.h"

/* Longest text, bytes: positions fit 31 bits. */
#define HR_TEXT_MAX_BYTES ((size_t)INT32_MAX)
/* Most normalizers or splitters of a tokenizer. */
#define HR_TEXT_MAX_STAGES 16

HR_MUST_USE hr_status hr_ids_add(hr_ids *ids, int32_t id);
/* Room for more. */
HR_MUST_USE hr_status hr_ids_reserve(hr_ids *ids, size_t more);

/* ---- vocab.c: ids, their texts, their bytes ------------------------------------------------- */

typedef struct hr_token {
    hr_str text;  /* as the vocabulary spells it; p NULL = the id names nothing */
    hr_str bytes; /* what it stands for in a text */
    bool special;
} hr_token;

typedef struct hr_vocab {
    hr_arena arena;   /* all texts and bytes */
    hr_token *tokens; /* owned, [size] */
    size_t size, capacity;
    size_t n;        /* ids that name something */
    uint64_t *slots; /* owned, [mask + 1], 0 = empty; open addressing by hash of the text */
    size_t mask;
    uint64_t seed; /* drawn per vocabulary: a hostile file cannot choose collisions */
} hr_vocab;

HR_MUST_USE hr_status hr_vocab_init(hr_vocab *v, size_t expected);
/* Names an id. ALREADY_EXISTS when it has a name. A text that another id has stays that one's. */
HR_MUST_USE hr_status hr_vocab_put(hr_vocab *v, int64_t id, hr_str text);
int32_t hr_vocab_find(const hr_vocab *v, hr_str text);
void hr_vocab_deinit(hr_vocab *v);

/* ---- bytes.c: the byte-level alphabet of GPT-2 ---------------------------------------------- */

/* The character that stands for a byte. */
uint32_t hr_bytes_to_char(uint8_t byte);
/* The bytes that a text of that alphabet stands for; false when a character is not of it.
 * `out` holds text.n bytes at least. */
bool hr_bytes_from_text(hr_str text, char *out, size_t *n);
/* Appends bytes spelt in the alphabet. */
void hr_bytes_add_text(hr_buf *out, hr_str bytes);

/* ---- bpe.c: merging ------------------------------------------------------------------------- */

typedef struct hr_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX = empty slot */
    uint32_t rank; /* lower merges first */
    int32_t id;    /* what the pair becomes */
} hr_merge;

/* Characters that words may start with instead of their bytes. */
typedef struct hr_bpe_chars {
    int32_t token[0x10000];       /* of a character below U+10000, plus one; 0 = none */
    uint8_t crossed[0x10000 / 8]; /* bit: byte before << 8 | byte behind a boundary */
} hr_bpe_chars;

typedef struct hr_bpe {
    const hr_vocab *vocab; /* borrowed from the tokenizer */
    hr_merge *merges;      /* owned, [mask + 1]; open addressing */
    size_t mask, n;
    bool byte_level;      /* symbols start as bytes, not as characters */
    bool ignore_merges;   /* a word that is a token is that token */
    bool byte_fallback;   /* characters: unknown ones become <0xHH> */
    bool empty_parts;     /* a merge has an empty side */
    bool fuse_unk;        /* characters: a run of unknown ones is one unk */
    hr_bpe_chars *chars;  /* owned; byte level, or NULL */
    int32_t unk;          /* characters: id or -1 = unknown ones vanish */
    int32_t byte_id[256]; /* byte level: the byte's character; fallback: <0xHH>; -1 = none */
    size_t longest;       /* bytes of the longest token text */
} hr_bpe;

typedef struct hr_symbol {
    int32_t id;         /* -1 = merged into its left neighbour */
    int32_t prev, next; /* neighbours, -1 = none */
} hr_symbol;

typedef struct hr_candidate {
    uint64_t key; /* rank << 32 | position: the heap's order */
    int32_t id;   /* what the pair was to become */
} hr_candidate;

typedef struct hr_bpe_scratch {
    int32_t *ids; /* owned: [n] what the word starts as */
    size_t n, ids_capacity;
    hr_symbol *symbols; /* owned */
    size_t capacity;
    hr_candidate *heap; /* owned */
    size_t n_heap, heap_capacity;
    hr_buf word; /* the word in the byte-level alphabet */
} hr_bpe_scratch;

/* Room for n merges; then add each, best first. A pair met again takes its later rank. */
HR_MUST_USE hr_status hr_bpe_init_merges(hr_bpe *b, size_t n);
HR_MUST_USE hr_status hr_bpe_add_merge(hr_bpe *b, hr_str left, hr_str right);
/* The same by ids and with a rank of its own; room for all must be there. */
void hr_bpe_put_merge(hr_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);
/* Looks up the ids of bytes: after the vocabulary is whole. */
HR_MUST_USE hr_status hr_bpe_find_bytes(hr_bpe *b);
/* bpe_chars.c: after that and after the tokens' bytes. Where it cannot hold, words start as bytes.
 */
HR_MUST_USE hr_status hr_bpe_find_chars(hr_bpe *b);
/* The token that the character at byte `at` of a word starts as, or -1; *len is its length. */
int32_t hr_bpe_char_at(const hr_bpe_chars *c, hr_str word, size_t at, size_t *len);
/* Merges ids [n] in place, n ≤ 48; how many are left. *worst rises to the last rank used. */
size_t hr_bpe_merge_few(const hr_bpe *b, int32_t *ids, size_t n, uint32_t *worst);
/* Appends the ids of one word. */
HR_MUST_USE hr_status hr_bpe_encode(const hr_bpe *b, hr_str word, hr_bpe_scratch *s, hr_ids *ids);
void hr_bpe_deinit(hr_bpe *b);
void hr_bpe_scratch_deinit(hr_bpe_scratch *s);

/* ---- unigram.c: the likeliest spelling --------------------------------------------------------
 */

typedef struct hr_unigram_node {
    int32_t first;  /* child; they lie together, ascending by byte */
    int32_t token;  /* the id that ends here, or -1 */
    uint16_t count; /* of children */
    uint8_t byte;
} hr_unigram_node;

typedef struct hr_unigram {
    const hr_vocab *vocab;  /* borrowed from the tokenizer */
    double *scores;         /* owned, [tokens of the model] */
    hr_unigram_node *nodes; /* owned; NULL = the tokenizer is no Unigram */
    size_t n_nodes;
    double unknown_score;
    int32_t unk;
    bool byte_fallback;
    int32_t byte_id[256]; /* <0xHH>; -1 = none */
} hr_unigram;

typedef struct hr_unigram_step {
    double score; /* of the best way to this place */
    size_t start; /* where its last token begins */
    int32_t id;
} hr_unigram_step;

typedef struct hr_unigram_scratch {
    hr_unigram_step *steps; /* owned */
    size_t capacity;
} hr_unigram_scratch;

/* After vocab, scores, unk and byte_fallback of the first n tokens are set. */
HR_MUST_USE hr_status hr_unigram_finish(hr_unigram *u, size_t n);
/* Appends the ids of one word. */
HR_MUST_USE hr_status hr_unigram_encode(const hr_unigram *u, hr_str word, hr_unigram_scratch *s,
                                        hr_ids *ids);
void hr_unigram_deinit(hr_unigram *u);
void hr_unigram_scratch_deinit(hr_unigram_scratch *s);

/* ---- added.c: tokens met before any splitting ----------------------------------------------- */

typedef struct hr_added_token {
    hr_str text; /* what is looked for; borrowed from the vocabulary's arena */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
} hr_added_token;

typedef struct hr_trie_node {
    uint8_t byte;
    int32_t child, sibling; /* -1 = none */
    int32_t token;          /* index of the token that ends here, or -1 */
} hr_trie_node;

typedef struct hr_added {
    hr_added_token *tokens; /* owned */
    size_t n, capacity;
    hr_trie_node *nodes; /* owned */
    size_t n_nodes, nodes_capacity;
    int32_t root[256]; /* node of a first byte, or -1 */
} hr_added;

typedef struct hr_added_match {
    size_t start, stop; /* with the white space that lstrip and rstrip take */
    int32_t id;
} hr_added_match;

/* A search through one text. `= { .text = …, .plain = … }` starts it. */
typedef struct hr_added_search {
    hr_str text;
    const char *plain; /* [text.n], 1 = data; NULL = none is */
    size_t at;         /* where the next search begins */
    size_t done;       /* end of the last match */
} hr_added_search;

void hr_added_init(hr_added *a);
/* A text met again replaces the token it named. */
HR_MUST_USE hr_status hr_added_add(hr_added *a, const hr_added_token *token);
/* False at the end of the text. */
bool hr_added_next(const hr_added *a, hr_added_search *s, hr_added_match *out);
void hr_added_deinit(hr_added *a);

/* ---- normalize.c ---------------------------------------------------------------------------- */

typedef enum hr_normalizer_kind {
    HR_NORM_UNICODE, /* NFC, NFD, NFKC, NFKD by `form` */
    HR_NORM_PREPEND, /* `to` before a text that is not empty */
    HR_NORM_REPLACE, /* each `from`, or what `pattern` matches, becomes `to` */
    HR_NORM_LOWER,   /* small letters */
    HR_NORM_STRIP,   /* no white space in front, behind */
    HR_NORM_BYTES,   /* each byte becomes its character in the byte-level alphabet */
} hr_normalizer_kind;

typedef struct hr_normalizer {
    hr_normalizer_kind kind;
    int form;            /* utf8proc options */
    hr_str from, to;     /* borrowed from the tokenizer's arena */
    hr_pattern *pattern; /* owned; NULL = `from` counts */
    bool front, behind;  /* HR_NORM_STRIP */
} hr_normalizer;

/* Text under way, and for each byte whether it is data (1) or not; `plain` is empty when nobody
 * asked. */
typedef struct hr_marked_text {
    hr_buf bytes, plain;
} hr_marked_text;

typedef struct hr_normalize_scratch {
    hr_marked_text side[2]; /* stages write in turn */
    int32_t *chars;         /* owned: a character with its marks, decomposed */
    int32_t *sorted;        /* owned */
    size_t n, capacity, sorted_capacity;
    hr_buf kinds;       /* of characters, for patterns */
    hr_matcher matcher; /* made by the first pattern */
    bool lost_front;    /* out: the text's beginning went without leaving anything */
} hr_normalize_scratch;

/* Appends bytes; where `marked`, each is data if `plain`. */
void hr_marked_put(hr_marked_text *out, hr_str bytes, bool plain, bool marked);
static inline bool hr_any_plain(const char *plain, size_t from, size_t to)
{
    return plain && from < to && memchr(plain + from, 1, to - from) != NULL;
}

/* rewrite.c: one stage each; `plain` is NULL or marks the bytes of `in`. */
typedef hr_status (*hr_normalizer_run)(const hr_normalizer *stage, hr_str in, const char *plain,
                                       hr_normalize_scratch *s, hr_marked_text *out);
hr_status hr_normalize_prepend(const hr_normalizer *, hr_str, const char *, hr_normalize_scratch *,
                               hr_marked_text *);
hr_status hr_normalize_replace(const hr_normalizer *, hr_str, const char *, hr_normalize_scratch *,
                               hr_marked_text *);
hr_status hr_normalize_lower(const hr_normalizer *, hr_str, const char *, hr_normalize_scratch *,
                             hr_marked_text *);
hr_status hr_normalize_strip(const hr_normalizer *, hr_str, const char *, hr_normalize_scratch *,
                             hr_marked_text *);
hr_status hr_normalize_bytes(const hr_normalizer *, hr_str, const char *, hr_normalize_scratch *,
                             hr_marked_text *);

/* *out and *out_plain point into the input or the scratch. `plain` may be NULL. */
HR_MUST_USE hr_status hr_normalize(const hr_normalizer *stages, size_t n, hr_str text,
                                   const char *plain, hr_normalize_scratch *s, hr_str *out,
                                   const char **out_plain);
void hr_normalizer_deinit(hr_normalizer *n);
void hr_normalize_scratch_deinit(hr_normalize_scratch *s);

/* ---- split.c: pre-tokenizers ------------------------------------------------------------------
 */

typedef enum hr_splitter_kind {
    HR_SPLIT_PATTERN, /* a regular expression */
    HR_SPLIT_SCAN,    /* one that is known by hand: text/scan.h */
    HR_SPLIT_LITERAL, /* a string */
    HR_SPLIT_CHARS,   /* each character of a set is a match */
    HR_SPLIT_WORDS,   /* \w+|[^\w\s]+ as Rust's regex has it, the rest goes */
    HR_SPLIT_PREFIX,  /* no split: a space before a piece that does not start with one */
    HR_SPLIT_BYTES,   /* no split: each byte becomes its character in the byte-level alphabet */
    HR_SPLIT_SPACES,  /* Metaspace: spaces become `literal`, perhaps one more in front, and begin
                         pieces when `splits` */
} hr_splitter_kind;

typedef enum hr_prepend_scheme {
    HR_PREPEND_ALWAYS,
    HR_PREPEND_FIRST, /* only where the text begins */
    HR_PREPEND_NEVER,
} hr_prepend_scheme;

typedef enum hr_split_behavior {
    HR_SPLIT_ISOLATED,
    HR_SPLIT_REMOVED,
    HR_SPLIT_MERGED_WITH_PREVIOUS,
    HR_SPLIT_MERGED_WITH_NEXT,
    HR_SPLIT_CONTIGUOUS,
} hr_split_behavior;

typedef struct hr_splitter {
    hr_splitter_kind kind;
    hr_split_behavior behavior;
    bool invert;
    hr_prepend_scheme scheme; /* HR_SPLIT_SPACES */
    bool splits;              /* HR_SPLIT_SPACES */
    hr_pattern *pattern;      /* owned */
    hr_str literal;           /* borrowed from the tokenizer's arena; not empty */
    hr_scan_step step;        /* HR_SPLIT_SCAN */
    hr_char_map *map;         /* owned; HR_SPLIT_SCAN: the step's; HR_SPLIT_CHARS: bit 0 */
} hr_splitter;

/* Receives the pieces of a text, in order. */
typedef hr_status (*hr_piece_sink)(void *self, hr_str piece);

typedef struct hr_split_scratch {
    hr_buf text[HR_TEXT_MAX_STAGES]; /* per stage: kinds of characters, or changed text */
    hr_matcher matcher;
    bool at_start; /* in: the text begins where the whole one does; cleared by the first piece */
} hr_split_scratch;

/* What splits by a regular expression: by hand where that is known, else by PCRE2. */
HR_MUST_USE hr_status hr_splitter_by_regex(hr_splitter *s, hr_str regex);
/* What makes each character of the set that `add` gives a match. */
HR_MUST_USE hr_status hr_splitter_by_chars(hr_splitter *s, hr_status (*add)(hr_charset *set));
HR_MUST_USE hr_status hr_split(const hr_splitter *stages, size_t n, hr_str text,
                               hr_split_scratch *s, hr_piece_sink sink, void *self);
void hr_splitter_deinit(hr_splitter *s);
void hr_split_scratch_deinit(hr_split_scratch *s);

/* ---- decode.c ------------------------------------------------------------------------------- */

typedef enum hr_decode_kind {
    HR_DECODE_BYTES,    /* a token spelt in the byte-level alphabet is those bytes */
    HR_DECODE_FALLBACK, /* <0xHH> is a byte */
    HR_DECODE_REPLACE,  /* each `from` becomes `to` */
    HR_DECODE_STRIP,    /* up to `front` times `from` off the front, `behind` times off the end */
} hr_decode_kind;

typedef struct hr_decode_step {
    hr_decode_kind kind;
    hr_str from, to;
    int64_t front, behind;
} hr_decode_step;

/* The steps make a token's text its bytes, once, when the tokenizer is loaded; the rest is for the
 * joined text. */
typedef struct hr_decoder {
    hr_decode_step steps[HR_TEXT_MAX_STAGES];
    size_t n_steps;
    hr_str first_drops; /* Metaspace: the first token loses each of it; n 0 = nothing */
    bool blanks;        /* one between any two tokens */
    bool fused;         /* while loading: what follows sees the joined text */
    char strip_first;   /* taken off the front of a text where it is; 0 = nothing */
} hr_decoder;

/* ---- the whole ------------------------------------------------------------------------------ */

struct hr_tokenizer {
    hr_arena arena; /* strings of the stages */
    hr_vocab vocab;
    hr_added raw, normalized; /* added tokens, by what they are met in */
    hr_normalizer normalizers[HR_TEXT_MAX_STAGES];
    size_t n_normalizers;
    hr_splitter splitters[HR_TEXT_MAX_STAGES];
    size_t n_splitters;
    hr_bpe bpe;
    hr_unigram unigram;   /* instead, when it has nodes */
    hr_ids before, after; /* what the post-processor puts around a text */
    hr_decoder decoder;
};

/* An empty one; NULL when memory is short. */
hr_tokenizer *hr_tokenizer_new(void);
/* Copies into the tokenizer's arena. */
HR_MUST_USE hr_status hr_tokenizer_keep(hr_tokenizer *t, hr_str text, hr_str *out);
/* The next free stage, zeroed. */
HR_MUST_USE hr_status hr_tokenizer_add_splitter(hr_tokenizer *t, hr_splitter **out);
HR_MUST_USE hr_status hr_tokenizer_add_normalizer(hr_tokenizer *t, hr_normalizer **out);
HR_MUST_USE hr_status hr_tokenizer_add_decode_step(hr_tokenizer *t, hr_decode_step **out);
HR_MUST_USE hr_status hr_tokenizer_add_pattern(hr_tokenizer *t, hr_str regex);
HR_MUST_USE hr_status hr_tokenizer_add_digits(hr_tokenizer *t, hr_split_behavior behavior);
/* Registers an added token whose id has its text in the vocabulary. */
HR_MUST_USE hr_status hr_tokenizer_add_token(hr_tokenizer *t, const hr_added_token *token);
/* After everything is loaded: the bytes of each token, the ids of bytes. */
HR_MUST_USE hr_status hr_tokenizer_finish(hr_tokenizer *t);

/* The pattern of GPT-2, which ByteLevel's use_regex means. */
#define HR_PATTERN_GPT2                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#endif
