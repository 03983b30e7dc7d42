/* The embedding API in thirty lines: load, submit, print what comes.
 *   cc hello.c -lheadrace && ./a.out smollm2-135m "Why is the sky blue?" */
#include <headrace/headrace.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    headrace_options options;
    headrace_options_init(&options);
    options.model = argc > 1 ? argv[1] : "smollm2-135m";
    headrace_engine *engine;
    if (headrace_engine_create(&options, &engine)) {
        fprintf(stderr, "%s\n", headrace_message());
        return 1;
    }

    headrace_sampling sampling;
    headrace_sampling_init(engine, &sampling);
    sampling.max_tokens = 32;
    headrace_request request;
    headrace_request_init(&request);
    request.prompt = argc > 2 ? argv[2] : "Once upon a time";
    request.prompt_bytes = strlen(request.prompt);
    request.sampling = &sampling;
    uint64_t id;
    int failed = headrace_submit(engine, &request, &id);
    if (failed) fprintf(stderr, "%s\n", headrace_message());
    for (headrace_event event; !failed && !headrace_poll(engine, &event, -1);) {
        if (event.kind == HEADRACE_EVENT_TOKENS) fwrite(event.text, 1, event.text_bytes, stdout);
        if (event.kind == HEADRACE_EVENT_FAILED) fprintf(stderr, "%s\n", event.message);
        if (event.kind == HEADRACE_EVENT_DONE) break;
    }
    putchar('\n');
    headrace_engine_destroy(engine);
    return failed;
}
