/* testee.c: a program that speaks the protocol itself and breaks it in one way, the act that it is
 * built with (act.c). It knows no op but `hello`, and answers every other with a refusal, so the
 * honest one among them fails its tests and does nothing worse. */
#include "hostile.h"

#include "../runner/wire.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is(const char *name) {
    return hostile_is(name);
}

static void put(const void *bytes, size_t n) {
    if (write(OL_WIRE_FD_RESPONSE, bytes, n) != (ssize_t)n) {
        _exit(9);
    }
}

static void put_head(uint32_t n) {
    uint8_t head[OL_WIRE_HEAD_BYTES];
    ol_wire_put_len(head, n);
    put(head, sizeof head);
}

static void put_text(const char *text) {
    put_head((uint32_t)strlen(text));
    put(text, strlen(text));
}

static json_t *hello(json_int_t seq) {
    int abi = is("other_abi") ? 2 << 16 : 1 << 16;
    return json_pack("{s:I, s:b, s:s, s:s, s:s, s:i, s:[s], s:b}", "seq", seq, "ok", 1, "name",
                     "hostile", "version", "1", "language", "C", "abi", abi, "isas", "portable",
                     "threads", 0);
}

static json_t *refusal(json_int_t seq) {
    return json_pack("{s:I, s:b, s:s, s:n, s:s}", "seq", seq, "ok", 0, "status", "INTERNAL",
                     "offset", "text", "no such op");
}

static void put_slowly(const char *text) {
    put_head((uint32_t)strlen(text));
    for (int i = 0; i < 20; i++) {
        put(&text[i], 1);
        (void)sleep(1);
    }
}

/* Three million empty objects: nine MiB that would cost whoever builds them a GiB. */
static void put_many_values(json_int_t seq) {
    char begin[64];
    const size_t n = 3000000;
    char *values = malloc(3 * n + 1);
    if (values == NULL) {
        _exit(9);
    }
    for (size_t i = 0; i < 3 * n; i++) {
        values[i] = "{},"[i % 3];
    }
    values[3 * n - 1] = ']';
    values[3 * n] = '}';
    int n_begin =
        snprintf(begin, sizeof begin, "{\"seq\": %lld, \"ok\": true, \"x\": [", (long long)seq);
    put_head((uint32_t)(n_begin + 3 * (int)n + 1));
    put(begin, (size_t)n_begin);
    put(values, 3 * n + 1);
    free(values);
}

/* The first question after hello is answered wrongly; false: it still wants its right answer. */
static bool misbehave(json_int_t seq) {
    char text[256];
    if (is("huge_frame")) {
        put_head(UINT32_MAX);
    } else if (is("many_values")) {
        put_many_values(seq);
    } else if (is("slow_frame")) {
        put_slowly("{\"seq\": 2, \"ok\": false, \"status\": \"INTERNAL\", \"text\": \"slow\"}");
    } else if (is("short_frame")) {
        put_head(1000);
        put("{", 1);
        _exit(0);
    } else if (is("no_json")) {
        put_text("ok ok ok");
    } else if (is("deep_json")) {
        static char deep[200001];
        memset(deep, '[', sizeof deep - 1);
        put_text(deep);
    } else if (is("an_array")) {
        put_text("[1, 2]");
    } else if (is("duplicate_key")) {
        (void)snprintf(text, sizeof text, "{\"seq\": %lld, \"ok\": true, \"ok\": false}",
                       (long long)seq);
        put_text(text);
    } else if (is("other_seq")) {
        json_t *answer = refusal(seq + 1);
        (void)ol_wire_write_json(OL_WIRE_FD_RESPONSE, answer);
    } else if (is("seq_as_text")) {
        (void)snprintf(text, sizeof text, "{\"seq\": \"%lld\", \"ok\": true}", (long long)seq);
        put_text(text);
    } else if (is("without_ok")) {
        (void)snprintf(text, sizeof text, "{\"seq\": %lld}", (long long)seq);
        put_text(text);
    } else if (is("unknown_status")) {
        (void)snprintf(text, sizeof text,
                       "{\"seq\": %lld, \"ok\": false, \"status\": \"FINE\", \"text\": \"\"}",
                       (long long)seq);
        put_text(text);
    } else if (is("without_results")) {
        (void)snprintf(text, sizeof text, "{\"seq\": %lld, \"ok\": true}", (long long)seq);
        put_text(text);
    } else if (is("violation")) {
        (void)snprintf(text, sizeof text,
                       "{\"seq\": %lld, \"ok\": false, \"status\": \"INTERNAL\", \"text\": \"\", "
                       "\"violations\": [\"it changed its input\"]}",
                       (long long)seq);
        put_text(text);
    } else if (is("says_wrong")) {
        (void)snprintf(text, sizeof text,
                       "{\"seq\": %lld, \"ok\": true, \"wrong\": \"two functions disagree\"}",
                       (long long)seq);
        put_text(text);
    } else if (is("ends_0")) {
        _exit(0);
    } else if (is("ends_5")) {
        _exit(5);
    } else if (is("killed")) {
        (void)raise(SIGKILL);
    } else if (is("silent")) {
        (void)sleep(20);
    } else {
        return false;
    }
    return true;
}

static json_t *parse(const ol_wire_buf *frame) {
    json_error_t error;
    json_t *request = json_loadb((const char *)frame->bytes, frame->len, 0, &error);
    if (request == NULL) {
        _exit(9);
    }
    return request;
}

int main(void) {
    ol_wire_buf frame = {0};
    bool done = false;
    if (is("ends_at_once")) {
        return 0;
    }
    if (is("answers_unasked")) {
        put_text("{\"seq\": 1, \"ok\": true, \"abi\": 65536}");
    }
    while (ol_wire_read(OL_WIRE_FD_REQUEST, &frame) == OL_WIRE_OK) {
        json_t *request = parse(&frame);
        json_int_t seq = json_integer_value(json_object_get(request, "seq"));
        const char *op = json_string_value(json_object_get(request, "op"));
        bool is_hello = op != NULL && strcmp(op, "hello") == 0;
        if (is_hello && is("refuses_hello")) {
            put_text("{\"seq\": 1, \"ok\": false, \"status\": \"UNSUPPORTED\", \"offset\": null, "
                     "\"text\": \"there is no engine in here\"}");
            return 0;
        }
        bool answered = !is_hello && !done && misbehave(seq);
        done = done || !is_hello;
        json_t *answer = is_hello ? hello(seq) : refusal(seq);
        if (is_hello && is("never_reads")) {
            (void)ol_wire_write_json(OL_WIRE_FD_RESPONSE, answer);
            (void)sleep(20);
            return 0;
        }
        for (int n = is("answers_twice") && !is_hello ? 2 : 1; n > 0 && !answered; n--) {
            (void)ol_wire_write_json(OL_WIRE_FD_RESPONSE, answer);
        }
        json_decref(answer);
        json_decref(request);
    }
    ol_wire_clear(&frame);
    if (is("answers_after_the_end")) {
        put_text("{\"seq\": 3, \"ok\": true}");
    }
    return 0;
}
