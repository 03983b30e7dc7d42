/* Inside the sampler room. */
#ifndef HEADRACE_SAMPLER_SAMPLER_INT_H
#define HEADRACE_SAMPLER_SAMPLER_INT_H

#include "sampler/sampler.h"

/* Below: greedy. From there up to the second: raised to it. */
#define HR_SAMPLING_GREEDY_BELOW      1e-5
#define HR_SAMPLING_LEAST_TEMPERATURE 0.01

/* Position of each input in the list. */
typedef enum hr_sampling_input {
#define HR_SAMPLING_INDEX(field, program, dtype, type, columns, identity) HR_INPUT_##field,
    HR_SAMPLING_INPUTS(HR_SAMPLING_INDEX)
#undef HR_SAMPLING_INDEX
        HR_SAMPLING_INPUT_COUNT,
} hr_sampling_input;

typedef enum hr_sampler_program { HR_PROGRAM_SAMPLER, HR_PROGRAM_TABLES } hr_sampler_program;

/* One line of the list as data. */
typedef struct hr_sampling_input_info {
    const char *name;
    hr_sampler_program program;
    hr_dtype dtype;
    int64_t columns; /* 0 = W */
} hr_sampling_input_info;

extern const hr_sampling_input_info hr_sampling_input_list[HR_SAMPLING_INPUT_COUNT];

/* ids at or above it are padding */
static inline int64_t hr_used_vocab(int64_t vocab, int64_t used)
{
    return used > 0 && used < vocab ? used : vocab;
}

#endif
