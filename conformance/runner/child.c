/* child.c: start a process and talk with it; see child.h. */
#include "child_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TICK_MS 20                  /* at most this long without a look at clock and memory */
#define READ_STEP ((size_t)1 << 18) /* bytes taken from a pipe at once */
#define ANSWER_BYTES_MAX (256u << 20)
#define ANSWER_VALUES_MAX (1u << 21)
#define FD_STATUS 5 /* tells the judge whether exec worked; closed by it */
#define FD_PARK 16  /* descriptors are parked from here while 0 to 5 are laid out */

void ol_child_init(ol_child *child, const ol_engine *engine, const ol_limits *limits) {
    *child = (ol_child){.engine = engine,
                        .limits = limits,
                        .to = -1,
                        .from = -1,
                        .out = -1,
                        .err = -1,
                        .start_ns = ol_now_ns(),
                        .baseline_s = -1};
    child->event.exit_status = -1;
}

void child_close(int *fd) {
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

bool ol_child_event(ol_child *child, ol_class cls, const char *fmt, ...) {
    if (!child->event.set) {
        va_list args;
        va_start(args, fmt);
        (void)vsnprintf(child->event.text, sizeof child->event.text, fmt, args);
        va_end(args);
        child->event.cls = cls;
        child->event.set = true;
    }
    child_kill(child);
    return false;
}

/* ------------------------------------------------------------------ start */

typedef struct spawn_pipes {
    int request[2];
    int response[2];
    int out[2];
    int err[2];
    int status[2];
} spawn_pipes;

static int *const *pipe_list(spawn_pipes *p, int *list[5]) {
    list[0] = p->request;
    list[1] = p->response;
    list[2] = p->out;
    list[3] = p->err;
    list[4] = p->status;
    return list;
}

static bool open_pipes(spawn_pipes *p) {
    int *list[5];
    (void)pipe_list(p, list);
    for (size_t i = 0; i < 5; i++) {
        list[i][0] = -1;
        list[i][1] = -1;
    }
    for (size_t i = 0; i < 5; i++) {
        if (pipe2(list[i], O_CLOEXEC) != 0) {
            return false;
        }
    }
    return true;
}

static void close_pipes(spawn_pipes *p) {
    int *list[5];
    (void)pipe_list(p, list);
    for (size_t i = 0; i < 5; i++) {
        child_close(&list[i][0]);
        child_close(&list[i][1]);
    }
}

static void close_above(int last) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)last + 1, ~0u, 0u) == 0) {
        return;
    }
#endif
    long n = sysconf(_SC_OPEN_MAX);
    for (int fd = last + 1; fd < n; fd++) {
        (void)close(fd);
    }
}

/* Lay out descriptors 0 to 5: they may stand in each other's place, so all are first moved out of
 * the way. */
static bool lay_descriptors(const spawn_pipes *p, bool interactive) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int from[6] = {null, p->out[1], p->err[1], p->request[0], p->response[1], p->status[1]};
    for (int i = 0; i < 6; i++) {
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FD_PARK);
        if (from[i] < 0) {
            return false;
        }
    }
    for (int i = interactive ? 3 : 0; i < 6; i++) {
        if (dup2(from[i], i) != i) {
            return false;
        }
    }
    close_above(FD_STATUS);
    return fcntl(FD_STATUS, F_SETFD, FD_CLOEXEC) == 0;
}

#define N_ENV 16

/* The same few variables for every engine, in practice and in an exam. Run times that start a
 * thread for each processor are told to use one, so that memory and processes do not hang on the
 * size of the machine. */
static void fill_env(char *env[N_ENV + 1], char texts[2][4200], const char *dir,
                     const char *locale) {
    (void)snprintf(texts[0], sizeof texts[0], "HOME=%s", dir);
    (void)snprintf(texts[1], sizeof texts[1], "LC_ALL=%s", locale == NULL ? "C" : locale);
    static char *const fixed[] = {
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "TMPDIR=.",
        "TZ=UTC",
        "OMP_NUM_THREADS=1",
        "OPENBLAS_NUM_THREADS=1",
        "PYTHONDONTWRITEBYTECODE=1",
        /* The runtimes would set the size of core files, which the filter forbids and we did. */
        "ASAN_OPTIONS=exitcode=86:disable_coredump=0:detect_leaks=1:allocator_may_return_null=1",
        "LSAN_OPTIONS=exitcode=86",
        "UBSAN_OPTIONS=exitcode=86:print_stacktrace=1:halt_on_error=1",
        "TSAN_OPTIONS=exitcode=86:disable_coredump=0:halt_on_error=1",
        "MSAN_OPTIONS=exitcode=86:disable_coredump=0",
    };
    size_t n = 0;
    env[n++] = texts[0];
    env[n++] = texts[1];
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        env[n++] = fixed[i];
    }
    env[n] = NULL;
}

/* In the new process; does not return. */
static void become(const ol_engine *engine, const ol_cage *cage, const char *locale,
                   const spawn_pipes *pipes) {
    const char *step = "descriptors";
    char *env[N_ENV + 1];
    char texts[2][4200];
    /* Where to say what failed: when there are too few descriptors, it was not moved. */
    int status = pipes->status[1];
    if (lay_descriptors(pipes, engine->interactive)) {
        status = FD_STATUS;
        fill_env(env, texts, cage->dir, locale);
        char *path = ol_cage_exec_path(engine->argv[0]);
        /* Its own group, and no terminal; in a debugger the terminal is the point. */
        if (!engine->interactive) {
            (void)setsid();
        }
        step = path == NULL ? "memory" : ol_cage_enter(cage, path);
        if (step == NULL) {
            (void)execve(path, engine->argv, env);
            step = "exec";
        }
    }
    char text[256];
    int n = snprintf(text, sizeof text, "%s: %s", step, strerror(errno));
    if (n > 0 && !ol_write_all(status, text, (size_t)n)) {
        _exit(126);
    }
    _exit(127);
}

/* Empty when exec worked, else which step failed. */
static void read_status(int fd, char *text, size_t cap) {
    size_t len = 0;
    while (len + 1 < cap) {
        ssize_t n = read(fd, text + len, cap - 1 - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        len += (size_t)n;
    }
    text[len] = '\0';
}

static void adopt(ol_child *child, spawn_pipes *pipes) {
    child->to = pipes->request[1];
    child->from = pipes->response[0];
    child->out = pipes->out[0];
    child->err = pipes->err[0];
    pipes->request[1] = -1;
    pipes->response[0] = -1;
    pipes->out[0] = -1;
    pipes->err[0] = -1;
    int fds[4] = {child->to, child->from, child->out, child->err};
    for (size_t i = 0; i < 4; i++) {
        (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
}

bool ol_child_start(ol_child *child, const ol_cage *cage, const char *locale, ol_fault *fault) {
    spawn_pipes pipes;
    if (!open_pipes(&pipes)) {
        close_pipes(&pipes);
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "no pipe for the engine's process: %s",
                            strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        become(child->engine, cage, locale, &pipes);
    }
    child_close(&pipes.status[1]);
    char why[256] = "";
    if (pid > 0) {
        read_status(pipes.status[0], why, sizeof why);
        child->pid = pid;
        child->uid = cage->sandbox->own_uid && cage->sandbox->uid_range ? cage->uid : 0;
        child->is_ending = false;
        child->peak = (ol_usage){0};
        child->busy_ns = 0;
        child->sample_ns = ol_now_ns();
        adopt(child, &pipes);
    }
    close_pipes(&pipes);
    if (pid < 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "no process for the engine: %s",
                            strerror(errno));
    }
    if (why[0] == '\0') {
        return true;
    }
    child_reap(child);
    bool is_exec = strncmp(why, "exec: ", 6) == 0;
    bool is_ours = !is_exec || child->engine->kind != OL_ENGINE_TESTEE;
    return ol_fault_set(fault, is_ours ? OL_EXIT_INTERNAL : OL_EXIT_ENGINE,
                        "%s cannot be started: %s", child->engine->argv[0],
                        is_exec ? why + 6 : why);
}

/* ------------------------------------------------------------------ talk */

typedef struct pump_state {
    const uint8_t *send;
    size_t n_send;
    uint8_t head[OL_WIRE_HEAD_BYTES];
    size_t n_head;
    size_t n_frame; /* announced */
    bool have_frame;
} pump_state;

static void add_tail(ol_tail *tail, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tail->bytes[(tail->n_bytes + i) % OL_TAIL_BYTES] = (char)bytes[i];
    }
    tail->n_bytes += n;
}

/* Take what was printed; -1 closes at the end. Only the last bytes are kept, the rest is counted.
 */
static bool drain(ol_child *child, int *fd, ol_tail *tail) {
    static uint8_t block[1 << 16];
    for (;;) {
        ssize_t n = read(*fd, block, sizeof block);
        if (n < 0) {
            return errno == EAGAIN || errno == EINTR ? true : (child_close(fd), true);
        }
        if (n == 0) {
            child_close(fd);
            return true;
        }
        size_t skip = (size_t)n > OL_TAIL_BYTES ? (size_t)n - OL_TAIL_BYTES : 0;
        tail->n_bytes += skip;
        add_tail(tail, block + skip, (size_t)n - skip);
        if (child->stdout_tail.n_bytes + child->stderr_tail.n_bytes > child->limits->output_max) {
            return ol_child_event(child, OL_RESOURCE, "printed more than %llu MiB",
                                  (unsigned long long)(child->limits->output_max >> 20));
        }
        if ((size_t)n < sizeof block) {
            return true;
        }
    }
}

static bool send_some(ol_child *child, pump_state *s) {
    while (s->n_send > 0) {
        ssize_t n = write(child->to, s->send, s->n_send);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n < 0) {
            /* The reader is gone. If the process ended, that is the reason to tell. */
            child_close(&child->to);
            s->n_send = 0;
            return true;
        }
        s->send += n;
        s->n_send -= (size_t)n;
    }
    return true;
}

static bool take_head(ol_child *child, pump_state *s) {
    size_t n_frame = ol_wire_get_len(s->head);
    if (n_frame > OL_WIRE_FRAME_MAX) {
        return ol_child_event(child, OL_INTEGRITY,
                              "announced an answer of %zu bytes; a frame has at most %u", n_frame,
                              OL_WIRE_FRAME_MAX);
    }
    s->n_frame = n_frame;
    return true;
}

/* Read what is there of the answer, never a byte more. *ended: end of file. */
static bool receive_some(ol_child *child, pump_state *s, ol_wire_buf *frame, bool *ended) {
    while (!s->have_frame) {
        ssize_t n;
        if (s->n_head < OL_WIRE_HEAD_BYTES) {
            n = read(child->from, s->head + s->n_head, OL_WIRE_HEAD_BYTES - s->n_head);
        } else {
            size_t step = s->n_frame - frame->len;
            step = step < READ_STEP ? step : READ_STEP;
            if (!ol_wire_reserve(frame, frame->len + step)) {
                return ol_child_event(child, OL_HARNESS_ERROR,
                                      "no memory for an answer of %zu bytes", s->n_frame);
            }
            n = read(child->from, frame->bytes + frame->len, step);
        }
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n <= 0) {
            *ended = true;
            return true;
        }
        if (s->n_send > 0) {
            return ol_child_event(child, OL_INTEGRITY, "answered before the request was complete");
        }
        if (s->n_head < OL_WIRE_HEAD_BYTES) {
            s->n_head += (size_t)n;
            if (s->n_head == OL_WIRE_HEAD_BYTES && !take_head(child, s)) {
                return false;
            }
        } else {
            frame->len += (size_t)n;
        }
        s->have_frame = s->n_head == OL_WIRE_HEAD_BYTES && frame->len == s->n_frame;
    }
    return true;
}

/* Nobody asked: any byte is a forgery. */
static bool receive_nothing(ol_child *child, bool *ended) {
    uint8_t byte;
    ssize_t n = read(child->from, &byte, 1);
    if (n > 0) {
        return ol_child_event(child, OL_INTEGRITY, "wrote an answer that nobody asked for");
    }
    *ended = *ended || n == 0;
    return true;
}

/* The end of the answers while one was awaited: say how the process ended, or that it lives on
 * without them. */
static bool lost(ol_child *child) {
    for (int i = 0; i < 200 && !child_has_ended(child); i++) {
        (void)poll(NULL, 0, 10);
    }
    if (!child_has_ended(child)) {
        return ol_child_event(child, OL_NO_RESULT,
                              "closed its answers (descriptor 4) and lives on");
    }
    (void)(child->out >= 0 && drain(child, &child->out, &child->stdout_tail));
    (void)(child->err >= 0 && drain(child, &child->err, &child->stderr_tail));
    child_reap(child);
    return ol_child_event(child, OL_NO_RESULT, "ended without an answer");
}

static void wait_for_bytes(const ol_child *child, const pump_state *s) {
    struct pollfd fds[4] = {
        {.fd = child->from, .events = POLLIN},
        {.fd = child->out, .events = POLLIN},
        {.fd = child->err, .events = POLLIN},
        {.fd = s->n_send > 0 ? child->to : -1, .events = POLLOUT},
    };
    (void)poll(fds, 4, TICK_MS);
}

static bool pump_step(ol_child *child, child_wait what, pump_state *s, ol_wire_buf *frame,
                      bool *ended) {
    bool ok = s->n_send == 0 || send_some(child, s);
    if (ok && child->from >= 0) {
        ok = what == CHILD_WAIT_ANSWER ? receive_some(child, s, frame, ended)
                                       : receive_nothing(child, ended);
    }
    ok = ok && (child->out < 0 || drain(child, &child->out, &child->stdout_tail));
    return ok && (child->err < 0 || drain(child, &child->err, &child->stderr_tail));
}

bool child_pump(ol_child *child, child_wait what, const uint8_t *send, size_t n_send,
                ol_wire_buf *frame) {
    pump_state s = {.send = send, .n_send = n_send};
    bool ended = false;
    child->wait_ns = ol_now_ns();
    for (;;) {
        /* Before the step, so that what a process wrote with its last breath is still read. */
        bool gone = what == CHILD_WAIT_END && child_has_ended(child);
        if (!pump_step(child, what, &s, frame, &ended)) {
            return false;
        }
        if (what == CHILD_WAIT_ANSWER && s.have_frame) {
            return true;
        }
        if (what == CHILD_WAIT_ANSWER && (ended || child->to < 0)) {
            return lost(child);
        }
        if (gone) {
            return true;
        }
        if (ended) {
            child_close(&child->from);
        }
        wait_for_bytes(child, &s);
        if (!child_sample(child)) {
            return false;
        }
    }
}

/* One request as a frame: head and JSON in one block, so that it is one write. */
static uint8_t *frame_of(const json_t *request, size_t *n_bytes) {
    size_t n_json = json_dumpb(request, NULL, 0, JSON_COMPACT);
    uint8_t *bytes = n_json == 0 ? NULL : malloc(OL_WIRE_HEAD_BYTES + n_json);
    if (bytes == NULL) {
        return NULL;
    }
    if (json_dumpb(request, (char *)bytes + OL_WIRE_HEAD_BYTES, n_json, JSON_COMPACT) != n_json) {
        free(bytes);
        return NULL;
    }
    ol_wire_put_len(bytes, (uint32_t)n_json);
    *n_bytes = OL_WIRE_HEAD_BYTES + n_json;
    return bytes;
}

/* A test keeps its answers, and `{},` costs the judge four hundred bytes: without a limit an engine
 * could take through its judge what it may not take itself. Of 24 tests the largest needs 3 MiB and
 * 330,000 values. Counted before anything is built. */
static bool charge(ol_child *child, const ol_wire_buf *frame) {
    child->n_answer_bytes += frame->len;
    child->n_answer_values += ol_wire_values(frame->bytes, frame->len);
    return (child->n_answer_bytes <= ANSWER_BYTES_MAX &&
            child->n_answer_values <= ANSWER_VALUES_MAX) ||
           ol_child_event(child, OL_RESOURCE,
                          "has answered with %llu MiB and %llu values in this test; %u MiB and %u "
                          "values are allowed",
                          (unsigned long long)(child->n_answer_bytes >> 20),
                          (unsigned long long)child->n_answer_values, ANSWER_BYTES_MAX >> 20,
                          ANSWER_VALUES_MAX);
}

static json_t *parse_answer(ol_child *child, const ol_wire_buf *frame) {
    json_error_t error;
    if (!charge(child, frame)) {
        return NULL;
    }
    json_t *answer =
        json_loadb((const char *)frame->bytes, frame->len, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(answer)) {
        (void)ol_child_event(child, OL_INTEGRITY,
                             "answered with %zu bytes that are no JSON object: %s", frame->len,
                             answer == NULL ? error.text : "another kind of value");
        json_decref(answer);
        return NULL;
    }
    const json_t *seq = json_object_get(answer, "seq");
    if (!json_is_integer(seq) || json_integer_value(seq) != (json_int_t)child->seq) {
        char *got = json_dumps(seq, JSON_ENCODE_ANY);
        (void)ol_child_event(child, OL_INTEGRITY, "answered with seq %.40s where %llu was asked",
                             got == NULL ? "missing" : got, (unsigned long long)child->seq);
        free(got);
        json_decref(answer);
        return NULL;
    }
    return answer;
}

json_t *ol_child_ask(ol_child *child, json_t *request) {
    bool ended = false;
    if (child->pid == 0) {
        (void)ol_child_event(child, OL_NO_RESULT, "has no process any more");
        return NULL;
    }
    child->seq++;
    size_t n_bytes = 0;
    uint8_t *bytes = NULL;
    if (json_object_set_new(request, "seq", json_integer((json_int_t)child->seq)) == 0) {
        bytes = frame_of(request, &n_bytes);
    }
    if (bytes == NULL || n_bytes - OL_WIRE_HEAD_BYTES > OL_WIRE_FRAME_MAX) {
        free(bytes);
        (void)ol_child_event(child, OL_HARNESS_ERROR, "a request could not be written as a frame");
        return NULL;
    }
    ol_wire_buf frame = {0};
    json_t *answer = NULL;
    if (receive_nothing(child, &ended) &&
        child_pump(child, CHILD_WAIT_ANSWER, bytes, n_bytes, &frame)) {
        answer = parse_answer(child, &frame);
    }
    free(bytes);
    ol_wire_clear(&frame);
    return answer;
}
