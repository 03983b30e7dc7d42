/* How far the numbers of a quantised matrix are from those it was made of. */
#include <math.h>

#include "convert/convert_int.h"

void hr_loss_add(hr_loss *l, const float *old, const float *new, double scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double a = old[i], b = new[i] * scale, off = b - a;
        if (fabs(off) > l->most) l->most = fabs(off);
        l->squares += off * off;
        l->old_old += a * a;
        l->new_new += b * b;
        l->old_new += a * b;
    }
    l->n += n;
}

double hr_loss_rms(const hr_loss *l)
{
    return l->old_old > 0 ? sqrt(l->squares / l->old_old) : 0;
}

double hr_loss_cosine(const hr_loss *l)
{
    return l->old_old > 0 ? l->old_new / sqrt(l->old_old * l->new_new) : 1;
}
