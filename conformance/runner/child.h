/* child.h: one process of an engine, the talk with it, and how it ended.
 *
 * The judge never blocks on a child: one poll loop sends, receives, drains the captured output and
 * looks at clock and memory. Whatever goes wrong ends as an event (class and sentence), the first
 * one stands, and the child is killed. Nothing in here knows about tests.
 *
 * Clocks: a child is charged its own CPU time. Waiting for a processor is not charged, sleeping is.
 * So a loaded machine does not fail a right engine, and a sleeping engine cannot hide. */
#ifndef OL_CHILD_H
#define OL_CHILD_H

#include "engine.h"
#include "sandbox.h"
#include "wire.h"

#include <sys/types.h>

typedef struct ol_event {
    bool set;
    ol_class cls;
    char text[768];
    int exit_status; /* -1: did not exit by itself */
    int signal;      /* 0: not ended by a signal */
} ol_event;

#define OL_TAIL_BYTES 2048u

/* The end of what was printed, the rest is counted. */
typedef struct ol_tail {
    char bytes[OL_TAIL_BYTES];
    uint64_t n_bytes; /* in all; the tail is a ring of the last ones */
} ol_tail;

/* Time and memory of all children of a test together. */
typedef struct ol_usage {
    uint64_t cpu_ns;
    uint64_t max_rss_bytes;
} ol_usage;

/* Called when the wall limit is over: the CPU time in seconds that the reference engine needs for
 * the same test; 0 when it is not known. */
typedef double ol_baseline_fn(void *ctx);

typedef struct ol_child {
    const ol_engine *engine;
    const ol_limits *limits;
    pid_t pid; /* 0: none */
    uid_t uid; /* that is its alone; 0: it shares one */
    int to;    /* requests, -1 when closed */
    int from;
    int out;
    int err;
    uint64_t seq; /* of the last request */
    ol_tail stdout_tail;
    ol_tail stderr_tail;
    ol_event event;
    uint64_t n_answer_bytes;  /* of the whole test */
    uint64_t n_answer_values; /* the same */
    ol_usage usage;           /* of children that ended */
    ol_usage peak;            /* of the living one, by samples */
    uint64_t start_ns;        /* of the whole test */
    uint64_t idle_ns;         /* slept while we waited for it */
    uint64_t wait_ns;         /* when this wait began */
    uint64_t sample_ns;       /* when the last sample was taken */
    uint64_t busy_ns;         /* CPU and queue time at the last sample */
    uint64_t queue_ns;        /* the judge's own time in the queue, then */
    bool is_ending;           /* the requests are closed; a clock of its own runs from there */
    uint64_t end_idle_ns;     /* idle_ns and CPU time at that moment */
    uint64_t end_cpu_ns;
    double baseline_s; /* < 0: not asked yet */
    ol_baseline_fn *baseline;
    void *baseline_ctx;
    uint64_t peak_address; /* bytes of address space, largest sample */
} ol_child;

void ol_child_init(ol_child *child, const ol_engine *engine, const ol_limits *limits);

/* Start a process in its directory; the cage names directory, uid and sandbox. locale: LC_ALL, NULL
 * for "C". false: an event, or the fault that the judge could not do it. */
bool ol_child_start(ol_child *child, const ol_cage *cage, const char *locale, ol_fault *fault);

/* Send a request (seq is added) and return its response, a new reference; NULL with the event. */
json_t *ol_child_ask(ol_child *child, json_t *request);

/* Close the requests, wait for the end, look for what was left behind. With an event set the
 * process is killed. A clean child has no event after this. */
void ol_child_end(ol_child *child);

/* Note an event and kill the process; the first event stands. Always false. */
bool ol_child_event(ol_child *child, ol_class cls, const char *fmt, ...) OL_FORMAT(3, 4);

/* End every process that came to us as the next of kin of a dead child, and all of `uid` when it is
 * not 0; how many there were. */
size_t ol_child_reap_orphans(uid_t uid);

/* The tail in order, printable: other bytes as \xNN. Cut to cap. */
void ol_tail_text(const ol_tail *tail, char *text, size_t cap);

const char *ol_signal_name(int signal);

#endif
