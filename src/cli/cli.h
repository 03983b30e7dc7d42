/* Inside the cli: its commands. Each prints and returns the process's exit status. */
#ifndef HEADRACE_CLI_CLI_H
#define HEADRACE_CLI_CLI_H

#include "cli/args.h"

typedef struct hr_cli_entry {
    const char *name; /* "serve", "bench serve" */
    unsigned bit;     /* in flags.def */
    int (*run)(hr_args *a);
    const char *summary, *usage;
} hr_cli_entry;
extern const hr_cli_entry hr_cli_entries[];
extern const size_t hr_cli_n_entries;
/* The command that these arguments begin with, and how many of them name it; NULL when none. */
const hr_cli_entry *hr_cli_find(int argc, char **argv, size_t *words);
/* help [--man] [COMMAND] and help --man-pages FOLDER; the arguments after "help". */
int hr_cli_help(int argc, char **argv);
/* All commands in a line each. */
void hr_cli_overview(hr_buf *out);

int hr_cli_generate(hr_args *a);
int hr_cli_replay(hr_args *a);
int hr_cli_tokenize(hr_args *a);
int hr_cli_render(hr_args *a);
int hr_cli_serve(hr_args *a);
int hr_cli_plan(hr_args *a);
int hr_cli_compile(hr_args *a);
int hr_cli_fill(hr_args *a); /* compile with --device */
int hr_cli_devices(hr_args *a);
int hr_cli_bench_serve(hr_args *a);
int hr_cli_bench_throughput(hr_args *a);
int hr_cli_bench_latency(hr_args *a);
int hr_cli_bench_startup(hr_args *a);
int hr_cli_bench_sampler(hr_args *a);
int hr_cli_bench_kernels(hr_args *a);
int hr_cli_quantize(hr_args *a);
int hr_cli_eval_perplexity(hr_args *a);
int hr_cli_eval_kl(hr_args *a);
int hr_cli_eval_gsm8k(hr_args *a);
int hr_cli_bench_tokenizer(hr_args *a);
int hr_cli_chat(hr_args *a);
int hr_cli_complete(hr_args *a);
/* The sampling flags typed, as members of a request's JSON: "\"top_k\":5,\"ignore_eos\":true". */
HR_MUST_USE hr_status hr_cli_sampling_members(hr_args *a, hr_buf *out);
/* Key and headers of bench.serve.http, from flags and environment; SIGPIPE is ignored from here. */
void hr_cli_fill_http(hr_args *a);
/* The tokenizer of a model, or a tokenizer.json by itself. */
HR_MUST_USE hr_status hr_cli_load_tokenizer(const char *name, hr_tokenizer **out);
/* A log sink for headrace_options and hr_log_set: `args` decides by its log_level. */
void hr_cli_log(void *args, int level, const char *line);
/* Prints "headrace: " and the thread's message; returns 1. */
int hr_cli_complain(void);

#endif
