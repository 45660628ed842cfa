/* Safetensors files on a disk: what stands at the path, sizes past 4 GiB, mapped and copied.
 *
 * Source: conformance/spec/safetensors.md, rule 1; engine/include/tl/model.h on TL_WEIGHTS_COPY. */
#include <sys/stat.h>
#include <unistd.h>

#include "model_fixture.h"
#include "model_internal.h"

#define FORMAT TL_ERR_FORMAT
#define ONE_F32 "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tl-tensors-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_dir(void **state) {
    (void)state;
    return rmdir(dir);
}

static void write_file(const char *path, const blob *b) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->n, f), b->n);
    assert_int_equal(fclose(f), 0);
}

static tl_status open_both(const char *path, tl_error *err) {
    tl_safetensors *st = NULL;
    tl_error other = fresh_error();
    const tl_status copied = tl_safetensors_open(&st, path, TL_WEIGHTS_COPY, &other);
    tl_safetensors_free(st);
    const tl_status mapped = tl_safetensors_open(&st, path, TL_WEIGHTS_MAP, err);
    tl_safetensors_free(st);
    assert_int_equal(copied, mapped);
    if (mapped != TL_OK) {
        assert_string_equal(err->text, other.text);
    }
    return mapped;
}

static void rule_1_what_is_no_file(void **state) {
    (void)state;
    char path[96];
    char link_path[96];
    tl_error err = fresh_error();
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    (void)snprintf(link_path, sizeof link_path, "%s/link", dir);
    check_refusal(open_both(path, &err), &err, TL_ERR_IO, path, "missing");
    assert_int_equal(mkdir(path, 0700), 0);
    check_refusal(open_both(path, &err), &err, TL_ERR_IO, "directory", "directory");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refusal(open_both(path, &err), &err, TL_ERR_IO, "regular", "fifo");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    check_refusal(open_both(path, &err), &err, TL_ERR_IO, "regular", "zero device");
    assert_int_equal(unlink(path), 0);
    blob b = make_text_file(ONE_F32, 4);
    write_file(path, &b);
    assert_int_equal(open_both(path, &err), TL_OK);
    assert_int_equal(symlink("model.safetensors", link_path), 0);
    assert_int_equal(open_both(link_path, &err), TL_OK);
    assert_int_equal(unlink(link_path), 0);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        check_refusal(open_both(path, &err), &err, TL_ERR_IO, path, "unreadable");
    }
    assert_int_equal(truncate(path, (off_t)b.n - 1), 0);
    check_refusal(open_both(path, &err), &err, FORMAT, path, "cut");
    assert_int_equal(truncate(path, 7), 0);
    check_refusal(open_both(path, &err), &err, FORMAT, "7 bytes", "7 bytes");
    assert_int_equal(truncate(path, 0), 0);
    check_refusal(open_both(path, &err), &err, FORMAT, "empty file", "empty");
    assert_int_equal(unlink(path), 0);
    blob_clear(&b);
}

/* Offsets past 32 bits, in a sparse file of 5 GiB that is mapped and never read but at its end. */
static void offsets_past_4_gib(void **state) {
    (void)state;
    char path[96];
    tl_error err = fresh_error();
    static const char header[] =
        "{\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5368709121,5368709122]},"
        "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5368709120,5368709121]},"
        "\"last\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5368709122,5368709126]},"
        "\"big\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,5368709120]}}";
    static const size_t shape[1] = {1};
    uint8_t value[4];
    float got = 0.0f;
    (void)snprintf(path, sizeof path, "%s/big", dir);
    blob b = make_text_file(header, 0);
    write_file(path, &b);
    tli_store_u32(value, tli_f32_bits(1.5f));
    const off_t end = (off_t)b.n + (off_t)5368709122;
    if (truncate(path, end + 4) != 0) {
        assert_int_equal(unlink(path), 0);
        blob_clear(&b);
        skip(); /* a file system without room for it */
    }
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseeko(f, end, SEEK_SET), 0);
    assert_int_equal(fwrite(value, 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
    tl_safetensors *st = NULL;
    if (tl_safetensors_open(&st, path, TL_WEIGHTS_MAP, &err) != TL_OK) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(tl_safetensors_f32(st, "last", shape, 1, &got, 1, &err), TL_OK);
    assert_true(got == 1.5f);
    tl_safetensors_free(st);
    assert_int_equal(truncate(path, end + 3), 0);
    check_refusal(tl_safetensors_open(&st, path, TL_WEIGHTS_MAP, &err), &err, FORMAT, "'last'",
                  "one byte short");
    assert_int_equal(unlink(path), 0);
    blob_clear(&b);
}

/* With TL_WEIGHTS_COPY nothing that happens to the file afterwards shows. */
static void copy_outlives_the_file(void **state) {
    (void)state;
    char path[96];
    tl_error err = fresh_error();
    static const size_t shape[1] = {1};
    float got[2] = {0};
    tl_safetensors *st = NULL;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    blob b = make_text_file(ONE_F32, 4);
    write_file(path, &b);
    assert_int_equal(tl_safetensors_open(&st, path, TL_WEIGHTS_COPY, &err), TL_OK);
    assert_int_equal(tl_safetensors_f32(st, "a", shape, 1, &got[0], 1, &err), TL_OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tl_safetensors_f32(st, "a", shape, 1, &got[1], 1, &err), TL_OK);
    assert_memory_equal(&got[0], &got[1], sizeof got[0]);
    tl_safetensors_free(st);
    blob_clear(&b);
}

/* A mapped header of more than 4 MiB, whose pages are given back while it is read: they come
 * again, for the message about its last byte too. */
static void long_headers_are_forgotten(void **state) {
    (void)state;
    char path[96];
    tl_error err = fresh_error();
    static const size_t shape[1] = {1};
    (void)snprintf(path, sizeof path, "%s/long", dir);
    for (size_t twice = 0; twice < 2; twice++) {
        blob header = {0};
        blob_text(&header, "{");
        for (size_t i = 0; i < 3; i++) {
            char text[96];
            (void)snprintf(text, sizeof text,
                           "%s\"__%zu\":{\"dtype\":\"F32\",\"shape\":[1],\"x\":\"",
                           i == 0 ? "" : ",", twice == 1 && i == 2 ? 0 : i);
            blob_text(&header, text);
            for (size_t k = 0; k < 90000; k++) {
                blob_text(&header, "forty-eight letters that nobody reads, many a time");
            }
            (void)snprintf(text, sizeof text, "\",\"data_offsets\":[%zu,%zu]}", 4 * i, 4 * i + 4);
            blob_text(&header, text);
        }
        blob_text(&header, "}");
        blob b = make_file((const char *)header.data, header.n, 12);
        write_file(path, &b);
        tl_safetensors *st = NULL;
        const tl_status status = tl_safetensors_open(&st, path, TL_WEIGHTS_MAP, &err);
        if (twice == 0) {
            float got = 0.0f;
            assert_int_equal(status, TL_OK);
            assert_int_equal(tl_safetensors_f32(st, "__2", shape, 1, &got, 1, &err), TL_OK);
            assert_int_equal(tli_f32_bits(got), tli_load_u32(b.data + b.n - 4));
        } else {
            check_refusal(status, &err, FORMAT, "'__0'", "twice");
            assert_memory_equal(b.data + err.offset, "\"__0\"", 5);
            assert_true(err.offset > b.n / 2);
        }
        tl_safetensors_free(st);
        blob_clear(&b);
        blob_clear(&header);
    }
    assert_int_equal(unlink(path), 0);
}

/* The size counts that was taken first: a file that got shorter since is no half-read success. */
static void file_shrinks_while_it_is_read(void **state) {
    (void)state;
    char path[96];
    tl_error err = fresh_error();
    tli_file file = {.fd = -1};
    tli_bytes bytes = {0};
    uint8_t head[8];
    (void)snprintf(path, sizeof path, "%s/shrinks", dir);
    blob b = make_text_file(ONE_F32, 4);
    write_file(path, &b);
    assert_int_equal(tli_file_open(&file, path, &err), TL_OK);
    assert_int_equal(file.n_bytes, b.n);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(tli_file_peek(&file, head, sizeof head, &err), TL_OK);
    check_refusal(tli_file_bytes(&file, TL_WEIGHTS_COPY, &bytes, &err), &err, TL_ERR_IO,
                  "ends after 20", "shrunk");
    assert_null(bytes.owned);
    /* Growing changes nothing either. */
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(tli_file_bytes(&file, TL_WEIGHTS_COPY, &bytes, &err), TL_OK);
    assert_int_equal(bytes.n, b.n);
    tli_bytes_clear(&bytes);
    tli_file_close(&file);
    check_refusal(tli_file_bytes(&file, TL_WEIGHTS_COPY, &bytes, &err), &err, TL_ERR_IO, "read",
                  "closed");
    check_refusal(tli_file_bytes(&file, TL_WEIGHTS_MAP, &bytes, &err), &err, TL_ERR_IO, "map",
                  "closed");
    assert_int_equal(unlink(path), 0);
    blob_clear(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rule_1_what_is_no_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(offsets_past_4_gib, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(copy_outlives_the_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(long_headers_are_forgotten, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(file_shrinks_while_it_is_read, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
