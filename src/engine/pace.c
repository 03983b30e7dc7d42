/* Two moving averages and their quotient.
 *
 * Engine thread. What a prompt token costs beside what a step of answers costs differs by a factor
 * of a hundred between machines, models and lengths of context, so it is measured, not guessed.
 * Only the cutting of prompts into chunks depends on it, which changes no answer. A step that took
 * far longer than its like (the thread was not running) counts as twice the average at most. */
#include "engine/pace.h"

static void average(double *mean, double sample)
{
    if (*mean > 0 && sample > 2 * *mean) sample = 2 * *mean;
    if (*mean > 0 && sample < *mean / 2) sample = *mean / 2;
    *mean += *mean > 0 ? (sample - *mean) / 8 : sample;
}

void hr_pace_note(hr_pace *p, int64_t prompt, int64_t answers, int64_t ns)
{
    double t = (double)ns;
    if (prompt == 0 && answers > 0) average(&p->answers_ns, t);
    if (prompt == 0 || (answers > 0 && p->answers_ns <= 0)) return;
    double added = answers > 0 ? t - p->answers_ns : t;
    if (added > 0) average(&p->token_ns, added / (double)prompt);
}

int64_t hr_pace_tokens(const hr_pace *p)
{
    if (p->answers_ns <= 0 || p->token_ns <= 0) return 0;
    double n = p->answers_ns / p->token_ns;
    return n < (double)(1 << 30) ? (int64_t)n : 1 << 30;
}
