/* Every program there is: built, compiled and bound before serving starts. */
#ifndef HEADRACE_ENGINE_BUCKETS_H
#define HEADRACE_ENGINE_BUCKETS_H

#include "engine/batch.h"
#include "engine/bucket_list.h"
#include "engine/ledger.h"
#include "model/model.h"

typedef enum hr_late_policy {
    HR_LATE_COUNT, /* a late compile is logged and counted, then done */
    HR_LATE_FATAL, /* --check-recompilation: it ends the engine */
    HR_LATE_EAGER, /* --enforce-eager: programs are compiled when first wanted */
} hr_late_policy;

/* Everything that shapes a program, resolved. */
typedef struct hr_shapes {
    hr_bucket_list tokens, requests; /* requests: sampler rows, which drafts make more */
    hr_build_options build;          /* tokens per program are set from the list */
    hr_speculation speculation;
    hr_sampler_options sampler;
    hr_late_policy late;
} hr_shapes;

/* One input of a program: host-made, or a device buffer that another program filled. */
typedef struct hr_program_input {
    hr_buffer *buffer;
    bool owned;         /* host-made: this program's own buffer */
    hr_host_input host; /* data NULL = not host-made */
    size_t row_bytes, bytes;
} hr_program_input;

/* What a program's graph says of one of its outputs: what came back is compared with it. */
typedef struct hr_program_output {
    const char *name, *maker; /* maker: the node, by its weight */
    hr_dtype dtype;
    size_t row_bytes;
} hr_program_output;

typedef struct hr_program_slot {
    hr_ledger_row *row;
    hr_program *program; /* NULL until its compile was started */
    bool pending;        /* which has not been awaited */
    hr_program_input *inputs;
    hr_buffer **input_buffers; /* [n_inputs], for execute */
    hr_buffer **outputs;       /* [n_outputs] */
    bool *output_owned;
    hr_program_output *declared; /* [n_outputs] */
    size_t n_inputs, n_outputs;
} hr_program_slot;

typedef struct hr_programs hr_programs;
struct hr_programs {
    hr_shapes shapes;
    hr_backend *backend;       /* borrowed */
    const hr_model *model;     /* borrowed */
    hr_batch *batch;           /* borrowed; where host-made inputs lie */
    hr_ledger *ledger;         /* borrowed */
    hr_arena arena;            /* owns the arrays below */
    hr_program_slot *backbone; /* [token buckets] */
    hr_program_slot *select;   /* [token buckets × request buckets] */
    hr_program_slot *sampler;  /* [request buckets] */
    hr_program_slot *prompt;   /* [1], rows = the last request bucket; NULL: no such stage */
    hr_program_slot *tables;   /* [1]; likewise */
    hr_buffer **hidden;        /* [token buckets], activation [T,H] */
    hr_buffer **selected;      /* [request buckets], activation [R,H] */
    hr_buffer **caches;        /* [layers × planes], hr_model_kv_planes of each layer */
    size_t n_caches;
    int planes;
    hr_buffer *counts, *allowed, *grammar; /* the sampler's tables; NULL: it has none */
    size_t buffer_bytes;                   /* of every buffer but the KV caches */
    bool sealed;
};

/* What the host arrays of these shapes are limited to. */
hr_batch_limits hr_shapes_limits(const hr_shapes *s, bool static_shapes);

/* Creates shared buffers and empty slots with their ledger rows; compiles nothing. */
HR_MUST_USE hr_status hr_programs_create(const hr_shapes *shapes, hr_backend *backend,
                                         const hr_model *model, hr_batch *batch, hr_ledger *ledger,
                                         hr_programs **out);
void hr_programs_destroy(hr_programs *p);
size_t hr_programs_count(const hr_shapes *shapes);
/* Whether there are programs of a stage: a greedy sampler neither scores prompts nor has tables. */
bool hr_programs_have(const hr_shapes *shapes, hr_stage stage);

/* graphs.c: the graph of a program, for its ledger row's bucket. The caller destroys it, also when
 * building failed half way. */
HR_MUST_USE hr_status hr_program_graph(const hr_shapes *shapes, const hr_model *model,
                                       const hr_ledger_row *r, hr_graph **out);

/* Starts to compile every program, where the backend does that beside its caller; hr_programs_get
 * then waits for each. Elsewhere it does nothing. */
HR_MUST_USE hr_status hr_programs_start(hr_programs *p);
/* The slot of a stage for bucket indices (ignored where the stage has no such axis), compiled: at
 * start, on demand under HR_LATE_EAGER, else as a late compile by policy. `caller` is for the
 * message. */
HR_MUST_USE hr_status hr_programs_get(hr_programs *p, hr_stage stage, int token_bucket,
                                      int request_bucket, const char *caller,
                                      hr_program_slot **out);
/* No compile from here on. */
void hr_programs_seal(hr_programs *p);

#endif
