/* The command line: one table of flags, from which parsing, --help and the docs derive. */
#ifndef HEADRACE_CLI_ARGS_H
#define HEADRACE_CLI_ARGS_H

#include <stdbool.h>

#include "base/str.h"
#include "bench/bench.h"
#include "eval/eval.h"
#include "headrace/headrace.h"
#include "server/server.h"

/* Commands, a bit each. */
enum {
    HR_CLI_GENERATE = 1,
    HR_CLI_TOKENIZE = 2,
    HR_CLI_RENDER = 4,
    HR_CLI_SERVE = 8,
    HR_CLI_PLAN = 16,
    HR_CLI_BENCH_SERVE = 32,
    HR_CLI_BENCH_THROUGHPUT = 64,
    HR_CLI_BENCH_LATENCY = 128,
    HR_CLI_BENCH_STARTUP = 256,
    HR_CLI_CHAT = 512,
    HR_CLI_COMPLETE = 1024,
    HR_CLI_COMPILE = 2048,
    HR_CLI_DEVICES = 4096,
    HR_CLI_BENCH_SAMPLER = 8192,
    HR_CLI_REPLAY = 16384,
    HR_CLI_BENCH_KERNELS = 32768,
    HR_CLI_EVAL_PERPLEXITY = 1 << 20,
    HR_CLI_EVAL_KL = 1 << 21,
    HR_CLI_EVAL_GSM8K = 1 << 22,
    HR_CLI_QUANTIZE = 1 << 23,
    HR_CLI_BENCH_TOKENIZER = 65536,
};

typedef enum hr_cli_flag_kind {
    HR_FLAG_ON,     /* no value: int = 1 */
    HR_FLAG_OFF,    /* no value: int = 0 */
    HR_FLAG_TEXT,   /* const char * */
    HR_FLAG_FILE,   /* const char *: the text of a file; "-" = standard input */
    HR_FLAG_INT,    /* int */
    HR_FLAG_I64,    /* int64_t; 16.0, 1k and 1M are integers too */
    HR_FLAG_LENGTH, /* the same; auto = -1 */
    HR_FLAG_F64,    /* double */
    HR_FLAG_JOINED, /* const char *, a flag given again adds to it after a comma */
    HR_FLAG_TEXTS,  /* hr_cli_list of const char *, a flag given again adds one */
    HR_FLAG_WORDS,  /* hr_cli_list of const char *: all arguments up to the next flag */
    HR_FLAG_IDS,    /* hr_cli_list of int64_t: 1,2,3 */
    HR_FLAG_BIAS,   /* hr_cli_bias: 15:-5,220:1.5 */
} hr_cli_flag_kind;

/* Which struct a flag writes to: those of headrace.h, the server's, the benchmarks', the
 * evaluations', or the command's own. */
typedef enum hr_cli_flag_target {
    HR_ARGS_OPTIONS,
    HR_ARGS_SAMPLING,
    HR_ARGS_SERVER,
    HR_ARGS_BENCH,
    HR_ARGS_EVAL,
    HR_ARGS_COMMAND
} hr_cli_flag_target;

typedef struct hr_cli_list {
    void *at; /* owned array */
    size_t n, capacity;
} hr_cli_list;

/* What is not in headrace.h's structs. */
typedef struct hr_cli_command {
    hr_cli_list prompts; /* of const char * */
    const char *prompt_file, *system, *manifest, *log_level;
    const char *template_file, *messages, *tools, *documents, *template_kwargs, *variables;
    hr_cli_list prompt_ids;
    hr_cli_list stop, bad_words, choice;                              /* of const char * */
    hr_cli_list stop_token_ids, allowed_token_ids, logprob_token_ids; /* of int64_t */
    hr_cli_list bias_ids, bias_values;                                /* of int64_t, of double */
    hr_cli_list api_keys, served_names, allowed_origins;              /* of const char * */
    hr_cli_list logits_processors;                                    /* of const char * */
    const char *log_format, *generation_config;
    const char *fit_buckets, *dump, *topology, *plugin;
    const char *replay_file; /* positional */
    const char *out;         /* positional, after the model */
    const char *scheme;
    int64_t group_size;
    hr_cli_list ignore; /* of const char * */
    int force;
    int token_buckets, request_buckets;
    int no_generation_prompt, continue_final_message;
    int chat, json, stats, no_special, json_lines, spans;
} hr_cli_command;

/* Benchmarks, and the terminal clients where they speak to a server. */
typedef struct hr_cli_bench {
    hr_bench_serve_options serve; /* its data and http are the others', too */
    hr_bench_engine_options engine;
    hr_bench_sampler_options sampler;
    hr_bench_kernels_options kernels;
    hr_bench_tokenizer_options encode;
    hr_cli_list headers, goodput;                       /* of const char * */
    hr_cli_list hidden_sizes, vocab_sizes, batch_sizes; /* of int64_t */
    hr_cli_list rows, contexts;                         /* of int64_t */
    const char *tokenizer, *texts, *result_dir, *result_filename, *from_result, *output_json;
    int save_result, no_progress, one_run;
} hr_cli_bench;

/* Evaluations; the server they may ask is bench.serve's. */
typedef struct hr_cli_eval {
    hr_eval_text_options text;
    hr_eval_gsm8k_options gsm8k;
    headrace_options reference; /* model and precision; the rest is the target's */
    const char *file, *reference_url;
    int64_t top;
} hr_cli_eval;

typedef struct hr_cli_flag {
    const char *name;  /* "--max-tokens" */
    const char *value; /* "N" in help; NULL = takes none */
    hr_cli_flag_kind kind;
    hr_cli_flag_target target;
    size_t offset;
    unsigned commands;
    const char *help;
} hr_cli_flag;

/* A parsed command line. Sampling flags are kept as text and applied after the model's own
 * defaults are known, so that what was typed wins. */
typedef struct hr_args {
    const char *program; /* the command's name */
    unsigned command;
    const char *model; /* positional */
    int log_level;     /* hr_log_level; what --log-level names */
    headrace_options options;
    hr_server_options server;
    hr_cli_bench bench;
    hr_cli_eval eval;
    hr_cli_command own;
    struct hr_typed {
        const hr_cli_flag *flag;
        const char *value;
    } * typed; /* owned: sampling flags in order */
    size_t n_typed, typed_capacity;
    hr_arena arena; /* files' texts */
    bool help;
} hr_args;

/* argv without the program and command names. INVALID_ARGUMENT names the flag and the nearest
 * known one. */
HR_MUST_USE hr_status hr_args_parse(int argc, char **argv, unsigned command, const char *program,
                                    hr_args *out);
/* Refuses a command line whose flags do not go together, or that lacks what it works on. */
HR_MUST_USE hr_status hr_args_check(hr_args *a);
void hr_args_deinit(hr_args *a);
/* Sampling flags over `s`, which headrace_sampling_init has filled. */
HR_MUST_USE hr_status hr_args_sampling(hr_args *a, headrace_sampling *s);
/* Calls `tell` for each flag of a command, in the table's order. */
void hr_args_each(unsigned command, void (*tell)(void *to, const hr_cli_flag *f), void *to);
/* Usage text of a command, derived from the table. */
void hr_args_help(unsigned command, const char *usage, hr_buf *out);
/* A file's bytes, "-" = standard input, at most 64 MiB; NUL-terminated in the arena. */
HR_MUST_USE hr_status hr_args_slurp(hr_arena *a, const char *path, hr_str *out);

#endif
