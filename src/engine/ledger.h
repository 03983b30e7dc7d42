/* The ledger: every program there is, and what it has cost. spec/compile.md "Ledger". */
#ifndef HEADRACE_ENGINE_LEDGER_H
#define HEADRACE_ENGINE_LEDGER_H

#include "backend/backend.h"
#include "base/histogram.h"
#include "base/json.h"
#include "base/str.h"
#include "base/sync.h"

typedef enum hr_stage {
    HR_STAGE_BACKBONE,
    HR_STAGE_SELECT,
    HR_STAGE_SAMPLER, /* head + sampler */
    HR_STAGE_PROMPT,  /* head + prompt logprobs */
    HR_STAGE_TABLES,  /* small writes to counts and masks */
    HR_STAGE_COUNT,
} hr_stage;

/* Bounds of step_seconds, seconds. */
extern const double hr_ledger_seconds[];
#define HR_LEDGER_SECONDS 14

const char *hr_stage_name(hr_stage s);

typedef struct hr_ledger_row {
    hr_stage stage;
    int64_t tokens, requests; /* bucket; 0 = this program has no such axis */
    const char *backend;
    hr_dtype activation;
    double compile_ms, warm_ms;
    size_t peak_bytes, steps, code_bytes; /* code_bytes: 0 = not told */
    bool cached;                          /* compiled by an earlier process */
    hr_counter calls, padding; /* padding: rows executed or reserved beyond the live ones */
    hr_counter last_ns;        /* monotonic time of the last call */
    hr_histogram seconds;      /* of the step's part that ran it, hr_ledger_seconds */
} hr_ledger_row;

typedef struct hr_ledger {
    hr_ledger_row *rows; /* owned [capacity], filled in start order */
    size_t n, capacity;
    double compile_s[HR_STAGE_COUNT]; /* compile + warm-up */
    double total_s;
    hr_counter *step_tokens;   /* owned [max_tokens+1]: steps that ran so many tokens */
    hr_counter *step_requests; /* owned [max_requests+1]: steps with so many sampler rows */
    int64_t max_tokens, max_requests;
    hr_counter late;                     /* compiles asked for after sealing */
    hr_counter compiled[HR_STAGE_COUNT]; /* compiles done, whenever; not from a cache */
} hr_ledger;

HR_MUST_USE hr_status hr_ledger_init(hr_ledger *l, size_t programs);
/* Where steps are counted by size; without it they are not. */
HR_MUST_USE hr_status hr_ledger_init_steps(hr_ledger *l, int64_t max_tokens, int64_t max_requests);
void hr_ledger_deinit(hr_ledger *l);
void hr_ledger_count_step(hr_ledger *l, int64_t tokens, int64_t requests);
hr_ledger_row *hr_ledger_add(hr_ledger *l, hr_stage stage, int64_t tokens, int64_t requests);
/* "tokens=256 requests=8", as log lines and messages name a bucket. */
void hr_ledger_bucket_text(const hr_ledger_row *r, hr_buf *out);
/* The manifest: a JSON object with one line per program; equal between two starts but for the
 * times, which `with_times` adds. `numerics` = a JSON object. */
void hr_ledger_manifest(const hr_ledger *l, hr_str numerics, bool with_times, hr_buf *out);
/* A row's members, into an object that the caller has opened. */
void hr_ledger_add_members(hr_json_writer *w, const hr_ledger_row *r, bool with_times);
/* Programs that were compiled by an earlier process. */
size_t hr_ledger_cached(const hr_ledger *l);
/* Code of all programs, bytes. */
size_t hr_ledger_code(const hr_ledger *l);
/* Largest peak over all programs, bytes. */
size_t hr_ledger_peak(const hr_ledger *l);

#endif
