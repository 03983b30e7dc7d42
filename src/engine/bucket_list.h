/* The shapes that are compiled: spec/compile.md "Buckets". Pure arithmetic. */
#ifndef HEADRACE_ENGINE_BUCKET_LIST_H
#define HEADRACE_ENGINE_BUCKET_LIST_H

#include <stdint.h>

#include "base/str.h"

#define HR_BUCKETS_MAX 256

typedef struct hr_bucket_list {
    int64_t at[HR_BUCKETS_MAX]; /* ascending */
    int n;
} hr_bucket_list;

/* 16, doubling until ≥ max_tokens; with gap > 0: doubling while ≤ gap, then steps of gap. */
HR_MUST_USE hr_status hr_buckets_tokens(int64_t max_tokens, int64_t gap, hr_bucket_list *out);
/* 8, doubling, capped at max(max_requests, 8); the cap itself is a bucket. */
HR_MUST_USE hr_status hr_buckets_requests(int64_t max_requests, hr_bucket_list *out);
/* A user's `{"tokens": [...], "requests": [...]}`; the last of each must cover its limit. */
HR_MUST_USE hr_status hr_buckets_parse(hr_str json, int64_t max_tokens, int64_t max_requests,
                                       hr_bucket_list *tokens, hr_bucket_list *requests);
/* Index of the smallest bucket ≥ n; n is at most the last one. */
int hr_buckets_find(const hr_bucket_list *b, int64_t n);
static inline int64_t hr_buckets_last(const hr_bucket_list *b)
{
    return b->at[b->n - 1];
}

#endif
