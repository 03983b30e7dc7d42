/* Lists of token and request buckets.
 *
 * Pure functions, any thread. Every shape that can occur is in a list before serving starts; a
 * step then only looks up the smallest bucket that holds it. */
#include "engine/bucket_list.h"

#include <assert.h>

#include "base/json.h"

static hr_status append(hr_bucket_list *b, int64_t value, const char *what)
{
    if (b->n == HR_BUCKETS_MAX)
        return hr_fail(HR_INVALID_ARGUMENT, "%s: more than %d buckets; raise --bucket-padding-gap",
                       what, HR_BUCKETS_MAX);
    b->at[b->n++] = value;
    return HR_OK;
}

hr_status hr_buckets_tokens(int64_t max_tokens, int64_t gap, hr_bucket_list *out)
{
    *out = (hr_bucket_list){ .n = 0 };
    int64_t at = 16;
    HR_TRY(append(out, at, "token buckets"));
    while (at < max_tokens) {
        at = gap > 0 && at * 2 > gap ? at + gap : at * 2;
        HR_TRY(append(out, at, "token buckets"));
    }
    return HR_OK;
}

hr_status hr_buckets_requests(int64_t max_requests, hr_bucket_list *out)
{
    *out = (hr_bucket_list){ .n = 0 };
    int64_t cap = max_requests > 8 ? max_requests : 8;
    for (int64_t at = 8; at < cap; at *= 2) HR_TRY(append(out, at, "request buckets"));
    return append(out, cap, "request buckets");
}

static hr_status parse_list(const hr_json *object, const char *key, int64_t limit,
                            hr_bucket_list *out)
{
    const hr_json *list = hr_json_get(object, key);
    if (!list || list->type != HR_JSON_ARRAY || list->count == 0)
        return hr_fail(HR_INVALID_ARGUMENT, "\"%s\" must be a list of integers", key);
    *out = (hr_bucket_list){ .n = 0 };
    for (size_t i = 0; i < list->count; i++) {
        int64_t value, last = out->n ? hr_buckets_last(out) : 0;
        HR_TRY(hr_json_to_i64(&list->items[i], key, &value));
        if (value <= last || value > INT32_MAX)
            return hr_fail(HR_INVALID_ARGUMENT, "\"%s\" must be positive and rising", key);
        HR_TRY(append(out, value, key));
    }
    if (hr_buckets_last(out) < limit)
        return hr_fail(HR_INVALID_ARGUMENT, "the last of \"%s\" is %lld, below the limit of %lld",
                       key, (long long)hr_buckets_last(out), (long long)limit);
    return HR_OK;
}

static hr_status check_keys(const hr_json *object)
{
    static const char *const known[] = { "tokens", "requests" };
    if (object->type != HR_JSON_OBJECT)
        return hr_fail(HR_INVALID_ARGUMENT, "not an object of \"tokens\" and \"requests\"");
    return hr_json_check_members(object, known, sizeof known / sizeof *known);
}

hr_status hr_buckets_parse(hr_str json, int64_t max_tokens, int64_t max_requests,
                           hr_bucket_list *tokens, hr_bucket_list *requests)
{
    hr_arena arena = { 0 };
    const hr_json *root = NULL;
    *tokens = *requests = (hr_bucket_list){ .n = 0 };
    hr_status st = hr_json_parse(json, NULL, &arena, &root);
    if (!st) st = check_keys(root);
    if (!st) st = parse_list(root, "tokens", max_tokens, tokens);
    if (!st) st = parse_list(root, "requests", max_requests, requests);
    hr_arena_deinit(&arena);
    return st ? hr_fail_prefix(st, "buckets") : HR_OK;
}

int hr_buckets_find(const hr_bucket_list *b, int64_t n)
{
    int low = 0, high = b->n - 1;
    assert(n <= b->at[high]);
    while (low < high) {
        int middle = (low + high) / 2;
        if (b->at[middle] >= n) high = middle;
        else low = middle + 1;
    }
    return low;
}
