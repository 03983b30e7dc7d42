/* Dictionaries in order of insertion, with Python's idea of equal keys: 1, 1.0 and True are one
 * key. Small ones are searched in a line, larger ones through an open-addressed index, so that an
 * object of hundreds of thousands of members costs linear time. Lives in the rendering's arena. */
#include <math.h>

#include "text/jinja/jinja_int.h"

#define LINEAR 8

bool hr_jinja_hashable(hr_jval v)
{
    if (v.kind == HR_J_TUPLE) {
        for (size_t i = 0; i < v.as.l->n; i++)
            if (!hr_jinja_hashable(v.as.l->items[i])) return false;
        return true;
    }
    if (v.kind == HR_J_VIEW) return v.as.v->kind == HR_JVIEW_VALUES;
    return v.kind != HR_J_LIST && v.kind != HR_J_DICT;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static uint64_t hash_bytes(hr_str s)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < s.n; i++) h = (h ^ (unsigned char)s.p[i]) * 0x100000001B3u;
    return mix(h, s.n);
}

/* Equal values hash alike; floats that are whole numbers as the number. */
static uint64_t hash(hr_jval v)
{
    int64_t i;
    if (hr_jinja_as_int(v, &i)) return mix(1, (uint64_t)i);
    if (v.kind == HR_J_FLOAT) {
        double f = v.as.f;
        if (f == floor(f) && fabs(f) < 9e15) return mix(1, (uint64_t)(int64_t)f);
        uint64_t bits;
        memcpy(&bits, &f, sizeof bits);
        return mix(2, bits);
    }
    if (v.kind == HR_J_STR || v.kind == HR_J_BIG) return hash_bytes(hr_jinja_text(v.as.s));
    uint64_t h = v.kind;
    if (v.kind == HR_J_TUPLE)
        for (size_t k = 0; k < v.as.l->n; k++) h = mix(h, hash(v.as.l->items[k]));
    return h;
}

hr_status hr_jinja_dict_new(hr_jinterp *it, size_t capacity, hr_jdict **out)
{
    HR_TRY(hr_jinja_alloc(it, 1, sizeof **out, out));
    if (!capacity) return HR_OK;
    HR_TRY(hr_jinja_alloc(it, capacity, sizeof(hr_jentry), &(*out)->entries));
    (*out)->capacity = capacity;
    return HR_OK;
}

static void index_put(hr_jdict *d, size_t entry)
{
    size_t mask = d->index_size - 1, at = hash(d->entries[entry].key) & mask;
    while (d->index[at]) at = (at + 1) & mask;
    d->index[at] = (uint32_t)(entry + 1);
}

static hr_status build_index(hr_jinterp *it, hr_jdict *d)
{
    size_t size = 32;
    while (size < d->capacity * 2) size *= 2;
    HR_TRY(hr_jinja_alloc(it, size, sizeof *d->index, &d->index));
    d->index_size = size;
    for (size_t i = 0; i < d->n; i++) index_put(d, i);
    return HR_OK;
}

/* The entry with that key, or d->n. */
static hr_status locate(hr_jinterp *it, const hr_jdict *d, hr_jval key, size_t *out)
{
    bool same = false;
    if (!d->index) {
        HR_TRY(hr_jinja_step(it, 1));
        for (*out = 0; *out < d->n; ++*out) {
            HR_TRY(hr_jinja_equal(it, d->entries[*out].key, key, &same));
            if (same) break;
        }
        return HR_OK;
    }
    size_t mask = d->index_size - 1, at = hash(key) & mask;
    for (; d->index[at]; at = (at + 1) & mask) {
        *out = d->index[at] - 1;
        HR_TRY(hr_jinja_step(it, 1));
        HR_TRY(hr_jinja_equal(it, d->entries[*out].key, key, &same));
        if (same) return HR_OK;
    }
    *out = d->n;
    return HR_OK;
}

static hr_status unhashable(hr_jinterp *it, hr_jval key)
{
    return hr_jinja_fail(it, "unhashable type: '%s'", hr_jinja_type_name(key));
}

hr_status hr_jinja_dict_add(hr_jinterp *it, hr_jdict *d, hr_jval key, hr_jval value)
{
    if (d->n == d->capacity) {
        size_t bigger = d->capacity ? d->capacity * 2 : 4;
        hr_jentry *entries;
        HR_TRY(hr_jinja_alloc(it, bigger, sizeof *entries, &entries));
        if (d->n) memcpy(entries, d->entries, d->n * sizeof *entries);
        d->entries = entries;
        d->capacity = bigger;
        d->index = NULL;
    }
    d->entries[d->n++] = (hr_jentry){ key, value };
    if (d->n <= LINEAR) return HR_OK;
    if (!d->index) return build_index(it, d);
    index_put(d, d->n - 1);
    return HR_OK;
}

hr_status hr_jinja_dict_set(hr_jinterp *it, hr_jdict *d, hr_jval key, hr_jval value)
{
    size_t at;
    if (!hr_jinja_hashable(key)) return unhashable(it, key);
    HR_TRY(locate(it, d, key, &at));
    if (at < d->n) {
        d->entries[at].value = value;
        return HR_OK;
    }
    return hr_jinja_dict_add(it, d, key, value);
}

hr_status hr_jinja_dict_get(hr_jinterp *it, const hr_jdict *d, hr_jval key, const hr_jval **out)
{
    size_t at;
    *out = NULL;
    if (!hr_jinja_hashable(key)) return unhashable(it, key);
    HR_TRY(locate(it, d, key, &at));
    if (at < d->n) *out = &d->entries[at].value;
    return HR_OK;
}

static bool is_key(hr_jval v, hr_str key)
{
    return v.kind == HR_J_STR && hr_str_eq(hr_jinja_text(v.as.s), key);
}

const hr_jval *hr_jinja_dict_find(const hr_jdict *d, hr_str key)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (is_key(d->entries[i].key, key)) return &d->entries[i].value;
        return NULL;
    }
    size_t mask = d->index_size - 1, at = hash_bytes(key) & mask;
    for (; d->index[at]; at = (at + 1) & mask)
        if (is_key(d->entries[d->index[at] - 1].key, key))
            return &d->entries[d->index[at] - 1].value;
    return NULL;
}
