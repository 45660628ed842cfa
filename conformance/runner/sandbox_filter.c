/* sandbox_filter.c: which system calls end a child (libseccomp) and which files it can open
 * (Landlock).
 *
 * The filter is a list of what is forbidden, not of what is allowed: an engine in any language must
 * run, and the list holds what leaves the process (exec, fork, sockets, signals, other processes'
 * memory, kernel interfaces). A forbidden call ends the process by SIGSYS, which the judge reports
 * as a matter of integrity.
 *
 * The filter must be there before the engine's first instruction, that is before exec; and exec is
 * what it forbids. So it lets exec pass for one pathname pointer, which lies at an address drawn at
 * random and is gone with the old address space: the engine cannot repeat the call.
 *
 * Landlock has no header on older systems, so its three calls and few constants are written out
 * here. */
#include "sandbox_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ------------------------------------------------------------------ seccomp */

#define KILL SCMP_ACT_KILL_PROCESS

/* Never an engine's business. */
static const int forbidden[] = {
    SCMP_SYS(execveat),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(kcmp),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(reboot),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(sethostname),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(move_mount),
};

/* A library has no use for them; a run time of another language may try them and must be able to go
 * on without. */
static const int outside[] = {
    SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind),
    SCMP_SYS(shmget), SCMP_SYS(semget),     SCMP_SYS(msgget),  SCMP_SYS(mq_open),
};

static const int signal_calls[] = {SCMP_SYS(kill), SCMP_SYS(tkill), SCMP_SYS(tgkill),
                                   SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo)};

/* A call that this architecture does not have has a negative number and needs no rule. */
static bool add(scmp_filter_ctx filter, uint32_t action, int call) {
    return seccomp_rule_add(filter, action, call, 0) == 0 || call < 0;
}

static bool add_compare(scmp_filter_ctx filter, uint32_t action, int call,
                        struct scmp_arg_cmp compare) {
    return seccomp_rule_add(filter, action, call, 1, compare) == 0 || call < 0;
}

static bool add_list(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!add(filter, action, calls[i])) {
            return false;
        }
    }
    return true;
}

/* One process only. The leak sanitizer makes a second one to look at the first. */
static bool add_process_rules(scmp_filter_ctx filter) {
    return add(filter, KILL, SCMP_SYS(fork)) && add(filter, KILL, SCMP_SYS(vfork)) &&
           add(filter, KILL, SCMP_SYS(ptrace)) &&
           add_compare(filter, KILL, SCMP_SYS(clone),
                       SCMP_A0(SCMP_CMP_MASKED_EQ, (scmp_datum_t)CLONE_THREAD, 0));
}

static bool add_rules(scmp_filter_ctx filter, bool may_fork, bool may_exec, const char *path) {
    const scmp_datum_t self = (scmp_datum_t)getpid();
    bool ok = add_list(filter, KILL, forbidden, sizeof forbidden / sizeof *forbidden);
    ok = ok && add_list(filter, may_exec || may_fork ? SCMP_ACT_ERRNO(EACCES) : KILL, outside,
                        sizeof outside / sizeof *outside);
    for (size_t i = 0; ok && i < sizeof signal_calls / sizeof *signal_calls; i++) {
        ok = add_compare(filter, KILL, signal_calls[i], SCMP_A0(SCMP_CMP_NE, self, 0));
    }
    /* Its flags lie in memory where a filter cannot read them; the C library falls back to clone.
     */
    ok = ok && add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
    /* It does system calls without making them. */
    ok = ok && add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(io_uring_setup));
    /* Setting limits, of other processes of the same user too. */
    ok = ok && add_compare(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64),
                           SCMP_A2(SCMP_CMP_NE, 0, 0));
    if (ok && !may_fork) {
        ok = add_process_rules(filter);
    }
    if (ok && !may_exec && !may_fork) {
        ok = add_compare(filter, KILL, SCMP_SYS(execve),
                         SCMP_A0(SCMP_CMP_NE, (scmp_datum_t)(uintptr_t)path, 0));
    }
    return ok;
}

const char *ol_filter_load(bool may_fork, bool may_exec, const char *path) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return "seccomp init";
    }
    const char *step = NULL;
    if (!add_rules(filter, may_fork, may_exec, path)) {
        step = "seccomp rules";
    } else if (seccomp_load(filter) != 0) {
        step = "seccomp load";
    }
    seccomp_release(filter);
    return step;
}

char *ol_cage_exec_path(const char *path) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = strlen(path) + 1;
    size_t n_map = (n + 2 * page - 1) / page * page;
    char *at = MAP_FAILED;
    uint64_t draw[2] = {0};
    for (int i = 0; i < 16 && at == MAP_FAILED; i++) {
        if (getrandom(draw, sizeof draw, 0) != (ssize_t)sizeof draw) {
            return NULL;
        }
#if defined(MAP_FIXED_NOREPLACE) && !OL_JUDGE_SANITIZED
        /* 46 bits: the lower half of what a user process has on the common 64-bit machines. Not
         * under a sanitizer: TSan moves the wish to address 0 and ends the process for what comes
         * of it; and then exec is not forbidden anyway. */
        uintptr_t wish = (uintptr_t)(draw[0] & 0x3fffffffffffu) / page * page;
        at = mmap((void *)wish, n_map, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
#endif
    }
    if (at == MAP_FAILED) {
        at = mmap(NULL, n_map, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (at == MAP_FAILED) {
        return NULL;
    }
    char *text = at + draw[1] % (n_map - n + 1);
    memcpy(text, path, n);
    return text;
}

/* ------------------------------------------------------------------ Landlock */

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

#define LL_VERSION_FLAG 1u
#define LL_RULE_PATH 1

#define LL_EXECUTE ((uint64_t)1 << 0)
#define LL_READ_FILE ((uint64_t)1 << 2)
#define LL_READ_DIR ((uint64_t)1 << 3)
#define LL_FS_V1 (((uint64_t)1 << 13) - 1) /* the thirteen rights of version 1 */
#define LL_REFER ((uint64_t)1 << 13)       /* version 2 */
#define LL_TRUNCATE ((uint64_t)1 << 14)    /* version 3 */
#define LL_NET_BOTH 3u                     /* version 4: bind, connect */
#define LL_SCOPE_BOTH 3u                   /* version 6: abstract sockets, signals */

#define LL_READ (LL_EXECUTE | LL_READ_FILE | LL_READ_DIR)
#define LL_OF_FILES (LL_EXECUTE | LL_READ_FILE | ((uint64_t)1 << 1) | LL_TRUNCATE)

typedef struct ll_ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
} ll_ruleset;

typedef struct ll_path {
    uint64_t allowed;
    int32_t parent_fd;
} __attribute__((packed)) ll_path;

/* What a process needs to start and to load libraries, set its locale and know its machine. */
static const char *const system_files[] = {
    "/lib",
    "/lib64",
    "/lib32",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib32",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/dev/random",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm",
    "/sys/devices/system",
};

/* What the run time of another language may read besides. */
static const char *const wide_files[] = {
    "/usr",          "/bin",           "/sbin",      "/etc",           "/opt",
    "/usr/bin",      "/usr/libexec",   "/usr/share", "/usr/local/bin", "/usr/local/share",
    "/proc/version", "/proc/self/exe", "/nix/store", "/gnu/store",
};

int ol_landlock_abi(void) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LL_VERSION_FLAG);
    return abi > 0 ? (int)abi : 0;
}

static uint64_t fs_rights(int abi) {
    uint64_t rights = LL_FS_V1;
    rights |= abi >= 2 ? LL_REFER : 0;
    rights |= abi >= 3 ? LL_TRUNCATE : 0;
    return rights;
}

/* Allow what is there; what is not needs no rule. */
static bool allow(int ruleset, const char *path, uint64_t rights) {
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return true;
    }
    struct stat info;
    bool ok = fstat(fd, &info) == 0;
    if (ok && !S_ISDIR(info.st_mode)) {
        rights &= LL_OF_FILES;
    }
    ll_path rule = {.allowed = rights, .parent_fd = fd};
    ok = ok && syscall(SYS_landlock_add_rule, ruleset, LL_RULE_PATH, &rule, 0u) == 0;
    (void)close(fd);
    return ok;
}

/* Does the folder hold the path, or is it the path? */
bool ol_path_holds(const char *folder, const char *path) {
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/') {
        n--;
    }
    return strncmp(folder, path, n) == 0 && (path[n] == '\0' || path[n] == '/' || n == 1);
}

/* A folder that holds goldens is never shown as a whole. */
static bool holds_hidden(const ol_sandbox *sandbox, const char *folder) {
    for (size_t i = 0; i < sandbox->n_hide; i++) {
        if (ol_path_holds(folder, sandbox->hide[i])) {
            return true;
        }
    }
    return false;
}

static bool allow_list(int ruleset, const ol_sandbox *sandbox, const char *const *paths, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (paths[i] != NULL && !holds_hidden(sandbox, paths[i]) &&
            !allow(ruleset, paths[i], LL_READ)) {
            return false;
        }
    }
    return true;
}

const char *ol_landlock_enter(const ol_cage *cage) {
    const ol_sandbox *sandbox = cage->sandbox;
    int abi = sandbox->landlock_abi;
    ll_ruleset rules = {.fs = fs_rights(abi),
                        .net = abi >= 4 ? LL_NET_BOTH : 0,
                        .scoped = abi >= 6 && !cage->sanitized ? LL_SCOPE_BOTH : 0};
    size_t size = abi >= 6 ? sizeof rules : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &rules, size, 0u);
    if (ruleset < 0) {
        return "landlock ruleset";
    }
    bool ok =
        allow(ruleset, cage->dir, rules.fs) &&
        allow_list(ruleset, sandbox, system_files, sizeof system_files / sizeof *system_files) &&
        allow_list(ruleset, sandbox, cage->readable,
                   sizeof cage->readable / sizeof *cage->readable);
    if (ok && cage->wide_reads) {
        ok = allow_list(ruleset, sandbox, wide_files, sizeof wide_files / sizeof *wide_files);
    }
    /* Output to nowhere is always allowed. */
    ok = ok && allow(ruleset, "/dev/null", rules.fs);
    const char *step = ok ? NULL : "landlock rule";
    if (ok && syscall(SYS_landlock_restrict_self, ruleset, 0u) != 0) {
        step = "landlock";
    }
    (void)close(ruleset);
    return step;
}
