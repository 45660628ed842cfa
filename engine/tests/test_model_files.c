/* Safetensors files on a disk: what stands at the path, sizes past 4 GiB, mapped and copied.
 *
 * Source: conformance/spec/safetensors.md, rule 1; engine/include/tl/model.h on TL_WEIGHTS_COPY. */
#include <sys/stat.h>
#include <unistd.h>

#include "model_fixture.h"

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
        "{\"last\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5368709120,5368709124]},"
        "\"big\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,5368709120]}}";
    static const size_t shape[1] = {1};
    uint8_t value[4];
    float got = 0.0f;
    (void)snprintf(path, sizeof path, "%s/big", dir);
    blob b = make_text_file(header, 0);
    write_file(path, &b);
    tli_store_u32(value, tli_f32_bits(1.5f));
    const off_t end = (off_t)b.n + (off_t)5368709120;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rule_1_what_is_no_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(offsets_past_4_gib, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(copy_outlives_the_file, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
