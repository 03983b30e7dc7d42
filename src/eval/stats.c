/* Means and their standard errors, by Welford's recurrence. */
#include <math.h>

#include "eval/eval_int.h"

void hr_eval_mean_add(hr_eval_mean *m, double v)
{
    double from = v - m->mean;
    m->n++;
    m->mean += from / (double)m->n;
    m->squares += from * (v - m->mean);
}

double hr_eval_mean_error(const hr_eval_mean *m)
{
    if (m->n < 2) return 0;
    return sqrt(m->squares / (double)(m->n - 1) / (double)m->n);
}
