/* Buckets fitted to the steps that a server has run. */
#ifndef HEADRACE_ENGINE_FIT_H
#define HEADRACE_ENGINE_FIT_H

#include "engine/bucket_list.h"

/* The at most `buckets` bucket ends, the last of them `limit`, that leave the least padding over
 * steps whose size n (1..limit) occurred counts[n] times; counts is [limit+1]. *padding is what
 * remains. INVALID_ARGUMENT when a sum does not fit 63 bits. */
HR_MUST_USE hr_status hr_buckets_fit(const uint64_t *counts, int64_t limit, int buckets,
                                     hr_bucket_list *out, int64_t *padding);
/* Padding over the same steps with a given list, whose last covers them. */
HR_MUST_USE hr_status hr_buckets_padding(const uint64_t *counts, int64_t limit,
                                         const hr_bucket_list *list, int64_t *padding);
/* Counts from GET /programs' body: its "steps" member's `key` ("tokens", "requests"), an object of
 * sizes to counts. out is [limit+1], cleared first. OUT_OF_RANGE when a size is above the limit. */
HR_MUST_USE hr_status hr_buckets_read_steps(hr_str json, const char *key, int64_t limit,
                                            uint64_t *out);

#endif
