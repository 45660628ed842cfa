/* client.c: requests and responses as a test sees them; see test.h.
 *
 * A response that is no answer never comes back to the test: the event is noted and the test is
 * left. Violations that the testee reports do not end it; they are a matter of integrity when it is
 * judged. What it says is `wrong` with an answer fails the next check. */
#include "child_private.h"
#include "context.h"

#include "wire.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A frame of calls holds at most this much, so that neither side needs much memory for a long list.
 */
#define LIST_CALLS_MAX 4096u
#define LIST_BYTES_MAX ((size_t)1 << 20)
#define VIOLATIONS_MAX 16u

/* ------------------------------------------------------------------ shape of a response */

static bool is_status(const char *name) {
    static const char *const names[] = {"INVALID",  "NOMEM",     "IO",    "FORMAT",  "UNSUPPORTED",
                                        "CAPACITY", "NOT_FOUND", "STATE", "INTERNAL"};
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* NULL when the response is one; else what is wrong with it. */
static const char *fault_of(const json_t *response) {
    const json_t *ok = json_object_get(response, "ok");
    if (!json_is_boolean(ok)) {
        return "without `ok`";
    }
    if (json_is_true(ok)) {
        return NULL;
    }
    const json_t *offset = json_object_get(response, "offset");
    if (!is_status(json_string_value(json_object_get(response, "status")))) {
        return "a refusal without a status of the page";
    }
    if (offset != NULL && !json_is_null(offset) && !json_is_integer(offset)) {
        return "a refusal whose offset is neither an integer nor null";
    }
    if (!json_is_string(json_object_get(response, "text"))) {
        return "a refusal without a text";
    }
    return NULL;
}

static void note_wrong(ol_test *t, const json_t *response) {
    const char *text = json_string_value(json_object_get(response, "wrong"));
    if (text != NULL && t->wrong[0] == '\0') {
        ol_format(t->wrong, sizeof t->wrong, "%s", text);
    }
}

void ol_note_violations(ol_test *t, const json_t *response) {
    const json_t *list = json_object_get(response, "violations");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *text = json_array_get(list, i);
        if (json_is_string(text) && json_array_size(t->violations) < VIOLATIONS_MAX) {
            (void)json_array_append(t->violations, text);
        }
    }
}

static void check_shape(ol_test *t, const char *op, const json_t *response) {
    const char *fault = fault_of(response);
    if (fault != NULL) {
        (void)ol_child_event(&t->child, OL_NO_RESULT, "answered `%s` with %s", op, fault);
        ol_leave(t);
    }
    ol_note_violations(t, response);
    note_wrong(t, response);
}

/* ------------------------------------------------------------------ calls */

static const json_t *call(ol_test *t, const char *op, json_t *request) {
    json_t *response = ol_child_ask(&t->child, request);
    json_decref(request);
    if (response == NULL) {
        ol_leave(t);
    }
    const json_t *kept = ol_keep(t, response);
    check_shape(t, op, kept);
    return kept;
}

/* {"op": op, ...args}; steals args. */
static json_t *request_of(ol_test *t, const char *op, json_t *args) {
    json_t *request = json_pack("{s:s}", "op", op);
    int failed = args == NULL || request == NULL ? -1 : json_object_update(request, args);
    json_decref(args);
    if (failed != 0) {
        json_decref(request);
        ol_leave_fault(t, OL_EXIT_INTERNAL, "%s: the request `%s` cannot be built", t->def->name,
                       op);
    }
    return request;
}

static json_t *vpack(ol_test *t, const char *op, const char *fmt, va_list args) {
    json_error_t error;
    json_t *object = json_vpack_ex(&error, 0, fmt, args);
    if (object == NULL) {
        ol_leave_fault(t, OL_EXIT_INTERNAL, "%s: the arguments of `%s` cannot be built: %s",
                       t->def->name, op, error.text);
    }
    return object;
}

const json_t *ol_call_object(ol_test *t, const char *op, json_t *args) {
    return call(t, op, request_of(t, op, args));
}

const json_t *ol_call(ol_test *t, const char *op, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    json_t *object = vpack(t, op, fmt, args);
    va_end(args);
    return ol_call_object(t, op, object);
}

/* ------------------------------------------------------------------ lists */

struct ol_list {
    ol_test *t;
    json_t **calls; /* [n], owned until they are sent */
    size_t n;
    size_t cap;
};

ol_list *ol_list_new(ol_test *t) {
    ol_list *list = ol_alloc(t, sizeof *list);
    list->t = t;
    return list;
}

size_t ol_list_len(const ol_list *list) {
    return list->n;
}

void ol_list_add(ol_list *list, const char *op, const char *fmt, ...) {
    if (list->n == list->cap) {
        size_t cap = list->cap == 0 ? 64 : 2 * list->cap;
        json_t **calls = ol_alloc(list->t, cap * sizeof(json_t *));
        if (list->n > 0) {
            memcpy(calls, list->calls, list->n * sizeof(json_t *));
        }
        list->calls = calls;
        list->cap = cap;
    }
    va_list args;
    va_start(args, fmt);
    json_t *object = vpack(list->t, op, fmt, args);
    va_end(args);
    json_t *request = request_of(list->t, op, object);
    (void)ol_keep(list->t, request);
    list->calls[list->n++] = request;
}

static bool is_reference(const json_t *value, size_t *index, const char **key) {
    const json_t *result = json_object_get(value, "result");
    const json_t *name = json_object_get(value, "key");
    if (json_object_size(value) != 2 || !json_is_integer(result) || !json_is_string(name)) {
        return false;
    }
    *index = (size_t)json_integer_value(result);
    *key = json_string_value(name);
    return true;
}

/* A reference counts from the list's start; a frame may begin later. What lies before the frame is
 * known by now and is put in place of the reference; what lies in it is counted from the frame's
 * start. */
static void resolve_references(json_t *request, size_t frame_start, const json_t **results) {
    const char *name;
    json_t *value;
    json_object_foreach(request, name, value) {
        size_t index = 0;
        const char *key = NULL;
        if (!is_reference(value, &index, &key)) {
            continue;
        }
        if (index >= frame_start) {
            (void)json_object_set_new(value, "result",
                                      json_integer((json_int_t)(index - frame_start)));
            continue;
        }
        json_t *known = json_object_get(results[index], key);
        /* A call that was refused has no handle; -1 is the handle of nothing. */
        (void)json_object_set_new(request, name,
                                  known == NULL ? json_integer(-1) : json_incref(known));
    }
}

/* Send the calls from `start` on that fit one frame; how many they were. */
static size_t run_frame(ol_list *list, size_t start, const json_t **results) {
    ol_test *t = list->t;
    json_t *calls = json_array();
    size_t n_bytes = 0;
    size_t n = 0;
    while (start + n < list->n && n < LIST_CALLS_MAX) {
        json_t *request = list->calls[start + n];
        size_t size = json_dumpb(request, NULL, 0, JSON_COMPACT);
        if (n > 0 && n_bytes + size > LIST_BYTES_MAX) {
            break;
        }
        n_bytes += size;
        resolve_references(request, start, results);
        (void)json_array_append(calls, request);
        n++;
    }
    const json_t *answer = call(t, "calls", json_pack("{s:s, s:o}", "op", "calls", "calls", calls));
    const json_t *got = json_object_get(answer, "results");
    if (!ol_ok(answer) || json_array_size(got) != n) {
        (void)ol_child_event(&t->child, OL_NO_RESULT, "answered %zu calls with %zu results", n,
                             json_array_size(got));
        ol_leave(t);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *result = json_array_get(got, i);
        const char *op = json_string_value(json_object_get(list->calls[start + i], "op"));
        check_shape(t, op, result);
        results[start + i] = result;
    }
    return n;
}

const json_t **ol_list_run(ol_list *list) {
    const json_t **results = ol_alloc(list->t, list->n * sizeof(json_t *) + 1);
    for (size_t start = 0; start < list->n;) {
        start += run_frame(list, start, results);
    }
    list->n = 0;
    return results;
}

/* ------------------------------------------------------------------ processes */

json_t *ol_hello(ol_child *child) {
    json_t *request = json_pack("{s:s}", "op", "hello");
    json_t *response = ol_child_ask(child, request);
    json_decref(request);
    const char *fault = response == NULL ? NULL : fault_of(response);
    if (fault != NULL) {
        (void)ol_child_event(child, OL_NO_RESULT, "answered `hello` with %s", fault);
        json_decref(response);
        return NULL;
    }
    return response;
}

static bool start_child(ol_test *t, const char *locale) {
    const ol_setup *setup = t->setup;
    const ol_engine *engine = t->child.engine;
    unsigned number = (unsigned)t->index * 32 + t->n_starts++ % 32;
    ol_cage cage = {.sandbox = &setup->sandbox,
                    .limits = &setup->limits,
                    .uid = ol_sandbox_uid(&setup->sandbox, number),
                    .dir = t->dir,
                    .readable = {engine->file[0] == '\0' ? NULL : engine->file,
                                 engine->host[0] == '\0' ? NULL : engine->host,
                                 engine->read_dir[0] == '\0' ? NULL : engine->read_dir},
                    .sanitized = engine->sanitized,
                    .may_exec = engine->may_exec,
                    .unfiltered = engine->interactive,
                    .wide_reads = engine->kind == OL_ENGINE_TESTEE || engine->may_exec};
    ol_format(t->dir, sizeof t->dir, "%s/w%d-%02zu-%u", setup->paths.run_dir, (int)getpid(),
              t->index + 1, t->n_starts);
    if (!ol_dir_make(setup, t->dir, cage.uid, &t->fault)) {
        return false;
    }
    t->dir_fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (t->dir_fd < 0) {
        return ol_fault_set(&t->fault, OL_EXIT_INTERNAL, "cannot open %s", t->dir);
    }
    if (!ol_child_start(&t->child, &cage, locale, &t->fault)) {
        return false;
    }
    json_t *hello = ol_hello(&t->child);
    if (hello == NULL) {
        return false;
    }
    json_decref(t->hello);
    t->hello = hello;
    ol_note_violations(t, hello);
    if (!ol_ok(hello)) {
        /* The probe asked the same before; an engine that changes its mind gives no result. */
        const char *text = json_string_value(json_object_get(hello, "text"));
        (void)ol_child_event(&t->child, OL_NO_RESULT, "refused `hello`: %s", text);
    }
    return !t->child.event.set;
}

bool ol_start(ol_test *t) {
    return start_child(t, NULL);
}

void ol_stop(ol_test *t) {
    ol_child_end(&t->child);
    child_close(&t->dir_fd);
    if (t->dir[0] != '\0') {
        ol_dir_remove(t->dir);
        t->dir[0] = '\0';
    }
}

static void restart(ol_test *t, const char *locale) {
    ol_stop(t);
    if (t->child.event.set || !start_child(t, locale)) {
        ol_leave(t);
    }
}

void ol_restart(ol_test *t) {
    restart(t, NULL);
}

bool ol_restart_locale(ol_test *t, const char *locale) {
    locale_t there = newlocale(LC_ALL_MASK, locale, (locale_t)0);
    if (there == (locale_t)0) {
        return false;
    }
    freelocale(there);
    restart(t, locale);
    return true;
}

/* ------------------------------------------------------------------ numbers into requests */

json_t *ol_u64(uint64_t v) {
    return ol_wire_u64(v);
}

json_t *ol_f64(double v) {
    return ol_wire_f64(v);
}

json_t *ol_u8(const uint8_t *v, size_t n) {
    return ol_wire_array("u8", v, n);
}

json_t *ol_i8(const int8_t *v, size_t n) {
    return ol_wire_array("i8", v, n);
}

json_t *ol_u16(const uint16_t *v, size_t n) {
    return ol_wire_array("u16", v, n);
}

json_t *ol_u32(const uint32_t *v, size_t n) {
    return ol_wire_array("u32", v, n);
}

json_t *ol_u64s(const uint64_t *v, size_t n) {
    return ol_wire_array("u64", v, n);
}

json_t *ol_f32(const float *v, size_t n) {
    return ol_wire_array("f32", v, n);
}

/* ------------------------------------------------------------------ numbers out of responses */

bool ol_ok(const json_t *response) {
    return json_is_true(json_object_get(response, "ok"));
}

static OL_NORETURN void no_result(ol_test *t, const json_t *response, const char *key,
                                  const char *what) {
    if (!ol_ok(response)) {
        const char *text = json_string_value(json_object_get(response, "text"));
        ol_leave_fault(t, OL_EXIT_INTERNAL, "%s looked for `%s` in a refusal (%s)", t->def->name,
                       key, text == NULL ? "" : text);
    }
    bool missing = json_object_get(response, key) == NULL;
    (void)ol_child_event(
        &t->child, OL_NO_RESULT,
        missing ? "answered without `%s`, %s" : "answered with a `%s` that is not %s", key, what);
    ol_leave(t);
}

int64_t ol_int(ol_test *t, const json_t *response, const char *key) {
    const json_t *value = json_object_get(response, key);
    if (json_is_boolean(value)) {
        return json_is_true(value) ? 1 : 0;
    }
    if (!json_is_integer(value)) {
        no_result(t, response, key, "an integer");
    }
    return (int64_t)json_integer_value(value);
}

uint64_t ol_res_u64(ol_test *t, const json_t *response, const char *key) {
    const char *text = json_string_value(json_object_get(response, key));
    uint64_t value = 0;
    if (text == NULL || !ol_wire_u64_parse(text, &value)) {
        no_result(t, response, key, "16 hex digits");
    }
    return value;
}

double ol_res_f64(ol_test *t, const json_t *response, const char *key) {
    uint64_t bits = ol_res_u64(t, response, key);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

const char *ol_res_text(ol_test *t, const json_t *response, const char *key) {
    const char *text = json_string_value(json_object_get(response, key));
    if (text == NULL) {
        no_result(t, response, key, "a string");
    }
    return text;
}

static void *res_array(ol_test *t, const json_t *response, const char *key, const char *type,
                       size_t *n) {
    const json_t *value = json_object_get(response, key);
    char what[32];
    ol_format(what, sizeof what, "an array of %s", type);
    if (!ol_wire_array_len(value, type, n)) {
        no_result(t, response, key, what);
    }
    void *data = ol_alloc(t, *n * ol_wire_type_bytes(type) + 1);
    if (!ol_wire_array_get(value, type, data, *n)) {
        no_result(t, response, key, what);
    }
    return data;
}

uint8_t *ol_res_u8s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "u8", n);
}

int8_t *ol_res_i8s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "i8", n);
}

uint16_t *ol_res_u16s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "u16", n);
}

uint32_t *ol_res_u32s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "u32", n);
}

float *ol_res_f32s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "f32", n);
}

double *ol_res_f64s(ol_test *t, const json_t *response, const char *key, size_t *n) {
    return res_array(t, response, key, "f64", n);
}
