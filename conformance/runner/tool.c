/* tool.c: see tool.h. The tool may start others (a compiler starts an assembler), so its whole
 * session is ended when it is over or late. */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 50

/* In the new process; does not return. */
static void become(const ol_cage *cage, char *const argv[], int out) {
    static char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TMPDIR=.",
                                "HOME=.", NULL};
    int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) != 0 || dup2(out, 1) != 1 || dup2(out, 2) != 2) {
        _exit(126);
    }
    for (int fd = 3; fd < 1024; fd++) {
        (void)close(fd);
    }
    (void)setsid();
    const char *step = ol_cage_enter(cage, argv[0]);
    if (step == NULL) {
        (void)execve(argv[0], argv, env);
        step = argv[0];
    }
    (void)fprintf(stderr, "%s: %s\n", step, strerror(errno));
    _exit(126);
}

/* Read until the end or the deadline; false when it is late. */
static bool read_output(int fd, uint64_t deadline_ns, char *text, size_t cap) {
    size_t len = 0;
    text[0] = '\0';
    while (ol_now_ns() < deadline_ns) {
        char block[4096];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, TICK_MS) <= 0) {
            continue;
        }
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return true;
        }
        size_t room = cap - 1 - len;
        size_t n_kept = (size_t)n < room ? (size_t)n : room;
        memcpy(text + len, block, n_kept);
        len += n_kept;
        text[len] = '\0';
    }
    return false;
}

int ol_tool_run(const ol_cage *cage, char *const argv[], double wall_s, char *text, size_t cap) {
    int fds[2];
    int status = 0;
    if (pipe2(fds, O_CLOEXEC) != 0) {
        ol_format(text, cap, "no pipe: %s", strerror(errno));
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become(cage, argv, fds[1]);
    }
    (void)close(fds[1]);
    bool in_time =
        pid > 0 && read_output(fds[0], ol_now_ns() + (uint64_t)(wall_s * 1e9), text, cap);
    (void)close(fds[0]);
    if (pid < 0) {
        ol_format(text, cap, "no process: %s", strerror(errno));
        return -1;
    }
    if (!in_time) {
        (void)kill(-pid, SIGKILL);
        (void)kill(pid, SIGKILL);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    (void)kill(-pid, SIGKILL);
    if (!in_time) {
        ol_format(text, cap, "%s did not end within %.0f s", argv[0], wall_s);
        return -1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
