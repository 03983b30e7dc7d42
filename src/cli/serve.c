/* headrace serve: the server, and what of its command line is not a plain field.
 *
 * Main thread, which becomes the server's I/O thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/cli.h"

/* The environment's key counts where no flag gives one. */
static const char *const *api_keys(hr_args *a, size_t *n)
{
    static const char *from_environment;
    from_environment = getenv("HEADRACE_API_KEY");
    *n = a->own.api_keys.n;
    if (*n || !from_environment || !*from_environment) return a->own.api_keys.at;
    *n = 1;
    return &from_environment;
}

static void fill_options(hr_args *a)
{
    hr_server_options *o = &a->server;
    const char *format = a->own.log_format;
    o->api_keys = api_keys(a, &o->n_api_keys);
    o->served_names = a->own.served_names.at;
    o->n_served_names = a->own.served_names.n;
    o->allowed_origins = a->own.allowed_origins.at;
    o->n_allowed_origins = a->own.allowed_origins.n;
    o->log_json = format && !strcmp(format, "json");
    o->manifest = a->own.manifest;
    a->options.model = a->model;
    a->options.log = hr_cli_log;
    a->options.log_context = a;
}

int hr_cli_serve(hr_args *a)
{
    fill_options(a);
    hr_log_set((hr_log_sink)hr_cli_log, a, HR_LOG_DEBUG);
    hr_status st = hr_server_run(&a->server, &a->options);
    /* a second signal: whoever sent it does not want to wait for threads in the middle of a step */
    if (st == HR_CANCELLED) _exit(hr_cli_complain());
    return st ? hr_cli_complain() : 0;
}
