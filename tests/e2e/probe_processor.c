/* A logits processor that tries, from the engine's thread in the middle of a step, what an intruder
 * would, and tells on standard error what came of it. With the option "execve" it tries that. */
#include <errno.h>
#include <fcntl.h>
#include <headrace/headrace.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static char options[64];

static int create(const headrace_processor_info *info, void **processor)
{
    snprintf(options, sizeof options, "%s", info->options ? info->options : "");
    *processor = options;
    return HEADRACE_OK;
}

static void destroy(void *processor)
{
    (void)processor;
}

static void tell(const char *what, int failed)
{
    char line[128];
    int n = snprintf(line, sizeof line, "probe: %s: %s\n", what,
                     failed ? strerrorname_np(errno) : "done");
    (void)!write(STDERR_FILENO, line, (size_t)n);
}

static void probe(void)
{
    tell("read /etc/passwd", open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0);
    tell("write /tmp", open("/tmp/headrace-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0);
    tell("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0);
    tell("code", mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0) == MAP_FAILED);
    if (strcmp(options, "execve")) return;
    execl("/bin/true", "true", (char *)NULL);
    tell("execve", 1);
}

static int process(void *processor, void *state, headrace_processor_row *row)
{
    (void)processor, (void)state;
    if (row->n_tokens == row->n_prompt) probe();
    return HEADRACE_OK;
}

static const headrace_logits_processor it = {
    .size = sizeof(headrace_logits_processor),
    .version = HEADRACE_LOGITS_PROCESSOR_VERSION,
    .name = "probe",
    .create = create,
    .destroy = destroy,
    .process = process,
};

const headrace_logits_processor *headrace_logits_processor_get(void);
const headrace_logits_processor *headrace_logits_processor_get(void)
{
    return &it;
}
