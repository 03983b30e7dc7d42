/* THE seam between what is computed and what computes it.
 *
 * A backend compiles graphs, holds buffers and executes programs. Nothing above this room knows
 * which device it runs on. Everything here is called by the engine thread, except where stated. */
#ifndef HEADRACE_BACKEND_BACKEND_H
#define HEADRACE_BACKEND_BACKEND_H

#include "graph/graph.h"

typedef struct hr_backend hr_backend;
typedef struct hr_program hr_program;
typedef struct hr_buffer hr_buffer;

typedef struct hr_tensor_desc {
    hr_dtype dtype;
    hr_shape shape;
} hr_tensor_desc;

/* What the ledger says of a program. */
typedef struct hr_program_info {
    size_t peak_bytes; /* working memory while it runs, without weights and buffers */
    size_t steps;      /* kernels or device operations in its plan */
    size_t code_bytes; /* 0 = not told */
    bool cached;       /* compiled by an earlier process */
    double worker_ms;  /* what threads other than compile's caller took to compile it */
} hr_program_info;

/* What a device says of its memory, bytes. */
typedef struct hr_device_memory {
    size_t limit; /* 0 = not told */
    size_t in_use;
} hr_device_memory;

/* Completion of an execute. Caller's storage; await exactly once. */
typedef struct hr_event {
    hr_backend *backend;
    hr_status status; /* of work already finished */
    void *pending;    /* the backend's; NULL = finished */
} hr_event;

typedef struct hr_execute_args {
    hr_buffer *const *inputs;    /* graph input order; a donated one is consumed and continued */
    hr_buffer **outputs;         /* graph output order; each names a buffer that the result replaces
                                    (for a donated output: the donated input's own buffer) */
    int64_t live[HR_LIVE_COUNT]; /* run-time counts; [HR_LIVE_ALL] unused */
} hr_execute_args;

/* Implemented by ref, cpu and pjrt. */
typedef struct hr_backend_vtable {
    const char *name;
    /* Programs run in full: host inputs are put whole, padding included, and live counts are not
     * looked at. */
    bool static_shapes;
    void (*destroy)(hr_backend *b);
    hr_status (*compile)(hr_backend *b, const hr_graph *g, hr_program **out);
    void (*seal)(hr_backend *b); /* no more programs will come; NULL = that is all the same */
    hr_status (*program_await)(hr_program *p); /* NULL = compile is done when it returns */
    void (*program_destroy)(hr_program *p);
    void (*program_info)(const hr_program *p, hr_program_info *out);
    hr_status (*buffer_create)(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out);
    void (*buffer_destroy)(hr_buffer *x);
    hr_status (*buffer_put)(hr_buffer *x, const void *host, size_t bytes);
    hr_status (*buffer_get)(hr_buffer *x, void *host, size_t bytes);
    /* Asks the device of what type and shape the buffer is; NULL = its memory has neither. */
    hr_status (*buffer_verify)(hr_buffer *x);
    hr_status (*execute)(hr_program *p, const hr_execute_args *a, hr_event *done);
    hr_status (*event_await)(hr_event *e);
    /* JSON members without braces: "backend":"cpu","kernels":{"Q4_1":"avx512"},… */
    void (*numerics)(hr_backend *b, hr_buf *out);
    size_t (*weight_bytes)(const hr_backend *b); /* packed weights held now */
    /* False: the device does not say. NULL = it is this machine's. */
    bool (*memory)(hr_backend *b, hr_device_memory *out);
} hr_backend_vtable;

/* First member of every backend. */
struct hr_backend {
    const hr_backend_vtable *v;
    bool sealed;
    const char *cache; /* where compiled programs are kept between starts; NULL = nowhere; the
                          backend sets it by its first compile */
    uint64_t compiles, executes, gets; /* counted here, for the ledger and the tests */
    double
        weights_s; /* time that compiles have spent reading and packing weights; the backend adds */
    size_t weights_cached;    /* bytes of weights that an earlier process packed; likewise */
    const char *weights_file; /* where packed weights are kept, once sealed; NULL = nowhere */
};

/* False, and zeros, where there is no device memory or nobody tells of it. */
bool hr_backend_memory(hr_backend *b, hr_device_memory *out);
void hr_backend_destroy(hr_backend *b); /* NULL is fine; programs and buffers are gone already */
/* Starts to compile, which may go on beside the caller; this or the wait for it reads the weights
 * that no earlier program has read. FAILED_PRECONDITION once sealed. Called by engine/buckets.c and
 * nowhere else. */
HR_MUST_USE hr_status hr_backend_compile_start(hr_backend *b, const hr_graph *g, hr_program **out);
/* Waits until the program is compiled, before anything else is done with it. One that fails is
 * still the caller's to destroy; one may be destroyed instead of awaited, which gives up every
 * compile that has not begun. */
HR_MUST_USE hr_status hr_program_await(hr_backend *b, hr_program *p);
/* Both at once, for one program alone. */
HR_MUST_USE hr_status hr_backend_compile(hr_backend *b, const hr_graph *g, hr_program **out);
/* From here on compile refuses. */
void hr_backend_seal(hr_backend *b);
void hr_program_destroy(hr_program *p, hr_backend *b); /* NULL is fine */
void hr_program_info_get(const hr_backend *b, const hr_program *p, hr_program_info *out);

/* Zeroed device memory. Lazily touched where the device can (unused table pages cost nothing). */
HR_MUST_USE hr_status hr_buffer_create(hr_backend *b, const hr_tensor_desc *d, hr_buffer **out);
void hr_buffer_destroy(hr_buffer *x, hr_backend *b); /* NULL is fine */
/* Copies the first `bytes` in or out; get waits for what produces the buffer. No malloc natively.
 */
HR_MUST_USE hr_status hr_buffer_put(hr_backend *b, hr_buffer *x, const void *host, size_t bytes);
HR_MUST_USE hr_status hr_buffer_get(hr_backend *b, hr_buffer *x, void *host, size_t bytes);

/* FAILED_PRECONDITION, telling what it is, where the device holds something else than what the
 * buffer was created for: a program came back with another dtype than its graph's. */
HR_MUST_USE hr_status hr_buffer_verify(hr_backend *b, hr_buffer *x);

/* Starts a program. Called by engine/runner.c's hr_runner_step and nowhere else. */
HR_MUST_USE hr_status hr_program_execute(hr_backend *b, hr_program *p, const hr_execute_args *a,
                                         hr_event *done);
HR_MUST_USE hr_status hr_event_await(hr_event *e);

#endif
