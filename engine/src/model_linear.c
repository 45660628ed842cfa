/* model_linear.c: one linear layer, dense or int4: check, then multiply.
 *
 * The only place where forward does not need to know how weights are stored.
 *
 * Source: conformance/spec/forward.md, forward#linear. */
#include "tl/model.h"

#include "util.h"

static tl_status check_rows(const tl_matrix *w, size_t row_begin, size_t row_end,
                            const tl_work *work, tl_error *err) {
    const bool is_dense =
        w->kind == TL_MATRIX_F32 || w->kind == TL_MATRIX_F16 || w->kind == TL_MATRIX_BF16;
    if (!is_dense || w->data == NULL) {
        return tli_fail(err, TL_ERR_INVALID, "linear: kind %d is not dense, or its data is NULL",
                        (int)w->kind);
    }
    if (w->n_out == 0 || w->n_in == 0) {
        return tli_fail(err, TL_ERR_INVALID, "linear: shape %zu x %zu has a zero", w->n_out,
                        w->n_in);
    }
    if (row_begin > row_end || row_end > w->n_out) {
        return tli_fail(err, TL_ERR_INVALID, "linear: rows %zu to %zu, there are %zu", row_begin,
                        row_end, w->n_out);
    }
    if (work == NULL || tl_work_max_n_in(work) < w->n_in) {
        return tli_fail(err, TL_ERR_INVALID,
                        "linear: work is NULL or made for rows shorter than %zu", w->n_in);
    }
    return TL_OK;
}

static tl_status check_vectors(const tl_matrix *w, const float *x, size_t x_len, size_t m,
                               const float *y, size_t y_len, tl_error *err) {
    size_t n_x = 0;
    size_t n_y = 0;
    if (!tli_mul(m, w->n_in, &n_x) || x_len != n_x || (x == NULL && x_len != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "linear: x is NULL, or x_len is %zu and not %zu x %zu",
                        x_len, m, w->n_in);
    }
    if (!tli_mul(m, w->n_out, &n_y) || y_len != n_y || (y == NULL && y_len != 0)) {
        return tli_fail(err, TL_ERR_INVALID, "linear: y is NULL, or y_len is %zu and not %zu x %zu",
                        y_len, m, w->n_out);
    }
    return TL_OK;
}

tl_status tl_linear_forward(const tl_linear *linear, size_t row_begin, size_t row_end,
                            const float *x, size_t x_len, size_t m, float *y, size_t y_len,
                            tl_work *work, tl_error *err) {
    if (linear == NULL || (linear->kind != TL_LINEAR_DENSE && linear->kind != TL_LINEAR_Q4)) {
        return tli_fail(err, TL_ERR_INVALID, "linear: it is NULL, or of no kind");
    }
    if (linear->kind == TL_LINEAR_Q4) {
        return tl_qlinear_forward(&linear->as.q4, row_begin, row_end, x, x_len, m, y, y_len, work,
                                  err);
    }
    const tl_matrix *w = &linear->as.dense;
    TLI_TRY(check_rows(w, row_begin, row_end, work, err));
    TLI_TRY(check_vectors(w, x, x_len, m, y, y_len, err));
    if (m != 0) {
        tl_ops_matmul(work, w, row_begin, row_end, x, m, y);
    }
    return TL_OK;
}

size_t tl_linear_n_out(const tl_linear *linear) {
    if (linear == NULL) {
        return 0;
    }
    return linear->kind == TL_LINEAR_Q4 ? linear->as.q4.n_out : linear->as.dense.n_out;
}

size_t tl_linear_n_in(const tl_linear *linear) {
    if (linear == NULL) {
        return 0;
    }
    return linear->kind == TL_LINEAR_Q4 ? linear->as.q4.n_in : linear->as.dense.n_in;
}

void tl_linear_clear(tl_linear *linear) {
    const tl_linear none = {0};
    if (linear == NULL) {
        return;
    }
    if (linear->kind == TL_LINEAR_Q4) {
        tl_qlinear_clear(&linear->as.q4);
    }
    *linear = none;
}
