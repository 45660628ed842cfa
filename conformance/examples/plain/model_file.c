/* model_file.c: a file's bytes, from a directory or from memory, and what a file is that should
 * have been safetensors.
 *
 * Source: conformance/spec/safetensors.md, rule 1 and safetensors#foreign. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model_plain.h"
#include "util.h"

static tl_status read_all(int fd, plain_file *file, const char *path, tl_error *err) {
    uint8_t *bytes = malloc(file->n_bytes + 1); /* never of size 0, which may be NULL */
    if (bytes == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for %zu bytes of %s", file->n_bytes, path);
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
    file->n_bytes = (size_t)st.st_size;
    if (file->n_bytes > max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s has %zu bytes, at most %zu are allowed", path,
                        file->n_bytes, max_bytes);
    }
    if (mode == TL_WEIGHTS_COPY || file->n_bytes == 0) { /* nothing cannot be mapped */
        return read_all(fd, file, path, err);
    }
    void *map = mmap(NULL, file->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        return tli_fail(err, errno == ENOMEM ? TL_ERR_NOMEM : TL_ERR_IO, "cannot map %s: %s", path,
                        strerror(errno));
    }
    file->bytes = map;
    file->mapped = map;
    return TL_OK;
}

tl_status plain_file_open(plain_file *out, const char *path, tl_weights_mode mode, size_t max_bytes,
                          tl_error *err) {
    *out = (plain_file){0};
    int fd;
    do {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return tli_fail(err, TL_ERR_IO, "cannot open %s: %s", path, strerror(errno));
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

/* ------------------------------------------------------------------ folders */

tl_status plain_folder_check(const plain_folder *folder, tl_error *err) {
    if (folder->files == NULL && folder->n_files > 0) {
        return tli_fail(err, TL_ERR_INVALID, "files is NULL");
    }
    for (size_t i = 0; i < folder->n_files; i++) {
        const tl_file_view *file = &folder->files[i];
        if (file->name == NULL || (file->bytes == NULL && file->n_bytes > 0)) {
            return tli_fail(err, TL_ERR_INVALID, "the name or the bytes of file %zu are NULL", i);
        }
    }
    return TL_OK;
}

static const tl_file_view *view_of(const plain_folder *folder, const char *name) {
    for (size_t i = 0; i < folder->n_files; i++) {
        if (strcmp(folder->files[i].name, name) == 0) {
            return &folder->files[i];
        }
    }
    return NULL;
}

/* DIR/NAME in memory of its own. */
static tl_status make_path(const plain_folder *folder, const char *name, char **out,
                           tl_error *err) {
    const size_t n = strlen(folder->dir) + 1 + strlen(name) + 1;
    *out = malloc(n);
    if (*out == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "no memory for a path");
    }
    (void)snprintf(*out, n, "%s/%s", folder->dir, name);
    return TL_OK;
}

tl_status plain_folder_has(const plain_folder *folder, const char *name, bool *there,
                           tl_error *err) {
    char *path;
    struct stat st;
    if (folder->dir == NULL) {
        *there = view_of(folder, name) != NULL;
        return TL_OK;
    }
    TLI_TRY(make_path(folder, name, &path, err));
    *there = stat(path, &st) == 0;
    const int why = errno;
    free(path);
    /* Any other reason than its absence says nothing about what is there. */
    return *there || why == ENOENT || why == ENOTDIR
               ? TL_OK
               : tli_fail(err, TL_ERR_IO, "cannot look at %s: %s", name, strerror(why));
}

tl_status plain_folder_open(const plain_folder *folder, const char *name, tl_weights_mode mode,
                            size_t max_bytes, plain_file *out, tl_error *err) {
    if (folder->dir != NULL) {
        char *path;
        TLI_TRY(make_path(folder, name, &path, err));
        const tl_status status = plain_file_open(out, path, mode, max_bytes, err);
        free(path);
        return status;
    }
    const tl_file_view *view = view_of(folder, name);
    *out = (plain_file){0};
    if (view == NULL) {
        return tli_fail(err, TL_ERR_IO, "there is no file %s", name);
    }
    if (view->n_bytes > max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s has %zu bytes, at most %zu are allowed", name,
                        view->n_bytes, max_bytes);
    }
    static const uint8_t nothing[1];
    out->bytes = view->n_bytes == 0 ? nothing : view->bytes;
    out->n_bytes = view->n_bytes;
    return TL_OK;
}

/* ------------------------------------------------------------------ foreign files */

const char *plain_foreign(const uint8_t *bytes, size_t n) {
    static const struct {
        const char *start;
        const char *kind;
    } kinds[] = {
        {"version https://git-lfs", " (it is a Git LFS pointer and not the file itself)"},
        {"PK\3\4", " (it is a ZIP archive, as PyTorch's .bin is)"},
        {"PK\5\6", " (it is a ZIP archive without members)"},
        {"GGUF", " (it is a GGUF file)"},
        {"<!doctype", " (it is an HTML page)"},
        {"<html", " (it is an HTML page)"},
        {"<head", " (it is an HTML page)"},
        {"<body", " (it is an HTML page)"},
    };
    size_t zeros = 0;
    while (zeros < n && bytes[zeros] == 0) {
        zeros++;
    }
    if (zeros == n) {
        return n == 0 ? " (the file is empty)" : " (the file is all zeros)";
    }
    if (n >= 4 && tli_load_u32(bytes) == 0x07160500) {
        return " (it is an AppleDouble file of macOS)";
    }
    while (n > 0 && strchr(" \t\r\n", bytes[0]) != NULL) {
        bytes++;
        n--;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n_start = strlen(kinds[i].start);
        if (n >= n_start && strncasecmp((const char *)bytes, kinds[i].start, n_start) == 0) {
            return kinds[i].kind;
        }
    }
    return "";
}
