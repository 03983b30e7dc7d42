/* Inside the benchmark of kernels: the machine and its peaks, one op on the native backend. */
#ifndef HEADRACE_BENCH_KERNELS_INT_H
#define HEADRACE_BENCH_KERNELS_INT_H

#include "backend/backend.h"
#include "bench/bench_int.h"
#include "cpu/peaks.h"

/* ---- machine.c ------------------------------------------------------------------------------- */

typedef struct hr_bench_machine {
    char cpu[96];     /* as /proc/cpuinfo names it */
    size_t l2, l3;    /* bytes: of a core, shared; 0 = not told */
    size_t available; /* bytes of memory that a process may have now */
    char date[32];    /* 2026-12-03 00:20 UTC */
} hr_bench_machine;

void hr_bench_machine_read(hr_bench_machine *m);

/* ---- peaks.c --------------------------------------------------------------------------------- */

#define HR_BENCH_READS 4 /* buffer sizes */

typedef enum hr_bench_ops { HR_BENCH_F32, HR_BENCH_I8, HR_BENCH_BF16, HR_BENCH_OPS } hr_bench_ops;
extern const char *const hr_bench_ops_names[HR_BENCH_OPS];

/* The last index is 0 for one thread, 1 for all; 0.0 = not to be had. */
typedef struct hr_bench_peaks {
    int threads;
    hr_isa isa; /* that kernels use */
    size_t n_reads;
    size_t read_bytes[HR_BENCH_READS];               /* falling */
    double read[HR_ISA_COUNT][HR_BENCH_READS][2][2]; /* GB/s, [.][.][plain, streams][.] */
    double ops[HR_ISA_COUNT][HR_BENCH_OPS][2];       /* Gop/s */
    double barrier_us; /* of a run of the pool with nothing to do; 0 = one thread has none */
} hr_bench_peaks;

/* p->threads and p->isa are set; `largest` bytes at least 1 MiB. */
HR_MUST_USE hr_status hr_bench_peaks_measure(hr_bench_peaks *p, const hr_bench_machine *m,
                                             size_t largest);
/* Gop/s of the path that kernels use; 0 = not to be had. One thread's, where that was more: a busy
 * machine can only take away. */
double hr_bench_peaks_arithmetic(const hr_bench_peaks *p, hr_bench_ops what);
/* GB/s at which all threads read what lies in the largest buffer, by whatever instructions; and
 * the largest buffer that is not above `bytes`. */
double hr_bench_peaks_memory(const hr_bench_peaks *p);
double hr_bench_peaks_cached(const hr_bench_peaks *p, double bytes);
void hr_bench_peaks_table(const hr_bench_peaks *p, hr_buf *out);
void hr_bench_peaks_json(const hr_bench_peaks *p, hr_json_writer *w); /* an object */

/* ---- kernels_rig.c --------------------------------------------------------------------------- */

/* X(NAME, in --ops, text) */
#define HR_BENCH_KERNELS(X)                                                                        \
    X(LINEAR, "linear", "linear")                                                                  \
    X(DECODE, "attention", "attention decode")                                                     \
    X(PREFILL, "attention", "attention prefill")                                                   \
    X(NORM, "rms_norm_q8", "rms_norm_q8")                                                          \
    X(GATED, "gated_q8", "gated_q8")                                                               \
    X(ROPE, "rope", "rope")                                                                        \
    X(QUANTISE, "quantise_rows", "quantise_rows")

typedef enum hr_bench_op {
#define HR_BENCH_OP_ENUM(name, flag, text) HR_BENCH_OP_##name,
    HR_BENCH_KERNELS(HR_BENCH_OP_ENUM)
#undef HR_BENCH_OP_ENUM
        HR_BENCH_OP_COUNT,
} hr_bench_op;
extern const char *const hr_bench_op_flags[HR_BENCH_OP_COUNT];
extern const char *const hr_bench_op_names[HR_BENCH_OP_COUNT];

enum {
    HR_BENCH_KV_BLOCK = 16,       /* keys of a block, as served */
    HR_BENCH_MOST_KEYS = 1 << 17, /* of one step */
    HR_BENCH_MOST_HEAD_DIM = 256,
    HR_BENCH_MOST_COPIES = 256, /* of a matrix */
};

static inline int64_t hr_bench_kv_blocks(int64_t keys)
{
    return (keys + HR_BENCH_KV_BLOCK - 1) / HR_BENCH_KV_BLOCK;
}
/* Rows meet it as int8, as models have it: one scale a row for I8C, one per 32 columns else. */
static inline bool hr_bench_format_is_int8(hr_format f)
{
    return f == HR_FORMAT_I8C || hr_format_is_blocks(f);
}

typedef struct hr_bench_heads {
    int64_t query, kv, dim;
} hr_bench_heads;

/* What one row count took. */
typedef struct hr_bench_figure {
    bool measured; /* false: left out, because of `why` */
    const char *why;
    double seconds, best; /* median, minimum */
    size_t runs;
    double bytes, ops; /* that a run must move and compute at least; ops 0 = not counted */
    double limit_s;    /* what the peak that bounds it would take */
    bool by_ops;       /* that peak is arithmetic */
} hr_bench_figure;

/* One op at one shape, over row counts. */
typedef struct hr_bench_kernel {
    hr_bench_op op;
    hr_format format;     /* LINEAR */
    hr_dtype cache;       /* attention */
    int64_t k, n;         /* LINEAR: [n,k]; NORM, GATED, QUANTISE: columns k */
    int64_t context;      /* attention: keys of a request */
    int64_t group;        /* NORM, GATED, QUANTISE */
    hr_bench_heads heads; /* attention, ROPE */
    size_t weight_bytes, copies;
    hr_bench_figure *at; /* [rows asked for], in the benchmark's arena */
} hr_bench_kernel;

/* Programs of one node, a copy of the weights each, on a backend of their own. */
typedef struct hr_bench_op_rig {
    const hr_bench_kernel *kernel;
    int64_t most_rows;
    hr_backend *backend; /* owned, as the rest */
    hr_weight *weights;  /* [copies] */
    hr_weight scale;
    hr_program **programs; /* [copies] */
    size_t copies, turn;
    hr_buffer *in[HR_NODE_MAX_IN], *out[HR_NODE_MAX_OUT];
    size_t n_in, n_out;
    uint8_t *row;   /* a weight's raw row */
    int32_t *table; /* attention: block table of the next run */
    int64_t blocks; /* of the cache */
    int64_t next;   /* first block of the next run */
} hr_bench_op_rig;

/* Of `cold` bytes of weights or keys, copies included, the next run finds none in a cache. */
HR_MUST_USE hr_status hr_bench_op_open(hr_bench_op_rig *r, const hr_bench_kernel *k,
                                       const headrace_options *o, int64_t most_rows, size_t cold);
/* Host inputs of runs with so many rows; attention alone has any. */
HR_MUST_USE hr_status hr_bench_op_aim(hr_bench_op_rig *r, int64_t rows);
HR_MUST_USE hr_status hr_bench_op_run(hr_bench_op_rig *r, int64_t rows, double *seconds);
void hr_bench_op_close(hr_bench_op_rig *r); /* also after a failed open */

/* kernels_cases.c: NULL when the op takes so many rows, else why not. */
const char *hr_bench_kernel_refuses(const hr_bench_kernel *k, int64_t rows);
/* f->bytes and f->ops. */
void hr_bench_kernel_work(const hr_bench_kernel *k, size_t weight_bytes, int64_t rows,
                          hr_bench_figure *f);
/* The arithmetic peak that bounds it, Gop/s of all threads. */
double hr_bench_kernel_gop_s(const hr_bench_kernel *k, const hr_bench_peaks *p);
HR_MUST_USE hr_status hr_bench_kernel_build(const hr_bench_op_rig *r, const hr_weight *weight,
                                            hr_graph **out);

/* ---- kernels_report.c ------------------------------------------------------------------------ */

typedef struct hr_bench_kernels_result {
    hr_bench_machine machine;
    hr_bench_peaks peaks;
    const int64_t *rows;
    size_t n_rows;
    int best; /* the table tells minima */
    hr_bench_kernel *at;
    size_t n;
} hr_bench_kernels_result;

void hr_bench_kernels_table(const hr_bench_kernels_result *r, hr_buf *out);
void hr_bench_kernels_json(const hr_bench_kernels_result *r, hr_buf *out);

#endif
