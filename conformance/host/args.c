/* args.c: arguments out of requests, results into answers.
 *
 * Decoding never fails loudly: the first fault is kept in host.bad, getters give zero from then on,
 * and the op looks once, after its last argument. No number passes through decimal text of a float,
 * so no locale matters. */
#include "host.h"

#include "../runner/wire.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ arguments */

uint64_t host_arg_count(host *h, const json_t *in, const char *key, uint64_t max) {
    const json_t *value = json_object_get(in, key);
    json_int_t v = json_integer_value(value);
    if (!json_is_integer(value) || v < 0 || (uint64_t)v > max) {
        host_bad(h, "`%s` is missing or out of its type's range", key);
        return 0;
    }
    return (uint64_t)v;
}

uint64_t host_arg_count_or(host *h, const json_t *in, const char *key, uint64_t max,
                           uint64_t none) {
    return json_object_get(in, key) == NULL ? none : host_arg_count(h, in, key, max);
}

uint32_t host_arg_u32(host *h, const json_t *in, const char *key) {
    return (uint32_t)host_arg_count(h, in, key, UINT32_MAX);
}

size_t host_arg_size_or(host *h, const json_t *in, const char *key, size_t none) {
    return (size_t)host_arg_count_or(h, in, key, SIZE_MAX, none);
}

bool host_arg_bool_or(host *h, const json_t *in, const char *key, bool none) {
    const json_t *value = json_object_get(in, key);
    if (value == NULL) {
        return none;
    }
    if (!json_is_boolean(value)) {
        host_bad(h, "`%s` is no boolean", key);
    }
    return json_is_true(value);
}

const char *host_arg_text(host *h, const json_t *in, const char *key) {
    const char *text = json_string_value(json_object_get(in, key));
    if (text == NULL) {
        host_bad(h, "`%s` is no string", key);
        return "";
    }
    return text;
}

const char *host_arg_text_or(host *h, const json_t *in, const char *key, const char *none) {
    return json_object_get(in, key) == NULL ? none : host_arg_text(h, in, key);
}

uint64_t host_arg_u64(host *h, const json_t *in, const char *key) {
    const char *text = host_arg_text(h, in, key);
    uint64_t v = 0;
    if (!host_is_bad(h) && !ol_wire_u64_parse(text, &v)) {
        host_bad(h, "`%s` is no string of 16 hex digits", key);
    }
    return v;
}

double host_arg_f64(host *h, const json_t *in, const char *key) {
    uint64_t bits = host_arg_u64(h, in, key);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void *host_arg_array(host *h, const json_t *in, const char *key, const char *type, size_t *n) {
    const json_t *value = json_object_get(in, key);
    *n = 0;
    if (!ol_wire_array_len(value, type, n)) {
        host_bad(h, "`%s` is no array of %s", key, type);
        return NULL;
    }
    void *data = host_input(h, key, *n * ol_wire_type_bytes(type));
    if (data != NULL && !ol_wire_array_get(value, type, data, *n)) {
        host_bad(h, "`%s` has a digit that is none", key);
    }
    return data;
}

const tl_prefix_key *host_arg_key(host *h, const json_t *in, const char *key) {
    tl_prefix_key value = {{0}};
    const char *text = host_arg_text(h, in, key);
    if (strlen(text) != 2 * sizeof value.bytes ||
        !ol_wire_unhex(text, 2 * sizeof value.bytes, value.bytes)) {
        host_bad(h, "`%s` is no string of 32 hex digits", key);
    }
    return host_const(h, key, &value, sizeof value);
}

tl_isa host_arg_isa(host *h, const json_t *in) {
    static const struct {
        const char *name;
        tl_isa isa;
    } isas[] = {{"auto", TL_ISA_AUTO},
                {"portable", TL_ISA_PORTABLE},
                {"avx2", TL_ISA_AVX2},
                {"avx512", TL_ISA_AVX512},
                {"neon", TL_ISA_NEON}};
    const char *name = host_arg_text_or(h, in, "isa", "auto");
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (strcmp(name, isas[i].name) == 0) {
            return isas[i].isa;
        }
    }
    host_bad(h, "`isa` is no instruction set: %s", name);
    return TL_ISA_AUTO;
}

tl_weights_mode host_arg_weights(host *h, const json_t *in) {
    const char *name = host_arg_text_or(h, in, "weights", "map");
    if (strcmp(name, "copy") == 0) {
        return TL_WEIGHTS_COPY;
    }
    if (strcmp(name, "map") != 0) {
        host_bad(h, "`weights` is neither map nor copy: %s", name);
    }
    return TL_WEIGHTS_MAP;
}

size_t host_mul(host *h, size_t a, size_t b) {
    if (b != 0 && a > SIZE_MAX / b) {
        host_bad(h, "%zu x %zu elements are too many", a, b);
        return 0;
    }
    return a * b;
}

/* ------------------------------------------------------------------ results */

void host_put(json_t *out, const char *key, json_t *value) {
    (void)json_object_set_new(out, key, value);
}

void host_put_int(json_t *out, const char *key, uint64_t v) {
    host_put(out, key, json_integer((json_int_t)v));
}

void host_put_bool(json_t *out, const char *key, bool v) {
    host_put(out, key, json_boolean(v));
}

void host_put_text(json_t *out, const char *key, const char *text) {
    json_t *value = text == NULL ? json_null() : json_string(text);
    if (value == NULL) {
        char ascii[HOST_TEXT_CAP];
        size_t n = 0;
        for (; text[n] != '\0' && n + 1 < sizeof ascii; n++) {
            ascii[n] = text[n];
            if ((unsigned char)text[n] >= 0x80u) {
                ascii[n] = '?';
            }
        }
        ascii[n] = '\0';
        value = json_string(ascii);
    }
    host_put(out, key, value);
}

void host_put_u64(json_t *out, const char *key, uint64_t v) {
    host_put(out, key, ol_wire_u64(v));
}

void host_put_f64(json_t *out, const char *key, double v) {
    host_put(out, key, ol_wire_f64(v));
}

void host_put_array(json_t *out, const char *key, const char *type, const void *v, size_t n) {
    host_put(out, key, ol_wire_array(type, v, n));
}

void host_put_key(json_t *out, const char *key, const tl_prefix_key *v) {
    char text[2 * sizeof v->bytes + 1];
    ol_wire_hex(v->bytes, sizeof v->bytes, text);
    host_put_text(out, key, text);
}

/* ------------------------------------------------------------------ status */

tl_error host_error(void) {
    tl_error err = {.status = TL_OK, .offset = TL_NO_OFFSET};
    (void)snprintf(err.text, sizeof err.text, "the engine wrote no message");
    return err;
}

/* The host's own words, so that a wrong tl_status_name cannot pass one status for another. */
static const char *status_word(tl_status status) {
    switch (status) {
    case TL_OK:
        return "OK";
    case TL_ERR_INVALID:
        return "INVALID";
    case TL_ERR_NOMEM:
        return "NOMEM";
    case TL_ERR_IO:
        return "IO";
    case TL_ERR_FORMAT:
        return "FORMAT";
    case TL_ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    case TL_ERR_CAPACITY:
        return "CAPACITY";
    case TL_ERR_NOT_FOUND:
        return "NOT_FOUND";
    case TL_ERR_STATE:
        return "STATE";
    case TL_ERR_INTERNAL:
        return "INTERNAL";
    }
    return "UNKNOWN";
}

bool host_answer(json_t *out, tl_status status, const tl_error *err) {
    if (status == TL_OK) {
        return true;
    }
    char text[TL_ERROR_TEXT_CAP + 1];
    memcpy(text, err->text, TL_ERROR_TEXT_CAP);
    text[TL_ERROR_TEXT_CAP] = '\0';
    host_put_text(out, "status", status_word(status));
    if (err->offset == TL_NO_OFFSET) {
        host_put(out, "offset", json_null());
    } else {
        host_put_int(out, "offset", err->offset);
    }
    host_put_text(out, "text", text);
    return false;
}

void *host_unset(void) {
    static char nothing; /* its address is what an untouched pointer shows; it is never written */
    return &nothing;
}

bool host_made(host *h, json_t *out, tl_status status, const tl_error *err, void **object) {
    if (status == TL_OK && (*object == NULL || *object == host_unset())) {
        *object = NULL;
        host_bad(h, "the engine said OK and made no object");
        return false;
    }
    if (status != TL_OK && *object != NULL) {
        host_violation(h, "a refused constructor did not set its result to NULL");
        *object = NULL;
    }
    return host_answer(out, status, err);
}
