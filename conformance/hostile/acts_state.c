/* acts_state.c: acts on time, memory and the state of the process, and looks where nothing is to be
 * seen. */
#include "hostile.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ------------------------------------------------------------------ time */

static void act_loop(void) {
    for (volatile unsigned long i = 0; i < 40000000000u; i++) {
    }
}

static void act_sleep(void) {
    for (int i = 0; i < 20; i++) {
        (void)sleep(1);
    }
}

/* Everything that can be blocked is, then it loops. */
static void act_deaf_loop(void) {
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    act_loop();
}

static void *thread_loop(void *arg) {
    act_loop();
    return arg;
}

/* Four threads burn what one would in four times the time. */
static void act_thread_loops(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        (void)pthread_create(&threads[i], NULL, thread_loop, NULL);
    }
    (void)pthread_join(threads[0], NULL);
}

/* A thread that is still at work when the answer is given and when the process ends: no harm. */
static void act_thread_left(void) {
    pthread_t thread;
    (void)pthread_create(&thread, NULL, thread_loop, NULL);
}

/* ------------------------------------------------------------------ memory */

static void act_eat_memory(void) {
    /* 16 GiB at most. */
    for (int i = 0; i < 1024; i++) {
        volatile char *block = malloc((size_t)16 << 20);
        for (size_t k = 0; k < (size_t)16 << 20; k += 1024) {
            block[k] = 1;
        }
    }
}

/* Asks for more than there is and does not look at the answer. */
static void act_reserve_memory(void) {
    for (int i = 0; i < 4096; i++) {
        volatile char *block = malloc((size_t)16 << 20);
        block[0] = 1;
    }
}

/* Twenty thousand frames of 4 KiB. */
static int dig(volatile int depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth == 0 ? frame[0] : dig(depth - 1) + frame[0];
}

static void act_overflow_stack(void) {
    (void)dig(20000);
}

/* ------------------------------------------------------------------ state */

static void act_round_up(void) {
    (void)fesetround(FE_UPWARD);
}

static void act_flush_denormals(void) {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

static void act_locale(void) {
    (void)setlocale(LC_ALL, "");
    (void)setenv("LC_ALL", "de_DE.UTF-8", 1);
}

/* The time of day is nobody's business here, the dynamic linker's words come too late. */
static void act_environment(void) {
    (void)setenv("TZ", "Asia/Tokyo", 1);
    tzset();
    (void)setenv("LD_PRELOAD", "/tmp/mine.so", 1);
    (void)clearenv();
}

static void act_change_directory(void) {
    (void)chdir("/");
}

/* ------------------------------------------------------------------ looks */

#ifndef HOSTILE_ROOT
#define HOSTILE_ROOT ""
#endif

/* If one of these can be opened, the engine ends as it does in no other case. */
static void look(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        _exit(7);
    }
}

static void act_look_at_goldens(void) {
    char path[128];
    look(HOSTILE_ROOT "/goldens/MANIFEST.json");
    (void)snprintf(path, sizeof path, "/proc/%d/cwd/goldens/MANIFEST.json", (int)getppid());
    look(path);
    look("../../goldens/MANIFEST.json");
}

static void act_look_at_parent(void) {
    static const char *const names[] = {"mem", "maps", "environ", "fd/3", "root/etc/shadow"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), names[i]);
        look(path);
    }
}

static void act_look_for_descriptors(void) {
    for (int fd = 5; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) {
            _exit(7);
        }
    }
}

extern char **environ;

static void act_look_at_environment(void) {
    for (char **at = environ; *at != NULL; at++) {
        if (strncmp(*at, "OL_", 3) == 0 || strstr(*at, "SECRET") != NULL ||
            strncmp(*at, "LD_", 3) == 0) {
            _exit(7);
        }
    }
}

const hostile_act hostile_state_acts[] = {
    {"loop", act_loop},
    {"sleep", act_sleep},
    {"deaf_loop", act_deaf_loop},
    {"thread_loops", act_thread_loops},
    {"thread_left", act_thread_left},
    {"eat_memory", act_eat_memory},
    {"reserve_memory", act_reserve_memory},
    {"overflow_stack", act_overflow_stack},
    {"round_up", act_round_up},
    {"flush_denormals", act_flush_denormals},
    {"locale", act_locale},
    {"environment", act_environment},
    {"change_directory", act_change_directory},
    {"look_at_goldens", act_look_at_goldens},
    {"look_at_parent", act_look_at_parent},
    {"look_for_descriptors", act_look_for_descriptors},
    {"look_at_environment", act_look_at_environment},
    {NULL, NULL},
};
