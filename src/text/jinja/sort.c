/* Stable sorting by keys, as Python's sorted: only "<" is asked, and going down keeps the order of
 * equals too. A bottom-up merge, so that it recurses nowhere. */
#include "text/jinja/jinja_int.h"

/* Does item b have to come before item a? */
static hr_status goes_first(hr_jinterp *it, const hr_jval *keys, size_t b, size_t a,
                            hr_jsort direction, bool *out)
{
    int order;
    HR_TRY(direction == HR_JSORT_UP ? hr_jinja_order(it, keys[b], keys[a], "<", &order)
                                    : hr_jinja_order(it, keys[a], keys[b], "<", &order));
    *out = order < 0;
    return HR_OK;
}

static hr_status merge(hr_jinterp *it, const hr_jval *keys, hr_jsort direction, const size_t *from,
                       size_t *to, const size_t at[3])
{
    size_t left = at[0], right = at[1];
    for (size_t i = at[0]; i < at[2]; i++) {
        bool take_right = left == at[1];
        if (!take_right && right < at[2])
            HR_TRY(goes_first(it, keys, from[right], from[left], direction, &take_right));
        to[i] = take_right ? from[right++] : from[left++];
    }
    return HR_OK;
}

hr_status hr_jinja_sort(hr_jinterp *it, const hr_jval *keys, size_t n, hr_jsort direction,
                        size_t *order)
{
    size_t *from = order, *to;
    HR_TRY(hr_jinja_alloc(it, n, sizeof *to, &to));
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t i = 0; i < n; i += 2 * width) {
            size_t middle = i + width < n ? i + width : n;
            size_t end = i + 2 * width < n ? i + 2 * width : n;
            HR_TRY(merge(it, keys, direction, from, to, (size_t[3]){ i, middle, end }));
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) memcpy(order, from, n * sizeof *order);
    return HR_OK;
}
