/* lib_wrong.c: engines that are not hostile, only wrong, each in one way: they show the classes
 * that honest mistakes end in. */
#include "hostile.h"

tl_status tl_kv_pool_new(tl_kv_pool **out, const tl_kv_cfg *cfg, tl_error *err) {
    if (hostile_is("accepts_no_blocks") && cfg != NULL && cfg->n_blocks == 0) {
        tl_kv_cfg larger = *cfg;
        larger.n_blocks = 1;
        return real_tl_kv_pool_new(out, &larger, err);
    }
    return real_tl_kv_pool_new(out, cfg, err);
}

tl_status tl_int4_pack(const int8_t *q, size_t q_len, size_t rows, size_t cols, uint8_t *packed,
                       size_t packed_len, tl_error *err) {
    tl_status status = real_tl_int4_pack(q, q_len, rows, cols, packed, packed_len, err);
    for (size_t i = 0; status == TL_OK && hostile_is("wrong_int4") && i < packed_len; i++) {
        packed[i] = (uint8_t)(packed[i] << 4 | packed[i] >> 4);
    }
    return status;
}

tl_status tl_qlinear_forward(const tl_qlinear *q, size_t row_begin, size_t row_end, const float *x,
                             size_t x_len, size_t m, float *y, size_t y_len, tl_work *work,
                             tl_error *err) {
    tl_status status =
        real_tl_qlinear_forward(q, row_begin, row_end, x, x_len, m, y, y_len, work, err);
    if (status == TL_OK && hostile_is("wrong_int4") && row_begin < row_end && m > 0) {
        y[row_begin] += 1.0f;
    }
    return status;
}

uint32_t tl_abi_version(void) {
    return hostile_is("other_abi") ? (TL_ABI_MAJOR + 1) << 16 : real_tl_abi_version();
}
