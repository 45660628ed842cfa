/* without.c: without COMMAND ARGS...: run a command as on a machine whose kernel has neither
 * seccomp nor Landlock, so that the judge can be tried there. It takes them away by a seccomp
 * filter of its own. */
#include <errno.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#endif

int main(int argc, char **argv) {
    if (argc < 2) {
        (void)fprintf(stderr, "usage: without COMMAND ARGS...\n");
        return 2;
    }
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return 3;
    }
    bool ok =
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SYS_landlock_create_ruleset, 0) == 0 &&
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(seccomp), 0) == 0 &&
        seccomp_rule_add(filter, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1,
                         SCMP_A0(SCMP_CMP_EQ, PR_SET_SECCOMP, 0)) == 0 &&
        seccomp_load(filter) == 0;
    seccomp_release(filter);
    if (!ok) {
        (void)fprintf(stderr, "without: the filter cannot be loaded\n");
        return 3;
    }
    (void)execvp(argv[1], argv + 1);
    (void)fprintf(stderr, "without: %s: %s\n", argv[1], strerror(errno));
    return 3;
}
