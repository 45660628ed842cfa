/* acts_process.c: acts that leave the process, or would. */
#include "hostile.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void act_exec(void) {
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    (void)execve("/bin/true", argv, NULL);
}

static void act_execveat(void) {
    char *const argv[] = {(char *)(uintptr_t) "true", NULL};
    char *const env[] = {NULL};
    int fd = open("/bin/true", O_PATH | O_CLOEXEC);
    (void)syscall(SYS_execveat, fd, "", argv, env, AT_EMPTY_PATH);
    (void)syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, env, 0);
}

/* Itself again, with a library of its own before all others. */
static void act_preload_and_exec(void) {
    char *const argv[] = {(char *)(uintptr_t) "ol-host", NULL};
    char *const env[] = {(char *)(uintptr_t) "LD_PRELOAD=./mine.so", NULL};
    (void)execve("/proc/self/exe", argv, env);
}

static void act_fork(void) {
    pid_t pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    (void)waitpid(pid, NULL, 0);
}

static void act_vfork(void) {
    /* As the C library makes it, without its wrapper's rules. */
    long pid = syscall(SYS_vfork);
    if (pid == 0) {
        (void)syscall(SYS_exit, 0);
    }
}

/* A process that outlives its parent in a session of its own, for ten seconds at most. */
static void act_daemon(void) {
    if (fork() == 0) {
        (void)setsid();
        if (fork() == 0) {
            (void)sleep(10);
        }
        _exit(0);
    }
    (void)usleep(50000);
}

/* Twenty processes that each make another for as long as they can, five seconds at most. */
static void act_fork_many(void) {
    for (int i = 0; i < 20; i++) {
        if (fork() == 0) {
            (void)setsid();
            for (int k = 0; k < 50; k++) {
                if (fork() > 0) {
                    _exit(0);
                }
                (void)usleep(100000);
            }
            _exit(0);
        }
    }
}

static void act_kill_parent(void) {
    (void)kill(getppid(), SIGKILL);
}

static void act_stop_parent(void) {
    (void)kill(getppid(), SIGSTOP);
}

static void act_queue_signal(void) {
    union sigval value = {.sival_int = 1};
    (void)sigqueue(getppid(), SIGTERM, value);
}

/* More often than a stopped judge is woken. */
static void act_stop_parent_often(void) {
    for (int i = 0; i < 100; i++) {
        (void)kill(getppid(), SIGSTOP);
        (void)usleep(60000);
    }
}

/* A fault that the judge did not make: a bug of its own would be nobody's score. */
static void act_fault_parent(void) {
    (void)kill(getppid(), SIGSEGV);
    (void)usleep(50000);
}

static void act_ptrace(void) {
    (void)ptrace(PTRACE_SEIZE, getppid(), NULL, NULL);
}

static void act_read_parent(void) {
    char byte = 0;
    struct iovec to = {.iov_base = &byte, .iov_len = 1};
    struct iovec from = {.iov_base = &byte, .iov_len = 1};
    (void)process_vm_readv(getppid(), &to, 1, &from, 1, 0);
}

static void act_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0) {
        (void)close(fd);
    }
}

static void act_namespace(void) {
    (void)unshare(CLONE_NEWUSER);
}

static void act_io_uring(void) {
    /* Refused without a fuss, since run times try it: an engine that goes on is not to blame. */
    char params[120] = {0};
    if (syscall(SYS_io_uring_setup, 1, params) >= 0) {
        _exit(7);
    }
}

static void act_raise_limits(void) {
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) == 0 || setrlimit(RLIMIT_CPU, &limit) == 0) {
        _exit(7);
    }
}

static void act_exit_0(void) {
    exit(0);
}

static void act_abort(void) {
    abort();
}

static void act_segv(void) {
    (void)raise(SIGSEGV);
}

static void act_kill_self(void) {
    (void)kill(getpid(), SIGTERM);
}

/* The last word of a signal handler. */
static void leave_0(int signal) {
    (void)signal;
    _exit(0);
}

static void act_handler_exits(void) {
    (void)signal(SIGSEGV, leave_0);
    (void)raise(SIGSEGV);
}

const hostile_act hostile_process_acts[] = {
    {"exec", act_exec},
    {"execveat", act_execveat},
    {"fork", act_fork},
    {"vfork", act_vfork},
    {"daemon", act_daemon},
    {"fork_many", act_fork_many},
    {"kill_parent", act_kill_parent},
    {"stop_parent", act_stop_parent},
    {"stop_parent_often", act_stop_parent_often},
    {"fault_parent", act_fault_parent},
    {"preload_and_exec", act_preload_and_exec},
    {"queue_signal", act_queue_signal},
    {"ptrace_parent", act_ptrace},
    {"read_parent", act_read_parent},
    {"socket", act_socket},
    {"namespace", act_namespace},
    {"io_uring", act_io_uring},
    {"raise_limits", act_raise_limits},
    {"exit_0", act_exit_0},
    {"abort", act_abort},
    {"segv", act_segv},
    {"kill_self", act_kill_self},
    {"handler_exits", act_handler_exits},
    {NULL, NULL},
};
