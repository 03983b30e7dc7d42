/* Landlock: the kernel's own list of files that this process may still open.
 *
 * Called before there are threads, for it binds the calling thread and those that it starts later.
 * The kernel tells which version of the interface it has; what an older one does not know is not
 * asked of it. The numbers of versions 3 to 6 stand here, since Debian 12's header ends at 2. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/sandbox.h"

#define TRUNCATE  (1ull << 14) /* version 3 */
#define IOCTL_DEV (1ull << 15) /* version 5 */
#define TCP       3ull         /* version 4: bind, connect */
#define SCOPES    3ull         /* version 6: abstract sockets, signals */

#define READING ((uint64_t)LANDLOCK_ACCESS_FS_READ_FILE | (uint64_t)LANDLOCK_ACCESS_FS_READ_DIR)
#define MAKING                                                                                     \
    ((uint64_t)LANDLOCK_ACCESS_FS_WRITE_FILE | (uint64_t)LANDLOCK_ACCESS_FS_MAKE_REG |             \
     (uint64_t)LANDLOCK_ACCESS_FS_MAKE_DIR | TRUNCATE)
#define REMOVING                                                                                   \
    ((uint64_t)LANDLOCK_ACCESS_FS_REMOVE_FILE | (uint64_t)LANDLOCK_ACCESS_FS_REMOVE_DIR)
#define OTHERS                                                                                     \
    ((uint64_t)LANDLOCK_ACCESS_FS_MAKE_CHAR | (uint64_t)LANDLOCK_ACCESS_FS_MAKE_SOCK |             \
     (uint64_t)LANDLOCK_ACCESS_FS_MAKE_FIFO | (uint64_t)LANDLOCK_ACCESS_FS_MAKE_BLOCK |            \
     (uint64_t)LANDLOCK_ACCESS_FS_MAKE_SYM | (uint64_t)LANDLOCK_ACCESS_FS_REFER)
/* What can be said of a file that is no folder. */
#define OF_FILES                                                                                   \
    ((uint64_t)LANDLOCK_ACCESS_FS_EXECUTE | (uint64_t)LANDLOCK_ACCESS_FS_WRITE_FILE |              \
     (uint64_t)LANDLOCK_ACCESS_FS_READ_FILE | TRUNCATE | IOCTL_DEV)

/* The kernel's struct as version 6 has it. */
typedef struct ruleset {
    uint64_t files, tcp, scopes;
} ruleset;

const char *hr_sandbox_instrumented(void)
{
#ifdef __clang__
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return "sanitizers";
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return "sanitizers";
#else
    extern void __gcov_dump(void) __attribute__((weak));
    return __gcov_dump ? "coverage" : NULL;
#endif
}

static size_t struct_bytes(int abi)
{
    return abi < 4 ? 8 : abi < 6 ? 16 : sizeof(ruleset);
}

static ruleset handled(hr_landlock_kind kind, int abi)
{
    ruleset r = { .files = MAKING | REMOVING | OTHERS };
    if (kind == HR_LANDLOCK_ALL) {
        r.files |= READING | LANDLOCK_ACCESS_FS_EXECUTE | IOCTL_DEV;
        r.tcp = TCP;
        r.scopes = SCOPES;
    }
    if (abi < 2) r.files &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
    if (abi < 3) r.files &= ~TRUNCATE;
    if (abi < 5) r.files &= ~IOCTL_DEV;
    return r;
}

hr_status hr_landlock_create(hr_landlock_kind kind, hr_landlock *out)
{
    *out = (hr_landlock){ .fd = -1, .writes_only = kind == HR_LANDLOCK_WRITES };
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1) return HR_OK; /* not built in, or turned off */
    ruleset r = handled(kind, (int)abi);
    long fd = syscall(SYS_landlock_create_ruleset, &r, struct_bytes((int)abi), 0);
    if (fd < 0) return hr_fail(HR_UNAVAILABLE, "Landlock: %s", strerror(errno));
    out->fd = (int)fd;
    out->abi = (int)abi;
    return HR_OK;
}

static uint64_t rights(const hr_landlock *l, unsigned use)
{
    uint64_t all = 0;
    if (use & HR_LANDLOCK_READ) all |= READING;
    if (use & HR_LANDLOCK_WRITE) all |= MAKING | REMOVING;
    if (use & HR_LANDLOCK_REMOVE) all |= LANDLOCK_ACCESS_FS_REMOVE_FILE;
    if (use & HR_LANDLOCK_DEVICES) all |= LANDLOCK_ACCESS_FS_WRITE_FILE | IOCTL_DEV;
    ruleset r = handled(l->writes_only ? HR_LANDLOCK_WRITES : HR_LANDLOCK_ALL, l->abi);
    return all & r.files;
}

static hr_status add_rule(hr_landlock *l, int fd, const char *path, uint64_t allowed)
{
    struct landlock_path_beneath_attr rule = { .allowed_access = allowed, .parent_fd = fd };
    if (!syscall(SYS_landlock_add_rule, l->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0)) return HR_OK;
    return hr_fail(HR_UNAVAILABLE, "Landlock: %s: %s", path, strerror(errno));
}

hr_status hr_landlock_allow(hr_landlock *l, const char *path, unsigned use)
{
    struct stat s;
    if (l->fd < 0) return HR_OK;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s)) {
        int error = errno;
        if (fd >= 0) close(fd);
        if (error == ENOENT || error == ENOTDIR || error == EACCES) return HR_OK;
        return hr_fail(HR_UNAVAILABLE, "Landlock: %s: %s", path, strerror(error));
    }
    uint64_t allowed = rights(l, use);
    if (!S_ISDIR(s.st_mode)) allowed &= OF_FILES;
    hr_status st = allowed ? add_rule(l, fd, path, allowed) : HR_OK;
    close(fd);
    return st;
}

hr_status hr_landlock_enter(hr_landlock *l)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return hr_fail(HR_UNAVAILABLE, "no_new_privs: %s", strerror(errno));
    if (l->fd < 0) return HR_OK;
    if (!syscall(SYS_landlock_restrict_self, l->fd, 0)) return HR_OK;
    return hr_fail(HR_UNAVAILABLE, "Landlock: %s", strerror(errno));
}

void hr_landlock_deinit(hr_landlock *l)
{
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}
