/* Knuth, Morris and Pratt's search, one state per string and text.
 *
 * Input thread (init) and output thread. Each byte of text is looked at once per string, whatever
 * text and strings are: a client that chooses both must not be able to make the thread that all
 * answers share compare the same bytes over and over. The state is at the same time what streaming
 * needs to know: how much of the text's end must be held back. */
#include "engine/stops.h"

/* links[i]: the longest beginning of the string, shorter than i + 1 bytes, that its first i + 1
 * bytes end with. */
static void link_string(hr_str s, uint32_t *links)
{
    uint32_t k = 0;
    links[0] = 0;
    for (size_t i = 1; i < s.n; i++) {
        while (k && s.p[i] != s.p[k]) k = links[k - 1];
        if (s.p[i] == s.p[k]) k++;
        links[i] = k;
    }
}

hr_status hr_stops_init(hr_stops *s, hr_arena *arena, const hr_str *strings, size_t n)
{
    *s = (hr_stops){ .strings = strings };
    s->links = hr_arena_array(arena, n, sizeof *s->links);
    if (!s->links) return hr_fail(HR_RESOURCE_EXHAUSTED, "stop");
    for (size_t i = 0; i < n; i++) {
        if (strings[i].n == 0 || strings[i].n > UINT32_MAX)
            return hr_fail(HR_INVALID_ARGUMENT, "stop: a text of %zu bytes", strings[i].n);
        s->links[i] = hr_arena_array(arena, strings[i].n, sizeof **s->links);
        if (!s->links[i]) return hr_fail(HR_RESOURCE_EXHAUSTED, "stop");
        link_string(strings[i], s->links[i]);
    }
    s->n = n;
    return HR_OK;
}

/* Bytes taken when the string is complete for the first time; 0 = it is not. */
static size_t feed_one(hr_str stop, const uint32_t *links, uint32_t *matched, hr_str bytes)
{
    uint32_t k = *matched;
    for (size_t i = 0; i < bytes.n; i++) {
        while (k && bytes.p[i] != stop.p[k]) k = links[k - 1];
        if (bytes.p[i] == stop.p[k] && ++k == stop.n) return i + 1;
    }
    *matched = k;
    return 0;
}

int64_t hr_stops_feed(const hr_stops *s, uint32_t *matched, hr_str bytes, int64_t *begin)
{
    int64_t found = -1;
    for (size_t i = 0; i < s->n; i++) {
        size_t end = feed_one(s->strings[i], s->links[i], &matched[i], bytes);
        int64_t at = (int64_t)end - (int64_t)s->strings[i].n;
        if (end == 0 || (found >= 0 && at >= *begin)) continue;
        found = (int64_t)i;
        *begin = at;
    }
    return found;
}

size_t hr_stops_held(const hr_stops *s, const uint32_t *matched)
{
    size_t held = 0;
    for (size_t i = 0; i < s->n; i++)
        if (matched[i] > held) held = matched[i];
    return held;
}
