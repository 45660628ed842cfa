/* main.c: ol-host LIBRARY: answer requests on descriptor 3 by calls into a shared library, on
 * descriptor 4.
 *
 * One frame in, one frame out, until end of file; then everything is freed and the status is 0. See
 * host.h. */
#include "host.h"

#include "../runner/wire.h"

#include <fenv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nested too deep or too long is the judge's own fault; the limits of jansson hold. */
static json_t *parse_request(const ol_wire_buf *frame) {
    json_error_t error;
    return json_loadb((const char *)frame->bytes, frame->len, JSON_REJECT_DUPLICATES, &error);
}

/* ------------------------------------------------------------------ hello */

static json_t *isa_list(host *h) {
    static const struct {
        const char *name;
        tl_isa isa;
    } isas[] = {{"portable", TL_ISA_PORTABLE},
                {"avx2", TL_ISA_AVX2},
                {"avx512", TL_ISA_AVX512},
                {"neon", TL_ISA_NEON}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        tl_isa resolved = TL_ISA_AUTO;
        if (h->tl.isa_resolve(isas[i].isa, &resolved, NULL) == TL_OK) {
            (void)json_array_append_new(list, json_string(isas[i].name));
        }
    }
    return list;
}

static bool op_hello(host *h, const json_t *in, json_t *out) {
    (void)in;
    host_put_text(out, "name", "tl-engine");
    host_put_text(out, "version", h->tl.version());
    host_put_text(out, "language", "C");
    host_put_int(out, "abi", h->tl.abi_version());
    host_put(out, "isas", isa_list(h));
    host_put_bool(out, "threads", true);
    return true;
}

/* ------------------------------------------------------------------ dispatch */

static const host_op main_ops[] = {{"hello", op_hello}, {NULL, NULL}};

static const host_op *const op_tables[] = {main_ops,
                                           host_sample_ops,
                                           host_quant_ops,
                                           host_kv_ops,
                                           host_kv_move_ops,
                                           host_checkpoint_ops,
                                           host_runner_ops,
                                           host_c_argument_ops,
                                           host_memory_ops,
                                           host_fault_ops,
                                           NULL};

static host_op_fn *find_op(const char *name) {
    for (size_t i = 0; op_tables[i] != NULL; i++) {
        for (const host_op *op = op_tables[i]; op->name != NULL; op++) {
            if (strcmp(op->name, name) == 0) {
                return op->run;
            }
        }
    }
    return NULL;
}

static void put_bad(host *h, json_t *out) {
    (void)json_object_clear(out);
    host_put_text(out, "status", "INTERNAL");
    host_put(out, "offset", json_null());
    host_put_text(out, "text", h->bad);
    h->bad[0] = '\0';
}

/* Carry out one op and answer it, without seq and violations. New reference. */
static json_t *answer_op(host *h, const json_t *in) {
    json_t *out = json_object();
    h->wrong[0] = '\0';
    const char *name = host_arg_text(h, in, "op");
    host_op_fn *run = find_op(name);
    bool ok = false;
    if (run == NULL) {
        host_bad(h, "there is no op `%s` here", name);
    } else {
        ok = run(h, in, out);
    }
    host_settle(h, !ok && !host_is_bad(h));
    if (host_is_bad(h)) {
        ok = false;
        put_bad(h, out);
    }
    host_put_bool(out, "ok", ok);
    if (h->wrong[0] != '\0') {
        host_put_text(out, "wrong", h->wrong);
    }
    return out;
}

/* The op `calls`: a list of ops in order. It is no entry of a table, so that it cannot stand inside
 * itself. */
static json_t *answer_calls(host *h, const json_t *in) {
    json_t *out = json_object();
    json_t *results = json_array();
    const json_t *calls = json_object_get(in, "calls");
    h->earlier = results;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        (void)json_array_append_new(results, answer_op(h, json_array_get(calls, i)));
    }
    h->earlier = NULL;
    host_put_bool(out, "ok", true);
    host_put(out, "results", results);
    return out;
}

static json_t *answer(host *h, const json_t *in) {
    const char *op = json_string_value(json_object_get(in, "op"));
    h->violations = json_array();
    json_t *out = op != NULL && strcmp(op, "calls") == 0 ? answer_calls(h, in) : answer_op(h, in);
    host_put(out, "seq", json_incref(json_object_get(in, "seq")));
    if (json_array_size(h->violations) > 0) {
        host_put(out, "violations", json_incref(h->violations));
    }
    json_decref(h->violations);
    h->violations = NULL;
    return out;
}

/* Send, or say instead that the answer is longer than a frame may be. */
static ol_wire_status send_answer(const json_t *in, json_t *out) {
    ol_wire_status status = ol_wire_write_json(OL_WIRE_FD_RESPONSE, out);
    if (status != OL_WIRE_TOO_LONG) {
        return status;
    }
    json_t *instead =
        json_pack("{s:O, s:b, s:s, s:n, s:s}", "seq", json_object_get(in, "seq"), "ok", 0, "status",
                  "INTERNAL", "offset", "text", "the answer is longer than a frame may be");
    status = ol_wire_write_json(OL_WIRE_FD_RESPONSE, instead);
    json_decref(instead);
    return status;
}

/* Answer until the requests end; the exit status. */
static int serve(host *h) {
    ol_wire_buf frame = {0};
    int exit_status = 0;
    for (;;) {
        ol_wire_status status = ol_wire_read(OL_WIRE_FD_REQUEST, &frame);
        if (status == OL_WIRE_END) {
            break;
        }
        json_t *in = status == OL_WIRE_OK ? parse_request(&frame) : NULL;
        /* A request can be large and is not needed beside its tree. */
        ol_wire_clear(&frame);
        if (in == NULL) {
            exit_status = HOST_EXIT_PROTOCOL;
            break;
        }
        json_t *out = answer(h, in);
        status = send_answer(in, out);
        json_decref(out);
        json_decref(in);
        if (status != OL_WIRE_OK) {
            exit_status = HOST_EXIT_PROTOCOL;
            break;
        }
    }
    ol_wire_clear(&frame);
    return exit_status;
}

/* Tell the judge, in answer to its first request, why there is nothing to judge. */
static int refuse_hello(const char *text) {
    ol_wire_buf frame = {0};
    ol_wire_status status = ol_wire_read(OL_WIRE_FD_REQUEST, &frame);
    json_t *in = status == OL_WIRE_OK ? parse_request(&frame) : NULL;
    ol_wire_clear(&frame);
    if (in != NULL) {
        json_t *out = json_object();
        host_put(out, "seq", json_incref(json_object_get(in, "seq")));
        host_put_bool(out, "ok", false);
        host_put_text(out, "status", "UNSUPPORTED");
        host_put(out, "offset", json_null());
        host_put_text(out, "text", text);
        (void)ol_wire_write_json(OL_WIRE_FD_RESPONSE, out);
        json_decref(out);
        json_decref(in);
    }
    return HOST_EXIT_UNUSABLE;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        (void)fprintf(stderr,
                      "usage: ol-host LIBRARY   (started by the judge; descriptors 3 and 4)\n");
        return 2;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    host h = {0};
    /* Before the library's constructors run: some compilers' fast-math start-up code sets denormal
     * modes. */
    host_fp_read(&h.fp);
    char text[HOST_TEXT_CAP] = "";
    if (!host_load(&h.tl, argv[1], text)) {
        return refuse_hello(text);
    }
    int exit_status = serve(&h);
    host_handles_clear(&h);
    host_sampler_clear(&h);
    free(h.regions);
    return exit_status;
}
