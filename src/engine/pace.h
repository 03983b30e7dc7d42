/* How many prompt tokens cost as much as a step of answers, from the steps that ran. */
#ifndef HEADRACE_ENGINE_PACE_H
#define HEADRACE_ENGINE_PACE_H

#include <stdint.h>

/* `= { 0 }` knows nothing. */
typedef struct hr_pace {
    double answers_ns; /* a step in which nothing but answers ran, lately */
    double token_ns;   /* what a prompt token adds to a step */
} hr_pace;

/* A step of `prompt` prompt tokens beside `answers` answers took `ns`. */
void hr_pace_note(hr_pace *p, int64_t prompt, int64_t answers, int64_t ns);
/* 0 = not known yet. */
int64_t hr_pace_tokens(const hr_pace *p);

#endif
