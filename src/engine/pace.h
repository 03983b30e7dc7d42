/* What steps cost, learnt from those that ran: how long one more answer or prompt token takes. */
#ifndef HEADRACE_ENGINE_PACE_H
#define HEADRACE_ENGINE_PACE_H

#include <stdint.h>

#define HR_PACE_TERMS 3 /* a step by itself, an answer, a prompt token */

/* `= { 0 }` knows nothing. */
typedef struct hr_pace {
    double cost[HR_PACE_TERMS];                  /* ms, per unit of pace.c */
    double spread[HR_PACE_TERMS][HR_PACE_TERMS]; /* how little is known of them */
    int64_t steps;
} hr_pace;

/* A step of `answers` answers and `prompt` prompt tokens took `ns`. */
void hr_pace_note(hr_pace *p, int64_t answers, int64_t prompt, int64_t ns);
/* Prompt tokens that take as long as a step of `answers` answers alone; 0 = not known yet. */
int64_t hr_pace_tokens(const hr_pace *p, int64_t answers);
/* Of the time of a step of `answers` answers, the part that goes with their number, as if a step by
 * itself took as long as one answer at least; 0 = not known yet. */
double hr_pace_part(const hr_pace *p, int64_t answers);

#endif
