/* headrace quantize: a checkpoint written again in another precision. This room's door.
 *
 * The numbers are those that --quantization makes at load, so that a written checkpoint and the
 * float one loaded with that flag give the same answers to the bit. Nothing here prints. */
#ifndef HEADRACE_CONVERT_CONVERT_H
#define HEADRACE_CONVERT_CONVERT_H

#include "base/str.h"

/* Tensors written so far. */
typedef struct hr_convert_progress {
    size_t done, total;
    double seconds;
} hr_convert_progress;

typedef struct hr_convert_options {
    const char *model;         /* as hr_model_locate takes it: a Hugging Face folder */
    const char *out;           /* a folder that is not there yet, or is empty */
    const char *scheme;        /* "w8a8" or "w4a8" */
    int64_t group_size;        /* w4a8: 32, 64, 128, or 0 = the most that fits all rows */
    const char *const *ignore; /* [n_ignore] modules left as they are, beside lm_head: names, or
                                  "re:" and a pattern */
    size_t n_ignore;
    void (*progress)(void *context, const hr_convert_progress *p); /* NULL = silent */
    void *context;
} hr_convert_options;

/* Writes `out` whole or not at all: safetensors with compressed-tensors' quantization_config, and
 * the tokenizer's and other files of the source. What each linear lost is appended to `text` and
 * `json`: largest and root-mean-square error, and the cosine between old and new weights.
 * ALREADY_EXISTS: there is something at `out`. */
HR_MUST_USE hr_status hr_convert(const hr_convert_options *o, hr_buf *text, hr_buf *json);

#endif
