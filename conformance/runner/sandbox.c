/* sandbox.c: limits, uid, namespaces; what the machine offers. The filter and Landlock are in
 * sandbox_filter.c.
 *
 * Everything from ol_cage_enter on runs between fork and exec of a process with one thread, so the
 * C library is usable. Order matters and is said where it does. */
#include "sandbox_filter.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)
#define UID_NOBODY ((uid_t)65534)
/* A range far above the uids of people and services; each run takes 1000 of it by its pid. */
#define UID_RANGE_START 1200000000u
#define UID_RANGE_RUNS 500000u
#define UID_RANGE_EACH 1000u

ol_limits ol_limits_default(void) {
    /* One GiB of memory is some fifty times what the largest test needs of the reference engine.
     * The address space may be larger since run times of other languages reserve much more than
     * they touch. */
    return (ol_limits){
        .wall_s = 60,
        .cpu_factor = 20,
        .resident_max = GIB,
        .address_max = 6 * GIB,
        .file_max = 16 * MIB,
        .output_max = 64 * MIB,
        .descriptors_max = 256,
        .processes_max = 128,
    };
}

/* ------------------------------------------------------------------ probing */

/* Run a step in a process of its own: did it work? */
static bool works(bool (*step)(const ol_sandbox *), const ol_sandbox *sandbox) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(step(sandbox) ? 0 : 1);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool drop_to(uid_t uid) {
    gid_t gid = (gid_t)uid;
    return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 &&
           setresuid(uid, uid, uid) == 0 && setresuid(0, 0, 0) != 0;
}

static bool try_uid(const ol_sandbox *sandbox) {
    return drop_to(sandbox->uid);
}

static bool try_filter(const ol_sandbox *sandbox) {
    (void)sandbox;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ol_filter_load(false, false, "") == NULL;
}

static bool try_mount_ns(const ol_sandbox *sandbox) {
    (void)sandbox;
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

void ol_sandbox_probe(ol_sandbox *sandbox) {
    *sandbox = (ol_sandbox){0};
    if (geteuid() == 0) {
        sandbox->uid = UID_RANGE_START + ((unsigned)getpid() % UID_RANGE_RUNS) * UID_RANGE_EACH;
        sandbox->uid_range = works(try_uid, sandbox);
        if (!sandbox->uid_range) {
            sandbox->uid = UID_NOBODY;
        }
        sandbox->own_uid = sandbox->uid_range || works(try_uid, sandbox);
        sandbox->mount_ns = works(try_mount_ns, sandbox);
    }
    sandbox->seccomp = works(try_filter, sandbox);
    sandbox->landlock_abi = ol_landlock_abi();
}

uid_t ol_sandbox_uid(const ol_sandbox *sandbox, unsigned n) {
    return sandbox->uid_range ? sandbox->uid + n % UID_RANGE_EACH : sandbox->uid;
}

static void add_word(char *text, size_t cap, const char *word) {
    size_t len = strlen(text);
    ol_format(text + len, cap - len, "%s%s", len == 0 ? "" : ", ", word);
}

void ol_sandbox_text(const ol_sandbox *sandbox, char *have, size_t have_cap, char *lack,
                     size_t lack_cap) {
    have[0] = '\0';
    lack[0] = '\0';
    add_word(have, have_cap, "own process");
    add_word(have, have_cap, "limits");
    if (geteuid() != 0) {
        add_word(have, have_cap, "ordinary user");
    } else if (sandbox->own_uid) {
        add_word(have, have_cap, sandbox->uid_range ? "own uid" : "uid nobody");
    } else {
        add_word(lack, lack_cap, "no other uid to drop to: the engine runs as root");
    }
    if (sandbox->seccomp) {
        add_word(have, have_cap, "seccomp");
    } else {
        add_word(lack, lack_cap, "no seccomp: exec, fork and sockets are not forbidden");
    }
    if (sandbox->landlock_abi > 0) {
        char word[32];
        ol_format(word, sizeof word, "landlock %d", sandbox->landlock_abi);
        add_word(have, have_cap, word);
    } else if (sandbox->mount_ns) {
        add_word(have, have_cap, "mount namespace");
    } else {
        add_word(lack, lack_cap, "no landlock: files that the user may read can be read");
    }
}

/* ------------------------------------------------------------------ entering */

static bool limit(int what, uint64_t value) {
    /* Soft and hard alike, so that it cannot be raised again; never above a limit that we are under
     * ourselves. */
    struct rlimit old;
    if (getrlimit((__rlimit_resource_t)what, &old) != 0) {
        return false;
    }
    rlim_t wanted = (rlim_t)value;
    if (old.rlim_max != RLIM_INFINITY && wanted > old.rlim_max) {
        wanted = old.rlim_max;
    }
    struct rlimit now = {.rlim_cur = wanted, .rlim_max = wanted};
    return setrlimit((__rlimit_resource_t)what, &now) == 0;
}

static bool enter_limits(const ol_cage *cage) {
    const ol_limits *l = cage->limits;
    /* The judge's own clock decides; this one ends a child whose judge is gone. */
    double cpu_s = l->wall_s * l->cpu_factor + 60;
    bool ok = limit(RLIMIT_CORE, 0) && limit(RLIMIT_CPU, (uint64_t)cpu_s) &&
              limit(RLIMIT_FSIZE, l->file_max) && limit(RLIMIT_NOFILE, l->descriptors_max);
    if (ok && !cage->sanitized && !OL_JUDGE_SANITIZED && l->address_max > 0) {
        ok = limit(RLIMIT_AS, l->address_max);
    }
    if (ok && cage->sandbox->own_uid && cage->sandbox->uid_range) {
        ok = limit(RLIMIT_NPROC, l->processes_max);
    }
    return ok;
}

/* Cover the goldens by empty file systems, in a view of the mounts that is the child's alone. */
static bool enter_mount_ns(const ol_cage *cage) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return false;
    }
    for (size_t i = 0; i < cage->sandbox->n_hide; i++) {
        const char *folder = cage->sandbox->hide[i];
        if (ol_path_holds(folder, cage->dir)) {
            continue;
        }
        if (mount("none", folder, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=0") !=
            0) {
            return false;
        }
    }
    return true;
}

static bool reset_signals(void) {
    sigset_t none;
    (void)sigemptyset(&none);
    for (int s = 1; s < NSIG; s++) {
        (void)signal(s, SIG_DFL); /* fails for the few that cannot be changed */
    }
    return sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

const char *ol_cage_enter(const ol_cage *cage, const char *path) {
    const ol_sandbox *sandbox = cage->sandbox;
    (void)umask(077);
    if (!reset_signals()) {
        return "signals";
    }
    if (chdir(cage->dir) != 0) {
        return "directory";
    }
    if (!enter_limits(cage)) {
        return "limits";
    }
    if (sandbox->mount_ns && sandbox->landlock_abi == 0 && !enter_mount_ns(cage)) {
        return "mount namespace";
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        return "no_new_privs";
    }
    /* Before the uid is dropped, since rules need descriptors of folders that the new uid cannot
     * reach. */
    if (sandbox->landlock_abi > 0 && !cage->unfiltered) {
        const char *step = ol_landlock_enter(cage);
        if (step != NULL) {
            return step;
        }
    }
    if (sandbox->own_uid && !drop_to(cage->uid)) {
        return "uid";
    }
    /* After the uid, which resets it: the child dies with its judge. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) {
        return "parent death signal";
    }
    if (sandbox->seccomp && !cage->unfiltered) {
        return ol_filter_load(cage->sanitized || cage->may_fork, cage->may_exec, path);
    }
    return NULL;
}
