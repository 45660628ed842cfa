/* model_file.c: a file's bytes, and what a file is that should have been safetensors.
 *
 * Source: conformance/spec/safetensors.md, rule 1 and safetensors#foreign. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_plain.h"
#include "util.h"

char *plain_path(const char *dir, const char *name) {
    const size_t n_dir = strlen(dir);
    const size_t n_name = strlen(name);
    char *path = malloc(n_dir + 1 + n_name + 1);
    if (path != NULL) {
        memcpy(path, dir, n_dir);
        path[n_dir] = '/';
        memcpy(path + n_dir + 1, name, n_name + 1);
    }
    return path;
}

static tl_status read_all(int fd, plain_file *file, const char *path, tl_error *err) {
    uint8_t *bytes = malloc(file->n_bytes + 1); /* never of size 0, which may be NULL */
    if (bytes == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for the %zu bytes of %s", file->n_bytes,
                        path);
    }
    size_t done = 0;
    while (done < file->n_bytes) {
        const ssize_t n = read(fd, bytes + done, file->n_bytes - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            const char *why = n == 0 ? "it got shorter while it was read" : strerror(errno);
            free(bytes);
            return tli_fail(err, TL_ERR_IO, "cannot read %s: %s", path, why);
        }
        done += (size_t)n;
    }
    file->bytes = bytes;
    file->owned = bytes;
    return TL_OK;
}

static tl_status take_bytes(int fd, plain_file *file, const char *path, tl_weights_mode mode,
                            size_t max_bytes, tl_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return tli_fail(err, TL_ERR_IO, "cannot look at %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return tli_fail(err, TL_ERR_IO, "%s is no regular file", path);
    }
    if ((uint64_t)st.st_size > max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s has %llu bytes, at most %zu are allowed", path,
                        (unsigned long long)st.st_size, max_bytes);
    }
    file->n_bytes = (size_t)st.st_size;
    if (mode == TL_WEIGHTS_COPY || file->n_bytes == 0) { /* nothing cannot be mapped */
        return read_all(fd, file, path, err);
    }
    void *map = mmap(NULL, file->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        return tli_fail(err, TL_ERR_IO, "cannot map %s: %s", path, strerror(errno));
    }
    file->bytes = map;
    file->mapped = map;
    return TL_OK;
}

tl_status plain_file_open(plain_file *out, const char *path, tl_weights_mode mode, size_t max_bytes,
                          tl_error *err) {
    *out = (plain_file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0) {
        return tli_fail(err, errno == ENOMEM ? TL_ERR_NOMEM : TL_ERR_IO, "cannot open %s: %s", path,
                        strerror(errno));
    }
    const tl_status status = take_bytes(fd, out, path, mode, max_bytes, err);
    (void)close(fd);
    return status;
}

void plain_file_close(plain_file *file) {
    if (file->mapped != NULL) {
        (void)munmap(file->mapped, file->n_bytes);
    }
    free(file->owned);
    *file = (plain_file){0};
}

static bool starts_with(const uint8_t *bytes, size_t n, const char *start, size_t n_start) {
    return n >= n_start && strncasecmp((const char *)bytes, start, n_start) == 0;
}

const char *plain_foreign(const uint8_t *bytes, size_t n) {
    size_t zeros = 0;
    while (zeros < n && bytes[zeros] == 0) {
        zeros++;
    }
    if (n == 0) {
        return " (the file is empty)";
    }
    if (zeros == n) {
        return " (the file is all zeros)";
    }
    if (starts_with(bytes, n, "version https://git-lfs", 23)) {
        return " (it is a Git LFS pointer, not the file itself)";
    }
    if (starts_with(bytes, n, "PK", 2)) {
        return " (it is a ZIP archive, as PyTorch's .bin is)";
    }
    if (starts_with(bytes, n, "GGUF", 4)) {
        return " (it is a GGUF file)";
    }
    if (starts_with(bytes, n, "<!doctype html", 14) || starts_with(bytes, n, "<html", 5)) {
        return " (it is an HTML page)";
    }
    if (n >= 4 && tli_load_u32(bytes) == 0x07160500) {
        return " (it is an AppleDouble file of macOS)";
    }
    return "";
}
