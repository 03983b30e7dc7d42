/* Recursive least squares with forgetting, over three terms.
 *
 * Engine thread. What a prompt token costs beside what a step of answers costs differs by a factor
 * of a hundred between machines, models and lengths of context, so it is measured, not guessed.
 * Only the cutting of prompts into chunks depends on it, which changes no answer. The terms are in
 * units that make typical values about one; old steps count for less, but only while new ones tell
 * something (or a long quiet stretch would make every term as uncertain as at the start). A step
 * that took far longer than expected (the thread was not running) is taken as twice that. */
#include "engine/pace.h"

#include <math.h>

static const double unit[HR_PACE_TERMS] = { 1, 16, 128 };
static const double forget = 0.99, most_spread = 300;
enum { FIRST = 4 }; /* steps before anything is believed */

static double dot(const double *a, const double *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* What is taken from a step whose time is off by `error`. */
static double believable(const hr_pace *p, double expected, double error)
{
    if (p->steps < FIRST || expected <= 0) return error;
    return fmin(fmax(error, -expected / 2), expected);
}

void hr_pace_note(hr_pace *p, int64_t answers, int64_t prompt, int64_t ns)
{
    const double x[HR_PACE_TERMS] = { 1, (double)answers / unit[1], (double)prompt / unit[2] };
    double gain[HR_PACE_TERMS], trace = 0;
    if (p->steps++ == 0)
        for (int i = 0; i < HR_PACE_TERMS; i++) p->spread[i][i] = most_spread / HR_PACE_TERMS;
    for (int i = 0; i < HR_PACE_TERMS; i++) gain[i] = dot(p->spread[i], x);
    double scale = 1 / (1 + dot(gain, x)), expected = dot(p->cost, x);
    double error = believable(p, expected, (double)ns * 1e-6 - expected);
    for (int i = 0; i < HR_PACE_TERMS; i++) {
        p->cost[i] += gain[i] * scale * error;
        for (int k = 0; k < HR_PACE_TERMS; k++) p->spread[i][k] -= gain[i] * gain[k] * scale;
        trace += p->spread[i][i];
    }
    if (trace / forget > most_spread) return;
    for (int i = 0; i < HR_PACE_TERMS; i++)
        for (int k = 0; k < HR_PACE_TERMS; k++) p->spread[i][k] /= forget;
}

int64_t hr_pace_tokens(const hr_pace *p, int64_t answers)
{
    double alone = fmax(p->cost[0], 0) + fmax(p->cost[1], 0) * (double)answers / unit[1];
    double token = p->cost[2] / unit[2];
    if (p->steps < FIRST || alone <= 0 || token <= 0) return 0;
    return (int64_t)fmin(alone / token, 1 << 20);
}

double hr_pace_part(const hr_pace *p, int64_t answers)
{
    double one = fmax(p->cost[1], 0) / unit[1], alone = fmax(p->cost[0], one);
    if (p->steps < FIRST || alone <= 0) return 0;
    return one * (double)answers / (alone + one * (double)answers);
}
