/* The beginning of a tokenizer.json whose vocabulary is the 256 bytes, each its own id, spelt in
 * GPT-2's alphabet. */
#ifndef HEADRACE_TESTS_BYTE_VOCAB_H
#define HEADRACE_TESTS_BYTE_VOCAB_H

#include "base/str.h"

/* {"model":{…,"vocab":{…}},"added_tokens":[ */
static inline void byte_vocab_begin(hr_buf *json)
{
    hr_buf_add_c(json, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        hr_buf_printf(json, "%s\"\\u%04x\":%u", b ? "," : "", printable ? b : next++, b);
    }
    hr_buf_add_c(json, "}},\"added_tokens\":[");
}

#endif
