/* Inside the cli: its commands. Each prints and returns the process's exit status. */
#ifndef HEADRACE_CLI_CLI_H
#define HEADRACE_CLI_CLI_H

#include "cli/args.h"

int hr_cli_generate(hr_args *a);
int hr_cli_tokenize(hr_args *a);
int hr_cli_render(hr_args *a);
/* Prints "headrace: " and the thread's message; returns 1. */
int hr_cli_complain(void);

#endif
