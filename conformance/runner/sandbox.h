/* sandbox.h: what a child may not do, as far as this machine can forbid it.
 *
 * Layers, each used when it is there and named in the report's header when it is not:
 *
 *   uid        as root, an unprivileged uid of the child's own, no groups, no capabilities
 *
 *   limits     memory, file size, descriptors, CPU, processes (with an own uid), no core files
 *
 *   seccomp    no exec, no second process, no ptrace, no sockets, no signals to others
 *
 *   landlock   of all files only the engine, the system's libraries and the child's directory
 *
 *   namespace  where there is no Landlock and we are root: the goldens are mounted over
 *
 *   subreaper  what outlives the child comes to the judge and is ended
 *
 * What is checked inside the engine's own address space catches mistakes, not forgers.
 * All functions named _enter run in the child between fork and exec. See README.md beside. */
#ifndef OL_SANDBOX_H
#define OL_SANDBOX_H

#include "judge.h"

#include <sys/types.h>

typedef struct ol_limits {
    double wall_s;         /* of one test; CPU time decides beyond it */
    double cpu_factor;     /* times the reference engine's CPU time */
    uint64_t resident_max; /* bytes of resident memory */
    uint64_t address_max;  /* bytes of address space; not under sanitizers */
    uint64_t file_max;     /* bytes of one file */
    uint64_t output_max;   /* bytes of stdout and stderr together */
    unsigned descriptors_max;
    unsigned processes_max; /* threads included; with an own uid only */
} ol_limits;

ol_limits ol_limits_default(void);

/* What this machine offers; found once, before the first child. */
typedef struct ol_sandbox {
    bool own_uid;   /* we are root and can drop */
    bool uid_range; /* the uids are ours alone: their processes can be counted and ended */
    uid_t uid;      /* the first of the range, or 65534 for all */
    bool seccomp;
    int landlock_abi; /* 0: none */
    bool mount_ns;
    /* Folders that no child may see, absolute: the goldens. Set by the caller. */
    const char *hide[8];
    size_t n_hide;
} ol_sandbox;

void ol_sandbox_probe(ol_sandbox *sandbox);
/* "own uid, limits, seccomp, landlock 7" and what is lacking, in words. */
void ol_sandbox_text(const ol_sandbox *sandbox, char *have, size_t have_cap, char *lack,
                     size_t lack_cap);

/* What differs between children. */
typedef struct ol_cage {
    const ol_sandbox *sandbox;
    const ol_limits *limits;
    uid_t uid;               /* used when sandbox->own_uid */
    const char *dir;         /* the child's own directory, absolute */
    const char *readable[6]; /* files and folders besides the system's; NULL entries are left out */
    bool sanitized; /* no limit of the address space; forks and ptrace, for the leak sanitizer */
    bool may_fork;  /* a compiler */
    bool may_exec;
    /* A person debugs one case: a debugger forks, traces, signals, and writes to /proc. */
    bool unfiltered;
    bool wide_reads; /* a testee's run time may read all of /usr and /etc */
} ol_cage;

/* The uid of child number n. */
uid_t ol_sandbox_uid(const ol_sandbox *sandbox, unsigned n);

/* Enter the cage; on failure a word for the step that failed (errno set), NULL when all is well.
 * The one exec that may follow must be given `path` as its pathname pointer; the filter knows the
 * child by that address. */
const char *ol_cage_enter(const ol_cage *cage, const char *path);

/* A copy of the path at an address that nobody can guess; the filter lets exec pass for it alone.
 */
char *ol_cage_exec_path(const char *path);

#endif
