/* The pre-tokenizers that GGUF names: what each name stands for.
 *
 * Data. GGUF gives a name where a tokenizer.json describes the stages; the names are those that
 * llama.cpp's converter writes, and each stands for what the tokenizer.json of that model does:
 * patterns whose matches are cut out in turn, a normalizer, whether a word that is a token is that
 * token. A name that is not here is refused: a wrong split would go unnoticed. */
#include "text/gguf_pre.h"

/* Apostrophes with what follows them, in any case. */
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GAPS        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* OpenAI's cl100k and its many children; they differ in how they cut numbers. */
#define CL100K(digits)                                                                             \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" GAPS
/* OpenAI's o200k: words end where small letters are followed by capitals. */
#define UPPER(set) "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" set "]"
#define LOWER(set) "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" set "]"
#define O200K_WORDS(set, tail)                                                                     \
    UPPER(set) "*" LOWER(set) "+" tail "|" UPPER(set) "+" LOWER(set) "*" tail
#define O200K(digits, tail)                                                                        \
    O200K_WORDS("", tail) "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" GAPS
#define QWEN35                                                                                     \
    SHORT_FORMS                                                                                    \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"           \
    "|" GAPS
#define KIMI                                                                                       \
    "[\\p{Han}]+|" O200K_WORDS("&&[^\\p{Han}]", SHORT_FORMS                                        \
                               "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" GAPS
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"  \
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED                                                                                       \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" GAPS
#define EXAONE_MOE                                                                                 \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}"              \
                "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define NO_SHORT_FORMS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" GAPS
#define JAIS2                                                                                      \
    SHORT_FORMS                                                                                    \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"                    \
    "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"                \
    "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"

#define PUNCTUATED "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define DEEPSEEK3(tail)                                                                            \
    PUNCTUATED "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" tail
#define EAST_ASIAN "[一-龥\u3040-\u309f\u30a0-\u30ff]+"
#define CJK        "[一-龥ࠀ-一가-퟿]+"
/* The formatter counts wide letters anew each time. */
/* clang-format off */
#define CASED \
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ" \
    "-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-" \
    "ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
#define YOUTU_FIRST \
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"
/* clang-format on */
#define NO_STOPS " ?[^(\\s|.,!?…。，、।۔،)]+"
#define SYMBOLS  "[\\p{P}\\$\\+<=>\\^~\\|"

static const hr_gguf_pre table[] = {
    { "default", { SYMBOLS "]+", HR_PATTERN_GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }, 0 },
    { "gpt-2", { HR_PATTERN_GPT2 }, 0 },
    { "phi-2", { HR_PATTERN_GPT2 }, 0 },
    { "gigachat", { HR_PATTERN_GPT2 }, 0 },
    { "a.x-4.0", { HR_PATTERN_GPT2 }, 0 },
    { "mellum", { HR_PATTERN_GPT2 }, 0 },
    { "exaone4", { HR_PATTERN_GPT2 }, 0 },
    { "jais", { HR_PATTERN_GPT2 }, 0 },
    { "trillion", { HR_PATTERN_GPT2 }, 0 },
    { "granite-docling", { HR_PATTERN_GPT2 }, 0 },
    { "modern-bert", { HR_PATTERN_GPT2 }, HR_PRE_NFC },
    { "mpt", { HR_PATTERN_GPT2 }, HR_PRE_NFC },
    { "olmo", { HR_PATTERN_GPT2 }, HR_PRE_NFC },
    { "smollm", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "starcoder", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "refact", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "command-r", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS | HR_PRE_NFC },
    { "codeshell", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "exaone", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "minerva-7b", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "mellum2", { HR_PATTERN_GPT2 }, HR_PRE_DIGITS },
    { "falcon", { SYMBOLS "`]+", HR_PATTERN_GPT2, "[0-9][0-9][0-9]" }, 0 },
    { "llama-bpe", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "llama3", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "llama-v3", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "falcon3", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "falcon-h1", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "pixtral", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "midm-2.0", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "lfm2", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "dbrx", { CL100K("\\p{N}{1,3}") }, 0 },
    { "smaug-bpe", { CL100K("\\p{N}{1,3}") }, 0 },
    { "chatglm-bpe", { CL100K("\\p{N}{1,3}") }, 0 },
    { "glm4", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS },
    { "glm5", { CL100K("\\p{N}{1,3}") }, HR_PRE_WHOLE_WORDS },
    { "minicpm5", { "\\p{N}{1,3}", CL100K("\\p{N}+") }, HR_PRE_WHOLE_WORDS },
    { "jais-2", { JAIS2 }, 0 },
    { "qwen2", { CL100K("\\p{N}") }, HR_PRE_NFC },
    { "deepseek-r1-qwen", { CL100K("\\p{N}") }, HR_PRE_NFC },
    { "kormo", { CL100K("\\p{N}") }, 0 },
    { "f2llmv2", { CL100K("\\p{N}") }, HR_PRE_NFC },
    { "megrez", { CL100K("\\p{N}") }, HR_PRE_NFC },
    { "stablelm2", { CL100K("\\p{N}") }, 0 },
    { "hunyuan", { CL100K("\\p{N}") }, 0 },
    { "solar-open", { CL100K("\\p{N}") }, 0 },
    { "grok-2", { CL100K("\\p{N}") }, 0 },
    { "laguna", { "[^\\n]+|[\\n]+", CL100K("\\p{N}") }, 0 },
    { "ufakzeka", { NO_SHORT_FORMS }, 0 },
    { "qwen35", { QWEN35 }, HR_PRE_NFC },
    { "bailingmoe", { BAILING }, 0 },
    { "bailingmoe2", { BAILING }, 0 },
    { "llada-moe", { BAILING }, 0 },
    { "seed-coder", { SEED }, 0 },
    { "exaone-moe", { EXAONE_MOE }, 0 },
    { "gpt-4o", { O200K("\\p{N}{1,3}", SHORT_FORMS "?") }, 0 },
    { "llama4", { O200K("\\p{N}{1,3}", SHORT_FORMS "?") }, 0 },
    { "kanana2", { O200K("\\p{N}{1,3}", SHORT_FORMS "?") }, 0 },
    { "talkie", { O200K("\\p{N}{1,3}", SHORT_FORMS "?") }, 0 },
    { "minimax-m2", { O200K("\\p{N}{1,3}", SHORT_FORMS "?") }, 0 },
    { "tekken", { O200K("\\p{N}", "") }, HR_PRE_WHOLE_WORDS | HR_PRE_BOS },
    { "youtu", { YOUTU_FIRST, O200K("\\p{N}", SHORT_FORMS "?") }, HR_PRE_WHOLE_WORDS },
    { "kimi-k2", { KIMI }, 0 },
    { "deepseek-v3", { "\\p{N}{1,3}", EAST_ASIAN, DEEPSEEK3("[\\r\\n]*|" GAPS) }, 0 },
    { "hunyuan-dense", { "\\p{N}{1,3}", EAST_ASIAN, DEEPSEEK3("[\\r\\n]*|" GAPS) }, 0 },
    { "joyai-llm", { "\\p{N}{1,3}", EAST_ASIAN, DEEPSEEK3("[\\r\\n]*|" GAPS) }, 0 },
    { "hy_v4", { "\\p{N}{1,3}", EAST_ASIAN, DEEPSEEK3("[\\r\\n]*|" GAPS) }, 0 },
    { "spark2_5",
      { "\\p{N}{1,3}", EAST_ASIAN, DEEPSEEK3("|[\\r\\n]|\\s+(?!\\S)|\\s+"), "\\p{N}" },
      0 },
    { "deepseek-llm",
      { "[\\r\\n]", CASED, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", CJK, "\\p{N}+" },
      0 },
    { "deepseek-coder", { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}" }, 0 },
    { "poro-chat", { NO_STOPS }, 0 },
    { "bloom", { NO_STOPS }, 0 },
    { "gpt3-finnish", { NO_STOPS }, 0 },
    { "viking", { NO_STOPS, "\\p{N}" }, 0 },
    { "superbpe", { "\\p{N}+", "(?=(\\d{3})+(?!\\d))" }, 0 },
    { "chameleon",
      { "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
        "[\\p{P}!-/:-@\\[-`{-~]", HR_PATTERN_GPT2 },
      HR_PRE_BOS },
};

hr_status hr_gguf_pre_find(const char *name, const hr_gguf_pre **out)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0) *out = &table[i];
    return *out ? HR_OK
                : hr_fail(HR_UNIMPLEMENTED, "tokenizer.ggml.pre '%s' is not supported", name);
}
