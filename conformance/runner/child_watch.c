/* child_watch.c: clocks and memory of a living child, the end of a dead one, and what it left
 * behind; see child.h. */
#include "child_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAMPLE_NS 20000000u /* 20 ms between two looks */
#define EXIT_SANITIZER 86   /* what the sanitizers are told to end with */
#define END_IDLE_S 5.0      /* sleep after the last request */
#define END_CPU_S 30.0      /* CPU after it: the leak sanitizer looks through the heap */

const char *ol_signal_name(int signal) {
    const char *name = sigabbrev_np(signal);
    return name == NULL ? "?" : name;
}

/* ------------------------------------------------------------------ clocks and memory */

/* Read a small file of /proc. */
static bool read_proc(pid_t pid, const char *name, char *text, size_t cap) {
    char path[64];
    ol_format(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, text, cap - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static uint64_t process_cpu_ns(pid_t pid) {
    clockid_t clock;
    struct timespec t;
    if (pid == 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) {
        return 0;
    }
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t child_cpu_ns(const ol_child *child) {
    uint64_t now = process_cpu_ns(child->pid);
    return child->usage.cpu_ns + (now > child->peak.cpu_ns ? now : child->peak.cpu_ns);
}

/* How long the threads of a process stood in line for a processor. */
static uint64_t queue_ns(pid_t pid) {
    char path[64];
    ol_format(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return 0;
    }
    uint64_t sum = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char name[300];
        char text[128];
        if (entry->d_name[0] == '.') {
            continue;
        }
        ol_format(name, sizeof name, "task/%s/schedstat", entry->d_name);
        if (read_proc(pid, name, text, sizeof text)) {
            char *end = NULL;
            (void)strtoull(text, &end, 10);
            sum += strtoull(end, NULL, 10);
        }
    }
    (void)closedir(dir);
    return sum;
}

static bool check_memory(ol_child *child) {
    char text[128];
    if (!read_proc(child->pid, "statm", text, sizeof text)) {
        return true;
    }
    char *end = NULL;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t address = strtoull(text, &end, 10) * page;
    uint64_t resident = strtoull(end, NULL, 10) * page;
    if (address > child->peak_address) {
        child->peak_address = address;
    }
    if (resident > child->peak.max_rss_bytes) {
        child->peak.max_rss_bytes = resident;
    }
    if (resident > child->limits->resident_max) {
        return ol_child_event(child, OL_RESOURCE, "holds %llu MiB of memory; %llu MiB are allowed",
                              (unsigned long long)(resident >> 20),
                              (unsigned long long)(child->limits->resident_max >> 20));
    }
    return true;
}

static double seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

/* The reference engine's CPU time for this test, asked for once and only now. */
static double allowed_cpu(ol_child *child) {
    if (child->baseline_s < 0) {
        child->baseline_s = child->baseline == NULL ? 0 : child->baseline(child->baseline_ctx);
        child->sample_ns = ol_now_ns();
    }
    double from_baseline = child->limits->cpu_factor * child->baseline_s;
    return from_baseline > child->limits->wall_s ? from_baseline : child->limits->wall_s;
}

/* What the test used before does not count on the way out. */
static bool check_end_clock(ol_child *child) {
    double idle = seconds(child->idle_ns - child->end_idle_ns);
    double cpu = seconds(child_cpu_ns(child) - child->end_cpu_ns);
    if (idle < END_IDLE_S && cpu < END_CPU_S) {
        return true;
    }
    return ol_child_event(
        child, OL_TIMEOUT,
        "did not end after its last request: it slept %.1f s and used %.1f s of CPU", idle, cpu);
}

static bool check_clock(ol_child *child) {
    const ol_limits *l = child->limits;
    if (child->is_ending) {
        return check_end_clock(child);
    }
    double wall = seconds(ol_now_ns() - child->start_ns);
    if (wall < l->wall_s) {
        return true;
    }
    double idle = seconds(child->idle_ns);
    double cpu = seconds(child_cpu_ns(child));
    if (idle >= l->wall_s) {
        return ol_child_event(
            child, OL_TIMEOUT,
            "did not answer: it slept %.1f s (used %.1f s of CPU); %.1f s are allowed", idle, cpu,
            l->wall_s);
    }
    if (cpu < l->wall_s && wall < l->wall_s * l->cpu_factor) {
        return true;
    }
    double allowed = allowed_cpu(child);
    if (cpu >= allowed || wall >= allowed * l->cpu_factor) {
        return ol_child_event(child, OL_TIMEOUT,
                              "used %.1f s of CPU in %.1f s; allowed are %.1f s, or %g times the "
                              "reference engine's %.2f s if that is more",
                              cpu, wall, l->wall_s, l->cpu_factor, child->baseline_s);
    }
    return true;
}

/* Sleep is time that passed while we waited and the child neither ran nor stood in line to run. */
static void charge_idle(ol_child *child, uint64_t now) {
    /* An answer that lies there while we stand in line ourselves is no sleep either. */
    uint64_t queued = queue_ns(getpid());
    uint64_t ours = queued > child->queue_ns ? queued - child->queue_ns : 0;
    child->queue_ns = queued;
    uint64_t busy = process_cpu_ns(child->pid) + queue_ns(child->pid);
    /* Between two waits the child has nothing to do; that is not sleep. */
    uint64_t since = child->sample_ns > child->wait_ns ? child->sample_ns : child->wait_ns;
    uint64_t passed = now - since;
    uint64_t worked = busy > child->busy_ns ? busy - child->busy_ns : 0;
    child->idle_ns += passed > worked + ours ? passed - worked - ours : 0;
    child->busy_ns = busy > child->busy_ns ? busy : child->busy_ns;
    child->sample_ns = now;
}

bool child_sample(ol_child *child) {
    uint64_t now = ol_now_ns();
    if (child->pid == 0 || now - child->sample_ns < SAMPLE_NS) {
        return true;
    }
    charge_idle(child, now);
    uint64_t cpu = process_cpu_ns(child->pid);
    child->peak.cpu_ns = cpu > child->peak.cpu_ns ? cpu : child->peak.cpu_ns;
    return child->engine->interactive || (check_memory(child) && check_clock(child));
}

/* ------------------------------------------------------------------ the end */

bool child_has_ended(ol_child *child) {
    siginfo_t info = {0};
    int options = WEXITED | WNOHANG | WNOWAIT;
    if (child->pid == 0) {
        return true;
    }
    return waitid(P_PID, (id_t)child->pid, &info, options) != 0 || info.si_pid == child->pid;
}

void child_kill(const ol_child *child) {
    if (child->pid > 0) {
        (void)kill(-child->pid, SIGKILL);
        (void)kill(child->pid, SIGKILL);
    }
}

/* Did it stand at its memory limit when it ended? Then a failed allocation is behind the signal. */
static bool was_full(const ol_child *child) {
    const ol_limits *l = child->limits;
    return child->peak.max_rss_bytes > l->resident_max / 10 * 8 ||
           (!child->engine->sanitized && child->peak_address > l->address_max / 10 * 9);
}

static void name_signal(ol_child *child, int signal) {
    const char *name = ol_signal_name(signal);
    if (signal == SIGSYS) {
        (void)ol_child_event(
            child, OL_INTEGRITY,
            "made a forbidden system call (exec, fork, socket, ptrace, a signal to "
            "another process or the like) and was ended by SIGSYS");
    } else if (signal == SIGXCPU) {
        (void)ol_child_event(child, OL_TIMEOUT, "was ended by the CPU limit (SIGXCPU)");
    } else if (signal == SIGXFSZ) {
        (void)ol_child_event(child, OL_RESOURCE, "wrote a file beyond the limit (SIGXFSZ)");
    } else if (was_full(child)) {
        (void)ol_child_event(child, OL_RESOURCE,
                             "was ended by SIG%s with %llu MiB of memory in use", name,
                             (unsigned long long)(child->peak.max_rss_bytes >> 20));
    } else if (signal == SIGBUS) {
        (void)ol_child_event(child, OL_CRASH,
                             "was ended by SIGBUS: it used bytes of a mapped file that are not "
                             "there (the file was cut), or an address that does not fit its type");
    } else {
        (void)ol_child_event(child, OL_CRASH, "was ended by SIG%s", name);
    }
}

static void name_end(ol_child *child, int status) {
    child->event.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    child->event.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (WIFSIGNALED(status)) {
        name_signal(child, WTERMSIG(status));
    } else if (WEXITSTATUS(status) == EXIT_SANITIZER && child->engine->sanitized) {
        (void)ol_child_event(child, OL_CRASH, "a sanitizer reported a fault; see its stderr");
    } else if (!child->is_ending) {
        (void)ol_child_event(child, OL_NO_RESULT, "ended with status %d before it answered",
                             WEXITSTATUS(status));
    } else if (WEXITSTATUS(status) != 0) {
        (void)ol_child_event(child, OL_NO_RESULT,
                             "ended with status %d after its last answer; 0 is needed",
                             WEXITSTATUS(status));
    }
}

void child_reap(ol_child *child) {
    if (child->pid == 0) {
        return;
    }
    int status = 0;
    struct rusage usage;
    pid_t pid = child->pid;
    pid_t got;
    do {
        got = wait4(pid, &status, 0, &usage);
    } while (got < 0 && errno == EINTR);
    if (got == pid) {
        uint64_t cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                          (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
        uint64_t rss = (uint64_t)usage.ru_maxrss * 1024;
        child->peak.max_rss_bytes =
            rss > child->peak.max_rss_bytes ? rss : child->peak.max_rss_bytes;
        child->usage.cpu_ns += cpu_us * 1000;
    }
    child->usage.max_rss_bytes = child->peak.max_rss_bytes > child->usage.max_rss_bytes
                                     ? child->peak.max_rss_bytes
                                     : child->usage.max_rss_bytes;
    child->peak.cpu_ns = 0;
    child->pid = 0;
    if (got == pid) {
        name_end(child, status);
    }
}

/* ------------------------------------------------------------------ what is left behind */

static bool is_zombie(pid_t pid) {
    char text[512];
    if (!read_proc(pid, "stat", text, sizeof text)) {
        return true;
    }
    /* The state follows the name in parentheses, which may hold anything. */
    const char *end = strrchr(text, ')');
    return end == NULL || end[1] == '\0' || end[2] == 'Z' || end[2] == 'X';
}

/* Our children as the kernel lists them. */
static size_t list_children(pid_t *pids, size_t cap) {
    char name[64];
    char text[8192];
    ol_format(name, sizeof name, "task/%d/children", (int)getpid());
    if (!read_proc(getpid(), name, text, sizeof text)) {
        return 0;
    }
    size_t n = 0;
    for (char *at = text; n < cap;) {
        char *end = NULL;
        long pid = strtol(at, &end, 10);
        if (end == at) {
            break;
        }
        pids[n++] = (pid_t)pid;
        at = end;
    }
    return n;
}

/* As that user, end all that it owns in one call: a process that forks faster than we can list has
 * no way out. */
static void kill_all_of(uid_t uid) {
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid((gid_t)uid, (gid_t)uid, (gid_t)uid) == 0 && setresuid(uid, uid, uid) == 0) {
            (void)kill(-1, SIGKILL);
        }
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

size_t ol_child_reap_orphans(uid_t uid) {
    enum { ROUNDS = 200, CAP = 256 };
    size_t n_alive = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[CAP];
        size_t n = list_children(pids, CAP);
        for (size_t i = 0; i < n; i++) {
            if (!is_zombie(pids[i])) {
                n_alive++;
                (void)kill(pids[i], SIGKILL);
            }
        }
        if (n_alive > 0 && uid != 0) {
            kill_all_of(uid);
        }
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (n == 0) {
            break;
        }
        (void)poll(NULL, 0, 5);
    }
    return n_alive;
}

void ol_child_end(ol_child *child) {
    child_close(&child->to);
    if (child->pid > 0 && !child->event.set) {
        child->is_ending = true;
        child->sample_ns = ol_now_ns();
        child->end_idle_ns = child->idle_ns;
        child->end_cpu_ns = child_cpu_ns(child);
        (void)child_pump(child, CHILD_WAIT_END, NULL, 0, NULL);
    }
    /* While the dead leader still holds the number of its group. */
    child_kill(child);
    child_reap(child);
    size_t n_left = ol_child_reap_orphans(child->uid);
    if (n_left > 0) {
        (void)ol_child_event(child, OL_INTEGRITY, "left %zu process%s behind; ended by the judge",
                             n_left, n_left == 1 ? "" : "es");
    }
    child_close(&child->from);
    child_close(&child->out);
    child_close(&child->err);
}

void ol_tail_text(const ol_tail *tail, char *text, size_t cap) {
    uint64_t n = tail->n_bytes < OL_TAIL_BYTES ? tail->n_bytes : OL_TAIL_BYTES;
    size_t len = 0;
    for (uint64_t i = tail->n_bytes - n; i < tail->n_bytes && len + 5 < cap; i++) {
        unsigned char c = (unsigned char)tail->bytes[i % OL_TAIL_BYTES];
        if (c == '\n' || (c >= 32 && c < 127 && c != '\\')) {
            text[len++] = (char)c;
        } else {
            ol_format(text + len, cap - len, "\\x%02x", c);
            len += 4;
        }
    }
    if (cap > 0) {
        text[len] = '\0';
    }
}
