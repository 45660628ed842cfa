/* target_quant.c: 16-bit floats, int4 both ways, and products by int4 rows.
 *
 * Both implementations must give the same bits, or refuse with the same status and leave the
 * output as it was. Packing is the way back of unpacking, dequantized weights are q times s.
 *
 * Source: conformance/spec/safetensors.md, rule 12; conformance/spec/forward.md. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX 12

static void check_floats(fuzz_case *f, fuzz_tape *tape) {
    const uint32_t bits = fuzz_u32(tape);
    float x;
    memcpy(&x, &bits, sizeof x);
    const uint16_t h = (uint16_t)bits;
    const float a = f->tl->f16_to_f32(h);
    const float b = f->second->f16_to_f32(h);
    const float c = f->tl->bf16_to_f32(h);
    const float d = f->second->bf16_to_f32(h);
    const uint16_t r = f->tl->f32_to_f16(x);
    const uint16_t s = f->second->f32_to_f16(x);
    /* Which NaN comes out is not said, only that one does, of the same sign. */
    const bool both_nan = isnan(x) && isnan(f->tl->f16_to_f32(r)) && isnan(f->tl->f16_to_f32(s)) &&
                          (r >> 15) == (s >> 15);
    if (!fuzz_same_float(a, b) || !fuzz_same_float(c, d) || (r != s && !both_nan)) {
        (void)fuzz_wrong(f, "16-bit floats of %08x differ", bits);
    }
    if (!isnan(a) && f->tl->f32_to_f16(a) != h) {
        (void)fuzz_wrong(f, "f16 %04x does not come back", h);
    }
}

/* Pack any numbers; what was packed comes back. */
static void check_pack(fuzz_case *f, fuzz_tape *tape) {
    const size_t rows = fuzz_u8(tape) % SIDE_MAX;
    const size_t cols = fuzz_u8(tape) % SIDE_MAX;
    const bool is_wild = fuzz_u8(tape) % 4 == 0;
    const size_t n = rows * cols;
    int8_t *q = fuzz_alloc(n);
    int8_t *again = fuzz_alloc(n);
    uint8_t *x = fuzz_alloc(n / 2);
    uint8_t *y = fuzz_alloc(n / 2);
    tl_error err = fuzz_error();
    for (size_t i = 0; i < n; i++) {
        const uint8_t byte = fuzz_u8(tape);
        q[i] = is_wild ? (int8_t)(byte % 19 - 9) : (int8_t)(byte % 16 - 8);
    }
    const tl_status got = f->tl->int4_pack(q, n, rows, cols, x, n / 2, &err);
    fuzz_check_error(f, "int4_pack", got, &err, n);
    if (fuzz_agree(f, "int4_pack", got, f->second->int4_pack(q, n, rows, cols, y, n / 2, &err))) {
        if (f->tl->int4_unpack(x, n / 2, again, n, &err) != TL_OK || memcmp(q, again, n) != 0) {
            (void)fuzz_wrong(f, "int4: what was packed does not come back");
        }
    }
    if (memcmp(x, y, n / 2) != 0) {
        (void)fuzz_wrong(f, "int4_pack: other bytes");
    }
    free(q);
    free(again);
    free(x);
    free(y);
}

static float any_weight(fuzz_tape *tape, uint8_t style) {
    const uint32_t bits = fuzz_u32(tape);
    float v;
    if (style % 4 != 0) {
        const int32_t small = (int32_t)(bits % 2001) - 1000;
        return ldexpf((float)small, (int)(style >> 2) - 32);
    }
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* The page's dot: eight lanes, then a tree. */
static float dot(const float *a, const float *b, size_t n) {
    float lanes[8] = {0};
    for (size_t k = 0; k < n; k++) {
        lanes[k % 8] = fmaf(a[k], b[k], lanes[k % 8]);
    }
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* Columns [begin, end) are dots with the dequantized rows w, to the bit; the others untouched. */
static void check_outputs(fuzz_case *f, const tl_qlinear *q, const float *w, const float *x,
                          const float *y, size_t m, size_t begin, size_t end) {
    for (size_t i = 0; i < m * q->n_out; i++) {
        const size_t row = i % q->n_out;
        const bool is_in = row >= begin && row < end;
        const float want =
            is_in ? dot(x + i / q->n_out * q->n_in, w + row * q->n_in, q->n_in) : 0.0f;
        if (!fuzz_same_float(y[i], want)) {
            (void)fuzz_wrong(f, "qlinear_forward: output %zu is %a, dot gives %a", i, (double)y[i],
                             (double)want);
        }
    }
}

/* x W^T over some of the rows; w is W dequantized. The second one sums in another order, so only
 * its status is compared. */
static void check_product(fuzz_case *f, const tl_qlinear *a, const tl_qlinear *b, const float *w,
                          fuzz_tape *tape) {
    tl_work *work_a = NULL;
    tl_work *work_b = NULL;
    const tl_isa isa = (tl_isa)(fuzz_u8(tape) % 2); /* auto or portable */
    const size_t m = fuzz_u8(tape) % 4;
    const size_t begin = fuzz_u8(tape) % (a->n_out + 2);
    const size_t end = fuzz_u8(tape) % (a->n_out + 2);
    float *x = fuzz_alloc(m * a->n_in * sizeof *x);
    float *y = fuzz_alloc(m * a->n_out * sizeof *y);
    float *z = fuzz_alloc(m * a->n_out * sizeof *z);
    tl_error err = fuzz_error();
    for (size_t i = 0; i < m * a->n_in; i++) {
        x[i] = any_weight(tape, 0x81);
    }
    if (f->tl->work_new(&work_a, isa, a->n_in, NULL) != TL_OK ||
        f->second->work_new(&work_b, isa, a->n_in, NULL) != TL_OK) {
        (void)fuzz_wrong(f, "there is no working memory for rows of %zu", a->n_in);
    } else {
        const tl_status got =
            f->tl->qlinear_forward(a, begin, end, x, m * a->n_in, m, y, m * a->n_out, work_a, &err);
        fuzz_check_error(f, "qlinear_forward", got, &err, 0);
        const bool good = fuzz_agree(f, "qlinear_forward", got,
                                     f->second->qlinear_forward(b, begin, end, x, m * a->n_in, m, z,
                                                                m * a->n_out, work_b, NULL));
        check_outputs(f, a, w, x, y, m, good ? begin : 0, good ? end : 0);
    }
    f->tl->work_free(work_a);
    f->second->work_free(work_b);
    free(x);
    free(y);
    free(z);
}

static void compare_quantized(fuzz_case *f, const tl_qlinear *a, const tl_qlinear *b,
                              fuzz_tape *tape) {
    const size_t n = a->n_out * a->n_in;
    if (a->qweight_len != b->qweight_len || a->scales_len != b->scales_len ||
        !fuzz_same_bytes(a->qweight, b->qweight, a->qweight_len) ||
        !fuzz_same_bytes(a->scales, b->scales, a->scales_len)) {
        (void)fuzz_wrong(f, "qlinear_quantize: other bytes");
        return;
    }
    float *x = fuzz_alloc(n * sizeof *x);
    float *y = fuzz_alloc(n * sizeof *y);
    if (f->tl->qlinear_dequantize(a, x, n, NULL) != TL_OK ||
        f->second->qlinear_dequantize(b, y, n, NULL) != TL_OK ||
        !fuzz_same_bytes(x, y, n * sizeof *x)) {
        (void)fuzz_wrong(f, "qlinear_dequantize: other bits");
    }
    check_product(f, a, b, x, tape);
    free(x);
    free(y);
}

static void check_quantize(fuzz_case *f, fuzz_tape *tape) {
    const uint8_t style = fuzz_u8(tape);
    const size_t n_out = fuzz_u8(tape) % SIDE_MAX;
    const size_t group = fuzz_u8(tape) % 9;
    const size_t n_in = group * (fuzz_u8(tape) % 4) + (fuzz_u8(tape) % 8 == 0 ? 1 : 0);
    const size_t n = n_out * n_in;
    float *w = fuzz_alloc(n * sizeof *w);
    tl_qlinear a;
    tl_qlinear b;
    const tl_qlinear none = {0};
    tl_error err = fuzz_error();
    for (size_t i = 0; i < n; i++) {
        w[i] = any_weight(tape, style);
    }
    memset(&a, 0xa5, sizeof a);
    memset(&b, 0xa5, sizeof b);
    const tl_status got = f->tl->qlinear_quantize(&a, w, n, n_out, n_in, group, &err);
    fuzz_check_error(f, "qlinear_quantize", got, &err, 0);
    const tl_status want = f->second->qlinear_quantize(&b, w, n, n_out, n_in, group, &err);
    if (got != TL_OK && (a.owned != NULL || a.qweight != none.qweight || a.n_out != 0)) {
        (void)fuzz_wrong(f, "qlinear_quantize: refused, and *out is not {0}");
        memset(&a, 0, sizeof a);
    }
    if (fuzz_agree(f, "qlinear_quantize", got, want)) {
        compare_quantized(f, &a, &b, tape);
    }
    if (got == TL_OK) {
        f->tl->qlinear_clear(&a);
    }
    if (want == TL_OK) {
        f->second->qlinear_clear(&b);
    }
    free(w);
}

static void run(fuzz_case *f, const uint8_t *data, size_t n) {
    fuzz_tape tape = {.data = data, .n = n};
    switch (fuzz_u8(&tape) % 3) {
    case 0:
        while (!fuzz_ended(&tape) && f->wrong[0] == '\0') {
            check_floats(f, &tape);
        }
        break;
    case 1:
        check_pack(f, &tape);
        break;
    default:
        check_quantize(f, &tape);
    }
}

const fuzz_target fuzz_quant = {.name = "quant", .run = run};
