/* Inside the cli: its commands. Each prints and returns the process's exit status. */
#ifndef HEADRACE_CLI_CLI_H
#define HEADRACE_CLI_CLI_H

#include "cli/args.h"

int hr_cli_generate(hr_args *a);
int hr_cli_tokenize(hr_args *a);
int hr_cli_render(hr_args *a);
int hr_cli_serve(hr_args *a);
int hr_cli_plan(hr_args *a);
int hr_cli_bench_serve(hr_args *a);
int hr_cli_bench_throughput(hr_args *a);
int hr_cli_bench_latency(hr_args *a);
int hr_cli_bench_startup(hr_args *a);
int hr_cli_chat(hr_args *a);
int hr_cli_complete(hr_args *a);
/* The tokenizer of a model, or a tokenizer.json by itself. */
HR_MUST_USE hr_status hr_cli_load_tokenizer(const char *name, hr_tokenizer **out);
/* Prints "headrace: " and the thread's message; returns 1. */
int hr_cli_complain(void);

#endif
