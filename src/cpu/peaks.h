/* What this machine can at most do: loops that read memory, or compute in registers, and do
 * nothing else. A door for the benchmark of kernels; nothing that serves calls them.
 *
 * Each instruction set has its own, compiled with the flags of its kernels, so that a kernel is
 * held against what its instructions can reach and not against another path's. */
#ifndef HEADRACE_CPU_PEAKS_H
#define HEADRACE_CPU_PEAKS_H

#include <stdint.h>

#include "cpu/isa.h"

typedef enum hr_peak {
    HR_PEAK_READ,    /* n bytes at `from`, in one stream */
    HR_PEAK_STREAMS, /* the same, in four streams with prefetch */
    HR_PEAK_F32,     /* n rounds of multiply-add of f32 */
    HR_PEAK_I8,      /* n rounds of dot products of 8-bit numbers in 32-bit sums */
    HR_PEAK_BF16,    /* n rounds of dot products of bf16 in f32 sums */
    HR_PEAK_COUNT,
} hr_peak;

enum { HR_PEAK_BLOCK = 4096 }; /* what is read lies on and is a multiple of so many bytes */

/* Returns a number that depends on all that was done. */
typedef float (*hr_peak_fn)(const void *from, int64_t n);

typedef struct hr_peak_loop {
    hr_peak_fn run; /* NULL = this instruction set, or this machine, has no such instructions */
    int64_t ops;    /* of a round: a multiplication and an addition are two; reads: 0 */
} hr_peak_loop;

/* The instruction set is one that hr_isa_available tells. */
hr_peak_loop hr_peak_loop_of(hr_isa isa, hr_peak what);

#endif
