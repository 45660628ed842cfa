/* acts_output.c: acts on descriptors and files: forged answers, floods, what others keep. */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Right answers for a reader of results, on every way out. */
static const char forged[] =
    "{\"kind\":\"test\",\"name\":\"hand_example_sampling\",\"class\":\"pass\"}\n"
    "1..24\nok 1 - hand_example_sampling\n24 pass; verdict pass\n";

static void put(int fd, const void *bytes, size_t n) {
    if (write(fd, bytes, n) != (ssize_t)n) {
        return;
    }
}

static void act_print_and_exit(void) {
    put(1, forged, sizeof forged - 1);
    put(2, forged, sizeof forged - 1);
    _exit(0);
}

static void act_write_all(void) {
    for (int fd = 0; fd < 1024; fd++) {
        put(fd, forged, sizeof forged - 1);
    }
}

/* A well-formed frame for a question that was not asked. */
static void put_frame(const char *json) {
    unsigned n = (unsigned)strlen(json);
    unsigned char head[4] = {(unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16),
                             (unsigned char)(n >> 24)};
    put(4, head, sizeof head);
    put(4, json, n);
}

static void act_other_seq(void) {
    put_frame("{\"seq\": 9999, \"ok\": true, \"id\": 3}");
}

/* The answers to everything that could still be asked. */
static void act_answer_ahead(void) {
    for (int seq = 2; seq < 26; seq++) {
        char text[64];
        (void)snprintf(text, sizeof text, "{\"seq\": %d, \"ok\": true, \"id\": 3}", seq);
        put_frame(text);
    }
}

static void act_flood(void) {
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    /* Ten thousand MiB, if nobody stops it. */
    for (int i = 0; i < 160000; i++) {
        if (write(i % 2 + 1, block, sizeof block) < 0 && errno != EINTR) {
            return;
        }
    }
}

static void act_print_some(void) {
    static char block[1 << 16];
    memset(block, 0x01, sizeof block);
    for (int i = 0; i < 16; i++) {
        put(1, block, sizeof block);
    }
    put(2, "\x1b[31m<b>&amp;]]>\xff\xfe\n", 17);
}

static void act_close_all(void) {
    for (int fd = 0; fd < 64; fd++) {
        (void)close(fd);
    }
}

static void act_close_answers(void) {
    (void)close(4);
    (void)sleep(5);
}

static void act_big_file(void) {
    static char block[1 << 20];
    int fd = open("big", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (int i = 0; i < 64; i++) {
        put(fd, block, sizeof block);
    }
}

#ifndef HOSTILE_LEFT
#define HOSTILE_LEFT "ol-hostile-left"
#endif

static void act_leave_files(void) {
    static const char *const places[] = {"/tmp/" HOSTILE_LEFT, "/var/tmp/" HOSTILE_LEFT,
                                         "/dev/shm/" HOSTILE_LEFT, "left", "../left"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int fd = open(places[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd >= 0) {
            put(fd, "x", 1);
            (void)close(fd);
        }
    }
}

/* Five hundred folders in each other, the last one closed to everybody. */
static void act_dig_deep(void) {
    for (int i = 0; i < 500; i++) {
        if (mkdir("d", i == 499 ? 0 : 0700) != 0 || chdir("d") != 0) {
            return;
        }
    }
}

/* What the judge puts there later would go to where the link points. */
static void act_plant_links(void) {
    (void)symlink("/tmp", "models");
    (void)mkdir("model.safetensors", 0700);
}

const hostile_act hostile_output_acts[] = {
    {"print_and_exit", act_print_and_exit},
    {"write_all", act_write_all},
    {"other_seq", act_other_seq},
    {"answer_ahead", act_answer_ahead},
    {"flood", act_flood},
    {"print_some", act_print_some},
    {"close_all", act_close_all},
    {"close_answers", act_close_answers},
    {"big_file", act_big_file},
    {"leave_files", act_leave_files},
    {"dig_deep", act_dig_deep},
    {"plant_links", act_plant_links},
    {NULL, NULL},
};
