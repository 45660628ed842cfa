/* model_numbers.c: tensors as they lie in a file, and int4 groups as safetensors#int4 defines them:
 * the judge's own second opinion for the files that it makes. */
#include "model_maker.h"
#include "naive_quant.h"

#include <math.h>
#include <string.h>

static uint16_t get_u16(const uint8_t *bytes) {
    return (uint16_t)(bytes[0] | (bytes[1] << 8));
}

static void put_u16(uint8_t *bytes, uint16_t v) {
    bytes[0] = (uint8_t)(v & 0xffu);
    bytes[1] = (uint8_t)(v >> 8);
}

static float f16_value(uint16_t h) {
    return naive_f32_of(naive_f16_widen(h));
}

static float bf16_value(uint16_t h) {
    return naive_f32_of((uint32_t)h << 16);
}

size_t tm_dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        size_t n_bytes;
    } sizes[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"U8", 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (strcmp(dtype, sizes[i].name) == 0) {
            return sizes[i].n_bytes;
        }
    }
    return 0;
}

bool tm_widen(const char *dtype, const uint8_t *bytes, size_t n, float *values) {
    size_t width = tm_dtype_bytes(dtype);
    if (width < 2) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = bytes + i * width;
        if (width == 4) {
            values[i] = naive_f32_of(get_u16(at) | ((uint32_t)get_u16(at + 2) << 16));
        } else {
            values[i] = dtype[0] == 'F' ? f16_value(get_u16(at)) : bf16_value(get_u16(at));
        }
    }
    return true;
}

void tm_store(const char *dtype, float *values, size_t n, uint8_t *bytes) {
    size_t width = tm_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        uint8_t *at = bytes + i * width;
        if (width == 4) {
            put_u16(at, (uint16_t)(naive_f32_bits(values[i]) & 0xffffu));
            put_u16(at + 2, (uint16_t)(naive_f32_bits(values[i]) >> 16));
        } else {
            /* A drawn weight has no true value, so cutting it is as good as rounding for BF16. */
            put_u16(at, dtype[0] == 'F' ? naive_f16_round(naive_f32_bits(values[i]))
                                        : (uint16_t)(naive_f32_bits(values[i]) >> 16));
        }
    }
    (void)tm_widen(dtype, bytes, n, values);
}

uint16_t tm_quantize_group(const float *w, size_t g, int8_t *q) {
    float largest = 0.0f;
    for (size_t i = 0; i < g; i++) {
        largest = fmaxf(largest, fabsf(w[i]));
    }
    float quotient = largest / 7.0f;
    uint16_t stored = naive_f16_round(naive_f32_bits(quotient));
    float scale = f16_value(stored);
    for (size_t i = 0; i < g; i++) {
        float rounded = scale > 0.0f ? rintf(w[i] / scale) : 0.0f;
        q[i] = (int8_t)fminf(fmaxf(rounded, -8.0f), 7.0f);
    }
    return stored;
}
