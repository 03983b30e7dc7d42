/* The sandbox from inside: what a process that confined itself can still do, and what not. Each
 * case is a process of its own, since nothing of it can be taken back; its exit status is the
 * verdict. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "server/confine.h"

static char folder[64], model[128], links[128], other[128], cache[128], manifest[128];

static void put(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("x", f);
    fclose(f);
}

/* A model's folder with a file and a link to one elsewhere; a file that is nobody's business. */
static int make_files(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/headrace-sandbox-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(links, sizeof links, "%s/model/link", folder);
    snprintf(other, sizeof other, "%s/blob", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(manifest, sizeof manifest, "%s/out/manifest.json", folder);
    char path[160];
    mkdir(model, 0755);
    snprintf(path, sizeof path, "%s/config.json", model);
    put(path);
    put(other);
    snprintf(path, sizeof path, "%s/secret", folder);
    put(path);
    snprintf(path, sizeof path, "%s/out", folder);
    mkdir(path, 0755);
    return symlink(other, links);
}

static int remove_files(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- the server's own rules, in a child --------------------------------------------------------
 */

static hr_confinement confine(const char *device)
{
    hr_server_options o;
    headrace_options e = { .size = sizeof e, .model = model, .compile_cache = cache };
    hr_confinement c;
    hr_server_options_init(&o);
    o.manifest = manifest;
    e.device = device;
    if (hr_confine_files(&o, &e, &c)) _exit(99);
    return c;
}

/* 0, or the errno. */
static int tries(const char *name, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s%s", name[0] == '/' ? "" : folder, name[0] == '/' ? "" : "/",
             name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

#define EXPECT(number, what)                                                                       \
    if (!(what)) _exit(number)

static void run_files(void)
{
    confine(NULL);
    EXPECT(1, tries("model/config.json", O_RDONLY) == 0);
    EXPECT(2, tries("model/link", O_RDONLY) == 0);
    EXPECT(3, tries("model", O_RDONLY | O_DIRECTORY) == 0);
    EXPECT(4, tries("model/config.json", O_WRONLY) == EACCES);
    EXPECT(5, tries("model/new", O_WRONLY | O_CREAT) == EACCES);
    EXPECT(6, tries("secret", O_RDONLY) == EACCES);
    EXPECT(7, tries("/etc/passwd", O_RDONLY) == EACCES);
    EXPECT(8, tries("/proc/self/root/etc/passwd", O_RDONLY) == EACCES);
    EXPECT(9, tries("cache/new", O_RDWR | O_CREAT) == 0);
    EXPECT(10, tries("out/new", O_RDWR | O_CREAT) == 0);
    EXPECT(11, tries("new", O_WRONLY | O_CREAT) == EACCES);
    EXPECT(12, tries("/proc/self/status", O_RDONLY) == 0);
    EXPECT(13, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    char from[160], to[160];
    snprintf(from, sizeof from, "%s/new", cache);
    snprintf(to, sizeof to, "%s/better", cache);
    EXPECT(14, rename(from, to) == 0 && unlink(to) == 0);
    snprintf(from, sizeof from, "%s/config.json", model);
    EXPECT(15, unlink(from) == -1 && errno == EACCES);
    EXPECT(16, link(other, to) == -1 && symlink(other, to) == -1);
    EXPECT(17, tries("/dev/null", O_RDWR) == 0);
    execl("/bin/true", "true", (char *)NULL);
    EXPECT(18, errno == EACCES);
}

static void run_plugin_files(void)
{
    hr_confinement c = confine("pjrt:/nowhere.so");
    EXPECT(1, c.plugin);
    EXPECT(2, tries("/etc/passwd", O_RDONLY) == 0);
    EXPECT(3, tries("cache/new", O_RDWR | O_CREAT) == 0);
    EXPECT(4, tries("/etc/headrace-must-not-be", O_WRONLY | O_CREAT) == EACCES);
    EXPECT(5, tries("/var/tmp/headrace-sandbox-test", O_WRONLY | O_CREAT) == 0);
    unlink("/var/tmp/headrace-sandbox-test");
    EXPECT(6, tries("/dev/null", O_RDWR) == 0);
    EXPECT(7, !hr_confine_calls(&c));
    EXPECT(8, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
                  MAP_FAILED);
    EXPECT(9, ptrace(PTRACE_TRACEME, 0, NULL, NULL) == -1 && errno == EPERM);
    EXPECT(10, socket(AF_INET, SOCK_STREAM, 0) >= 0);
    execl("/bin/true", "true", (char *)NULL); /* allowed: exit status 0 */
    _exit(11);
}

static void *try_socket(void *go)
{
    char c;
    if (read(*(int *)go, &c, 1) != 1) return NULL;
    bool refused = socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM;
    return refused ? go : NULL;
}

static void *nothing(void *self)
{
    return self;
}

/* A thread that ran before is bound as well, one that starts later, too. */
static void run_threads(const hr_confinement *c)
{
    int pipes[2];
    pthread_t before, after;
    void *said;
    EXPECT(1, !pipe(pipes) && !pthread_create(&before, NULL, try_socket, &pipes[0]));
    EXPECT(2, !hr_confine_calls(c));
    EXPECT(3, write(pipes[1], "x", 1) == 1 && !pthread_join(before, &said) && said);
    EXPECT(4, !pthread_create(&after, NULL, nothing, &pipes[0]));
    EXPECT(5, !pthread_join(after, &said) && said);
}

static bool is_refused(long result)
{
    return result == -1 && errno == EPERM;
}

static void run_calls(void)
{
    hr_confinement c = { .landlock = 0 };
    struct rlimit limit;
    struct winsize size;
    int listener = socket(AF_INET, SOCK_STREAM, 0), n;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(9) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    run_threads(&c);
    EXPECT(10, is_refused(connect(listener, (struct sockaddr *)&a, sizeof a)));
    EXPECT(11, is_refused(bind(listener, (struct sockaddr *)&a, sizeof a)));
    EXPECT(12, is_refused(socket(AF_UNIX, SOCK_DGRAM, 0)));
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(13, p != MAP_FAILED && is_refused(mprotect(p, 4096, PROT_READ | PROT_EXEC)));
    EXPECT(14, mprotect(p, 4096, PROT_READ) == 0);
    EXPECT(15, mmap(NULL, 4096, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    EXPECT(16, is_refused(kill(getppid(), 0)));
    EXPECT(17, getrlimit(RLIMIT_NOFILE, &limit) == 0);
    EXPECT(18, is_refused(setrlimit(RLIMIT_NOFILE, &limit)));
    EXPECT(19, is_refused(ioctl(0, TIOCGWINSZ, &size)) && ioctl(listener, FIONREAD, &n) >= -1);
    EXPECT(20, is_refused(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)));
    EXPECT(21, is_refused(chmod("/tmp", 01777)));
    EXPECT(22, tries("/etc/passwd", O_RDONLY) == 0); /* files are Landlock's */
    free(malloc(64 << 20));
}

static void after_calls(void)
{
    hr_confinement c = { .landlock = 0 };
    EXPECT(1, !hr_confine_calls(&c));
}

static void run_execve(void)
{
    after_calls();
    execl("/bin/true", "true", (char *)NULL);
    _exit(2);
}

static void run_ptrace(void)
{
    after_calls();
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    _exit(2);
}

static void run_fork(void)
{
    after_calls();
    if (!fork()) _exit(0);
    _exit(2);
}

static void run_off(void)
{
    hr_server_options o;
    headrace_options e = { .size = sizeof e, .model = model, .compile_cache = cache };
    hr_confinement c;
    hr_server_options_init(&o);
    o.sandbox = 0;
    EXPECT(1, !hr_confine_files(&o, &e, &c) && !hr_confine_calls(&c));
    EXPECT(2, tries("/etc/passwd", O_RDONLY) == 0 && socket(AF_INET, SOCK_STREAM, 0) >= 0);
    EXPECT(3, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0);
}

/* ---- the cases ---------------------------------------------------------------------------------
 */

/* What waitpid says of a child that runs this. */
static int child(void (*run)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        signal(SIGSYS, SIG_DFL); /* cmocka's would go on with the tests */
        run();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void need_calls(void)
{
    if (hr_sandbox_instrumented()) skip();
}

static void need_landlock(void)
{
    hr_landlock l;
    need_calls();
    assert_int_equal(hr_landlock_create(HR_LANDLOCK_ALL, &l), HR_OK);
    bool there = l.fd >= 0;
    hr_landlock_deinit(&l);
    if (!there) skip();
}

static void test_files_need_landlock(void **unused)
{
    (void)unused;
    need_landlock();
    assert_int_equal(child(run_files), 0);
}

static void test_plugin_needs_landlock(void **unused)
{
    (void)unused;
    need_landlock();
    assert_int_equal(child(run_plugin_files), 0);
}

static void test_calls(void **unused)
{
    (void)unused;
    need_calls();
    assert_int_equal(child(run_calls), 0);
}

static void test_what_ends_the_process(void **unused)
{
    (void)unused;
    need_calls();
    void (*const ends[])(void) = { run_execve, run_ptrace, run_fork };
    for (size_t i = 0; i < 3; i++) {
        int status = child(ends[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
    }
}

static void test_off(void **unused)
{
    (void)unused;
    assert_int_equal(child(run_off), 0);
}

static void test_names(void **unused)
{
    (void)unused;
    assert_string_equal(hr_seccomp_name(SYS_execve), "execve");
    assert_string_equal(hr_seccomp_name(SYS_clone), "clone");
    assert_string_equal(hr_seccomp_name(-1), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_need_landlock),
        cmocka_unit_test(test_plugin_needs_landlock),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_what_ends_the_process),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
