/* test_quant_linear.c: products with int4 and dense weights.
 *
 * Property: y = x W^T over the dequantized (or widened) weights, within 2 K 2^-24 sum |x W^| of the
 * f64 product: what f32 sums of K terms may be off by in any order. With --strict, the bits of the
 * page's order of sums, on every instruction set, and whatever else is asked for in the same call.
 *
 * Source: conformance/spec/forward.md, clauses dot, linear. */
#include "naive_quant.h"

#include <math.h>
#include <string.h>

/* One product. `w` holds what the stored weights mean. */
typedef struct linear_case {
    const char *dtype; /* "int4", "f32", "f16", "bf16" */
    naive_matrix w;
    const uint8_t *stored; /* qweight, or the dense bytes */
    size_t n_stored;
    const uint16_t *scales; /* int4 */
    size_t n_scales;
    size_t group;
    const float *x; /* [m * n_in] */
    size_t m;
} linear_case;

static json_t *linear_args(const linear_case *c) {
    json_t *args = json_pack("{s:I, s:I, s:o, s:I}", "n_out", (json_int_t)c->w.n_out, "n_in",
                             (json_int_t)c->w.n_in, "x", ol_f32(c->x, c->m * c->w.n_in), "m",
                             (json_int_t)c->m);
    if (strcmp(c->dtype, "int4") == 0) {
        (void)json_object_set_new(args, "qweight", ol_u8(c->stored, c->n_stored));
        (void)json_object_set_new(args, "scales", ol_u16(c->scales, c->n_scales));
        (void)json_object_set_new(args, "group", json_integer((json_int_t)c->group));
    } else {
        (void)json_object_set_new(args, "dtype", json_string(c->dtype));
        (void)json_object_set_new(args, "weights", ol_u8(c->stored, c->n_stored));
    }
    return args;
}

static const json_t *ask_args(ol_test *t, const linear_case *c, json_t *args) {
    return ol_call_object(t, strcmp(c->dtype, "int4") == 0 ? "q4_linear" : "linear", args);
}

static const json_t *ask_linear(ol_test *t, const linear_case *c) {
    return ask_args(t, c, linear_args(c));
}

/* ------------------------------------------------------------------ drawing */

static void draw_rows(ol_test *t, linear_case *c, size_t m) {
    float *x = ol_alloc(t, m * c->w.n_in * sizeof *x);
    for (size_t i = 0; i < m * c->w.n_in; i++) {
        x[i] = ol_rand_normal(t);
    }
    c->x = x;
    c->m = m;
}

/* Random bytes are random values; the scales are normal f16 of one size or another. */
static linear_case draw_int4(ol_test *t, size_t n_out, size_t n_in, size_t group, size_t m) {
    size_t n = n_out * n_in;
    uint8_t *bytes = ol_alloc(t, n / 2);
    uint16_t *scales = ol_alloc(t, n / group * sizeof *scales);
    float *w = ol_alloc(t, n * sizeof *w);
    for (size_t i = 0; i < n / group; i++) {
        scales[i] = (uint16_t)(0x1800 + ol_rand_below(t, 0x2000));
    }
    for (size_t i = 0; i < n / 2; i++) {
        int8_t q[2];
        bytes[i] = (uint8_t)ol_rand_below(t, 256);
        naive_unpack(bytes[i], q);
        for (size_t j = 0; j < 2; j++) {
            size_t at = 2 * i + j;
            /* Four bits times eleven: exact. */
            w[at] = (float)q[j] * naive_f32_of(naive_f16_widen(scales[at / group]));
        }
    }
    linear_case c = {.dtype = "int4",
                     .w = {n_out, n_in, w},
                     .stored = bytes,
                     .n_stored = n / 2,
                     .scales = scales,
                     .n_scales = n / group,
                     .group = group};
    draw_rows(t, &c, m);
    return c;
}

static void put_le(uint8_t *to, uint32_t bits, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        to[i] = (uint8_t)(bits >> (8 * i));
    }
}

static linear_case draw_dense(ol_test *t, const char *dtype, size_t n_out, size_t n_in, size_t m) {
    size_t n = n_out * n_in;
    size_t size = strcmp(dtype, "f32") == 0 ? 4 : 2;
    uint8_t *bytes = ol_alloc(t, n * size);
    float *w = ol_alloc(t, n * sizeof *w);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = naive_f32_bits(ol_rand_normal(t));
        uint32_t stored = bits;
        if (strcmp(dtype, "f16") == 0) {
            stored = naive_f16_round(bits);
            bits = naive_f16_widen((uint16_t)stored);
        } else if (strcmp(dtype, "bf16") == 0) {
            stored = bits >> 16;
            bits = stored << 16;
        }
        put_le(bytes + i * size, stored, size);
        w[i] = naive_f32_of(bits);
    }
    linear_case c = {.dtype = dtype, .w = {n_out, n_in, w}, .stored = bytes, .n_stored = n * size};
    draw_rows(t, &c, m);
    return c;
}

/* ------------------------------------------------------------------ the bound */

static const char *case_text(ol_test *t, const linear_case *c) {
    return ol_text(t, "%s [%zu, %zu]%s, %zu rows of x", c->dtype, c->w.n_out, c->w.n_in,
                   c->group == 0 ? "" : ol_text(t, " in groups of %zu", c->group), c->m);
}

static void check_bound(ol_test *t, const char *name, const linear_case *c) {
    size_t n_want = c->m * c->w.n_out;
    double *want = ol_alloc(t, n_want * sizeof *want);
    double *allowed = ol_alloc(t, n_want * sizeof *allowed);
    naive_product(&c->w, c->x, c->m, want, allowed);
    const json_t *answer = ask_linear(t, c);
    const char *what = case_text(t, c);
    if (!ol_check_ok(t, name, answer, what)) {
        return;
    }
    size_t n = 0;
    const float *y = ol_res_f32s(t, answer, "y", &n);
    ol_check_f32_within(t, name, y, n, want, allowed, n_want, what);
}

static void check_finite(ol_test *t, const linear_case *c) {
    const json_t *answer = ask_linear(t, c);
    if (!ol_check_ok(t, "finite", answer, case_text(t, c))) {
        return;
    }
    size_t n = 0;
    size_t n_finite = 0;
    const float *y = ol_res_f32s(t, answer, "y", &n);
    for (size_t i = 0; i < n; i++) {
        n_finite += isfinite(y[i]) ? 1 : 0;
    }
    ol_check_int(t, "finite", (int64_t)n_finite, (int64_t)(c->m * c->w.n_out),
                 "finite elements of y");
}

static void part_shapes(ol_test *t) {
    static const struct {
        size_t n_out, n_in, group, m;
    } shapes[] = {{8, 16, 4, 1},   {16, 64, 32, 3},   {24, 128, 32, 2}, {64, 256, 64, 1},
                  {48, 96, 8, 17}, {32, 512, 128, 4}, {16, 32, 2, 33},  {40, 1024, 1024, 2}};
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        linear_case c = draw_int4(t, shapes[i].n_out, shapes[i].n_in, shapes[i].group, shapes[i].m);
        check_bound(t, "bound", &c);
        check_finite(t, &c);
    }
}

static void part_odd(ol_test *t) {
    static const struct {
        size_t n_out, n_in, group, m;
    } shapes[] = {{1, 2, 2, 1},    {3, 6, 2, 2},    {5, 10, 10, 1},  {7, 18, 6, 5},
                  {9, 34, 2, 3},   {17, 50, 10, 1}, {19, 66, 22, 7}, {33, 130, 26, 2},
                  {15, 254, 2, 1}, {21, 36, 12, 9}, {6, 60, 20, 3},  {9, 56, 28, 1}};
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        linear_case c = draw_int4(t, shapes[i].n_out, shapes[i].n_in, shapes[i].group, shapes[i].m);
        check_bound(t, "odd_widths", &c);
    }
}

static void part_dense(ol_test *t) {
    static const char *const dtypes[] = {"f32", "f16", "bf16"};
    static const struct {
        size_t n_out, n_in, m;
    } shapes[] = {{16, 64, 3}, {5, 19, 2}, {33, 257, 1}, {1, 1, 1}, {40, 128, 17}};
    for (size_t i = 0; i < TEST_COUNT(dtypes) * TEST_COUNT(shapes); i++) {
        size_t s = i % TEST_COUNT(shapes);
        linear_case c = draw_dense(t, dtypes[i / TEST_COUNT(shapes)], shapes[s].n_out,
                                   shapes[s].n_in, shapes[s].m);
        check_bound(t, "dense_bound", &c);
    }
}

/* Rows of very different size, then the same in another order: a row that leaks into another is far
 * outside. */
static void part_rows(ol_test *t) {
    enum { M = 11, N_IN = 96 };
    linear_case c = draw_int4(t, 24, N_IN, 16, M);
    float *x = ol_alloc(t, (size_t)M * N_IN * sizeof *x);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < M; i++) {
            size_t from = (i * 4 + (size_t)round * 3) % M;
            for (size_t k = 0; k < N_IN; k++) {
                x[i * N_IN + k] = c.x[from * N_IN + k] * ldexpf(1.0f, 6 * (int)from - 30);
            }
        }
        linear_case permuted = c;
        permuted.x = x;
        check_bound(t, "many_rows", &permuted);
    }
}

/* ------------------------------------------------------------------ exact results */

static void part_dequantize(ol_test *t) {
    static const struct {
        size_t n_out, n_in, group;
    } shapes[] = {{4, 32, 8}, {3, 10, 2}, {7, 128, 32}};
    for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
        linear_case c = draw_int4(t, shapes[i].n_out, shapes[i].n_in, shapes[i].group, 1);
        /* The smallest scale of all and the largest, too. */
        uint16_t *scales = ol_alloc(t, c.n_scales * sizeof *scales);
        float *w = ol_alloc(t, c.w.n_out * c.w.n_in * sizeof *w);
        memcpy(scales, c.scales, c.n_scales * sizeof *scales);
        scales[0] = 0x0001;
        scales[1] = 0x7bff;
        for (size_t at = 0; at < c.w.n_out * c.w.n_in; at++) {
            int8_t q[2];
            naive_unpack(c.stored[at / 2], q);
            w[at] = (float)q[at % 2] * naive_f32_of(naive_f16_widen(scales[at / c.group]));
        }
        const json_t *answer = ol_call(t, "dequantize", "{s:o, s:o, s:I, s:I, s:I}", "qweight",
                                       ol_u8(c.stored, c.n_stored), "scales",
                                       ol_u16(scales, c.n_scales), "n_out", (json_int_t)c.w.n_out,
                                       "n_in", (json_int_t)c.w.n_in, "group", (json_int_t)c.group);
        if (ol_check_ok(t, "dequantize_bits", answer, case_text(t, &c))) {
            size_t n = 0;
            const float *got = ol_res_f32s(t, answer, "w", &n);
            ol_check_f32_bits(t, "dequantize_bits", got, n, w, c.w.n_out * c.w.n_in,
                              case_text(t, &c));
        }
    }
}

/* The rows of x are those of the unit matrix, so y is W^ turned over: no rounding, whatever the
 * order of the sums. */
static void check_columns(ol_test *t, linear_case c) {
    size_t n = c.w.n_in;
    float *x = ol_alloc(t, n * n * sizeof *x);
    double *want = ol_alloc(t, n * c.w.n_out * sizeof *want);
    double *allowed = ol_alloc(t, n * c.w.n_out * sizeof *allowed);
    for (size_t k = 0; k < n; k++) {
        x[k * n + k] = 1.0f;
        for (size_t o = 0; o < c.w.n_out; o++) {
            want[k * c.w.n_out + o] = (double)c.w.w[o * n + k];
        }
    }
    c.x = x;
    c.m = n;
    const json_t *answer = ask_linear(t, &c);
    if (ol_check_ok(t, "unit_vectors", answer, case_text(t, &c))) {
        size_t n_got = 0;
        const float *y = ol_res_f32s(t, answer, "y", &n_got);
        ol_check_f32_within(t, "unit_vectors", y, n_got, want, allowed, n * c.w.n_out,
                            "columns of the dequantized weights");
    }
}

/* The last columns of rows longer than any block of an engine's: the bound of a sum of so many
 * terms would not notice that one is left out. */
static void check_long_rows(ol_test *t, linear_case c) {
    enum { LAST = 18 };
    size_t n = c.w.n_in;
    float *x = ol_alloc(t, LAST * n * sizeof *x);
    double *want = ol_alloc(t, LAST * c.w.n_out * sizeof *want);
    double *allowed = ol_alloc(t, LAST * c.w.n_out * sizeof *allowed);
    for (size_t i = 0; i < LAST; i++) {
        x[i * n + n - LAST + i] = 1.0f;
        for (size_t o = 0; o < c.w.n_out; o++) {
            want[i * c.w.n_out + o] = (double)c.w.w[o * n + n - LAST + i];
        }
    }
    c.x = x;
    for (c.m = 1; c.m <= LAST; c.m += LAST - 1) {
        const json_t *answer = ask_linear(t, &c);
        if (ol_check_ok(t, "unit_vectors", answer, case_text(t, &c))) {
            size_t n_got = 0;
            const float *y = ol_res_f32s(t, answer, "y", &n_got);
            ol_check_f32_within(t, "unit_vectors", y, n_got, want, allowed, c.m * c.w.n_out,
                                "the last columns of long rows");
        }
    }
}

static void part_units(ol_test *t) {
    check_columns(t, draw_int4(t, 12, 64, 16, 1));
    check_columns(t, draw_int4(t, 5, 14, 2, 1));
    check_columns(t, draw_int4(t, 17, 38, 38, 1));
    check_long_rows(t, draw_int4(t, 3, 9216, 128, 1));
    check_long_rows(t, draw_dense(t, "f32", 3, 9001, 1));
    check_long_rows(t, draw_dense(t, "bf16", 3, 9006, 1));
}

/* ------------------------------------------------------------------ strict */

static const float *strict_y(ol_test *t, const char *name, const linear_case *c, json_t *args,
                             const char *what, size_t *n) {
    const json_t *answer = ask_args(t, c, args);
    *n = 0;
    return ol_check_ok(t, name, answer, what) ? ol_res_f32s(t, answer, "y", n) : NULL;
}

/* A row of x alone, and a range of output rows: the same bits as in the whole product. */
static void check_row_bits(ol_test *t, const linear_case *c) {
    size_t n = 0;
    const char *name = "row_invariant_bits";
    const float *whole = strict_y(t, name, c, linear_args(c), case_text(t, c), &n);
    size_t n_out = c->w.n_out;
    if (whole == NULL || !ol_check_int(t, name, (int64_t)n, (int64_t)(c->m * n_out), "elements")) {
        return;
    }
    for (size_t i = 0; i < c->m; i++) {
        linear_case one = *c;
        one.x = c->x + i * c->w.n_in;
        one.m = 1;
        const float *y = strict_y(t, name, &one, linear_args(&one), "one row of x", &n);
        if (y != NULL) {
            ol_check_f32_bits(t, name, y, n, whole + i * n_out, n_out, "y of one row of x alone");
        }
    }
    for (size_t i = 0; i < 4; i++) {
        size_t begin = i * n_out / 5;
        size_t end = n_out - i * n_out / 9;
        json_t *args = linear_args(c);
        (void)json_object_set_new(args, "rows",
                                  json_pack("[I, I]", (json_int_t)begin, (json_int_t)end));
        float *want = ol_alloc(t, c->m * n_out * sizeof *want);
        for (size_t at = 0; at < c->m * n_out; at++) {
            bool inside = at % n_out >= begin && at % n_out < end;
            want[at] = inside ? whole[at] : 0.0f;
        }
        const float *y = strict_y(t, name, c, args, "a range of output rows", &n);
        if (y != NULL) {
            ol_check_f32_bits(t, name, y, n, want, c->m * n_out,
                              ol_text(t, "y of output rows %zu to %zu", begin, end));
        }
    }
}

/* Every product is below 0 and rounds to nothing, so every sum is -0; one that +0 was added to, for
 * the sake of whole registers, is +0. */
static linear_case vanish(ol_test *t, const char *dtype, size_t n_in) {
    enum { M = 6 };
    linear_case c = draw_dense(t, dtype, 5, n_in, M);
    size_t size = c.n_stored / (c.w.n_out * n_in);
    uint32_t least = strcmp(dtype, "bf16") == 0  ? 0x0080u
                     : strcmp(dtype, "f16") == 0 ? 1u
                                                 : 0x00800000u;
    uint8_t *bytes = ol_alloc(t, c.n_stored);
    float *x = ol_alloc(t, M * n_in * sizeof *x);
    for (size_t i = 0; i < c.n_stored / size; i++) {
        put_le(bytes + i * size, least, size);
    }
    for (size_t i = 0; i < M * n_in; i++) {
        x[i] = -0x1p-149f;
    }
    c.stored = bytes;
    c.x = x;
    return c;
}

static void part_row_bits(ol_test *t) {
    if (!ol_strict(t)) {
        return;
    }
    linear_case cases[] = {draw_int4(t, 37, 96, 16, 9),
                           draw_int4(t, 64, 130, 2, 5),
                           draw_dense(t, "f32", 35, 67, 13),
                           draw_dense(t, "bf16", 40, 96, 6),
                           draw_dense(t, "f16", 23, 45, 4),
                           vanish(t, "f32", 13),
                           vanish(t, "f16", 12),
                           vanish(t, "bf16", 29)};
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        check_row_bits(t, &cases[i]);
    }
}

/* ------------------------------------------------------------------ refusals */

/* The check `lengths`: with one argument changed the call is refused and names `terms`;
 * NULL: it succeeds all the same. Takes the reference of value. */
static void check_changed(ol_test *t, const linear_case *c, const char *key, json_t *value,
                          const char *terms, const char *what) {
    json_t *args = linear_args(c);
    (void)json_object_set_new(args, key, value);
    const json_t *answer = ask_args(t, c, args);
    what = ol_text(t, "%s: %s", c->dtype, what);
    if (terms == NULL) {
        ol_check_ok(t, "lengths", answer, what);
    } else {
        ol_check_refused(t, "lengths", answer, "INVALID", terms, -1, what);
    }
}

static void check_ranges(ol_test *t, const linear_case *c) {
    static const struct {
        int begin, end;
        bool legal;
    } ranges[] = {{0, 0, true},  {3, 3, true},  {5, 5, true},  {4, 5, true},
                  {3, 2, false}, {0, 6, false}, {6, 6, false}, {5, 0, false}};
    for (size_t i = 0; i < TEST_COUNT(ranges); i++) {
        const int begin = ranges[i].begin;
        const int end = ranges[i].end;
        check_changed(t, c, "rows", json_pack("[i, i]", begin, end),
                      ranges[i].legal
                          ? NULL
                          : ol_text(t, OL_TERMS("row_begin|row_end|rows %d %d 5"), begin, end),
                      ol_text(t, "rows %d to %d, there are 5", begin, end));
    }
}

static void check_x(ol_test *t, const linear_case *c) {
    const size_t n = c->m * c->w.n_in;
    float *x = ol_alloc(t, (n + 1) * sizeof *x);
    memcpy(x, c->x, n * sizeof *x);
    check_changed(t, c, "x", ol_f32(x, n), NULL, "nothing changed");
    for (size_t n_x = n - 1; n_x <= n + 1; n_x += 2) {
        check_changed(t, c, "x", ol_f32(x, n_x),
                      ol_text(t, OL_TERMS("x_len|x %zu 2|32 16|32"), n_x),
                      ol_text(t, "%zu elements of x for 2 x 16", n_x));
    }
}

static void part_lengths(ol_test *t) {
    const linear_case dense = draw_dense(t, "f32", 5, 16, 2);
    const linear_case c = draw_int4(t, 5, 16, 8, 2);
    const size_t n_bytes = 5 * 16 / 2;
    const size_t n_scales = 5 * 2;
    uint8_t *bytes = ol_alloc(t, n_bytes + 1);
    uint16_t *scales = ol_alloc(t, (n_scales + 1) * sizeof *scales);
    check_ranges(t, &dense);
    check_x(t, &dense);
    check_ranges(t, &c);
    check_x(t, &c);
    for (size_t by = 0; by <= 2; by += 2) {
        check_changed(
            t, &c, "qweight", ol_u8(bytes, n_bytes - 1 + by),
            ol_text(t, OL_TERMS("qweight_len|qweight %zu 5|40 16|8|40"), n_bytes - 1 + by),
            by == 0 ? "a packed byte too few" : "a packed byte too many");
        check_changed(t, &c, "scales", ol_u16(scales, n_scales - 1 + by),
                      ol_text(t, OL_TERMS("scales_len|scales %zu|%zu"), 2 * (n_scales - 1 + by),
                              n_scales - 1 + by),
                      by == 0 ? "a scale too few" : "a scale too many");
    }
    check_changed(t, &c, "group", json_integer(0), OL_TERMS("group 0"), "a group of 0");
    check_changed(t, &c, "group", json_integer(1), OL_TERMS("group 1"), "a group of 1");
    check_changed(t, &c, "group", json_integer(6), OL_TERMS("group 6 16"),
                  "a group of 6 in 16 columns");
    check_changed(t, &c, "group", json_integer(16), OL_TERMS("scales_len|scales 20|10"),
                  "a group of 16, scales for 8");
}

/* ------------------------------------------------------------------ the golden (strict) */

static const uint8_t *dense_bytes(ol_test *t, const ol_case *c, const char *dtype, size_t *n) {
    uint8_t *bytes;
    if (strcmp(dtype, "f32") == 0) {
        const float *w = ol_get_f32s(t, c, c->body, "weights", n);
        bytes = ol_alloc(t, *n * 4 + 1);
        for (size_t i = 0; i < *n; i++) {
            put_le(bytes + 4 * i, naive_f32_bits(w[i]), 4);
        }
        *n *= 4;
        return bytes;
    }
    const uint16_t *w = ol_get_u16s(t, c, c->body, "weights", n);
    bytes = ol_alloc(t, *n * 2 + 1);
    for (size_t i = 0; i < *n; i++) {
        put_le(bytes + 2 * i, w[i], 2);
    }
    *n *= 2;
    return bytes;
}

static linear_case golden_case(ol_test *t, const ol_case *c) {
    linear_case l = {.dtype = ol_get_text(t, c, c->body, "dtype"),
                     .w = {.n_out = ol_get_count(t, c, c->body, "n_out"),
                           .n_in = ol_get_count(t, c, c->body, "n_in")},
                     .m = ol_get_count(t, c, c->body, "m")};
    size_t n_x = 0;
    l.x = ol_get_f32s(t, c, c->body, "x", &n_x);
    if (strcmp(l.dtype, "int4") == 0) {
        l.group = ol_get_count(t, c, c->body, "group");
        l.stored = ol_get_bytes(t, c, c->body, "qweight", &l.n_stored);
        l.scales = ol_get_u16s(t, c, c->body, "scales", &l.n_scales);
    } else {
        l.stored = dense_bytes(t, c, l.dtype, &l.n_stored);
    }
    return l;
}

/* Any NaN will do for a NaN: both sides are made the same number. */
static void same_nans(float *got, float *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (isnan(got[i]) && isnan(want[i])) {
            got[i] = want[i] = 0.0f;
        }
    }
}

static void run_case(ol_test *t, const ol_case *c, const json_t *isas) {
    linear_case l = golden_case(t, c);
    ol_begin_case(t, c);
    for (size_t i = 0; i < json_array_size(isas); i++) {
        const char *isa = json_string_value(json_array_get(isas, i));
        json_t *args = linear_args(&l);
        (void)json_object_set_new(args, "isa", json_string(isa));
        const json_t *answer = ask_args(t, &l, args);
        const char *what = ol_text(t, "y, instruction set %s", isa);
        if (!ol_check_ok(t, "golden_bits", answer, what)) {
            continue;
        }
        size_t n = 0;
        size_t n_want = 0;
        float *got = ol_res_f32s(t, answer, "y", &n);
        float *want = ol_get_f32s(t, c, c->body, "y", &n_want);
        same_nans(got, want, n < n_want ? n : n_want);
        ol_check_f32_bits(t, "golden_bits", got, n, want, n_want, what);
    }
}

void test_q4_linear_matches_its_dequantized_weights(ol_test *t) {
    static const test_part parts[] = {{"shapes-own", part_shapes},     {"odd", part_odd},
                                      {"dense", part_dense},           {"rows", part_rows},
                                      {"dequantize", part_dequantize}, {"units", part_units},
                                      {"row-bits", part_row_bits},     {"lengths", part_lengths}};
    test_run_parts(t, parts, TEST_COUNT(parts));
    if (ol_strict(t)) {
        const json_t *isas = json_object_get(ol_call(t, "hello", "{}"), "isas");
        for (size_t i = 0; i < ol_n_cases(t, "linear"); i++) {
            run_case(t, ol_case_at(t, "linear", i), isas);
        }
    }
}
