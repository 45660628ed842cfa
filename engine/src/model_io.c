/* model_io.c: open, look, map, read; every step of it can fail, and says why with the path.
 *
 * A path is whatever somebody put there: a directory, a FIFO, a device of endless zeros. So it
 * is opened without blocking, must be a regular file, and is judged by the one size that fstat
 * gave. Nothing is mapped before the caller has seen the first bytes.
 *
 * Source: conformance/spec/safetensors.md, rule 1. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* madvise */
#define _FILE_OFFSET_BITS 64

#include "model_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

/* One read asks for no more: Linux takes at most 2 GiB less a page at a time, macOS less than 2
 * GiB. */
#define READ_MAX ((size_t)1 << 30)

static tl_status fail_errno(tl_error *err, int number, const char *path, const char *what) {
    char reason[96];
    if (strerror_r(number, reason, sizeof reason) != 0) {
        reason[0] = '\0';
    }
    return tli_fail(err, TL_ERR_IO, "%s: cannot %s: %s", path, what, reason);
}

static tl_status check_kind(const struct stat *st, const char *path, tl_error *err) {
    if (S_ISDIR(st->st_mode)) {
        return tli_fail(err, TL_ERR_IO, "%s: is a directory, not a regular file", path);
    }
    if (!S_ISREG(st->st_mode)) {
        return tli_fail(err, TL_ERR_IO, "%s: is not a regular file", path);
    }
    if (st->st_size < 0 || (uintmax_t)st->st_size > PTRDIFF_MAX) {
        return tli_fail(err, TL_ERR_IO, "%s: is larger than memory can be addressed", path);
    }
    return TL_OK;
}

tl_status tli_file_open(tli_file *out, const char *path, tl_error *err) {
    struct stat st;
    int fd = -1;
    do {
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        return fail_errno(err, errno, path, "open");
    }
    tl_status status = TL_OK;
    if (fstat(fd, &st) != 0) {
        status = fail_errno(err, errno, path, "look at");
    } else {
        status = check_kind(&st, path, err);
    }
    if (status != TL_OK) {
        (void)close(fd);
        return status;
    }
    out->fd = fd;
    out->n_bytes = (size_t)st.st_size;
    out->path = path;
    return TL_OK;
}

void tli_file_close(tli_file *file) {
    (void)close(file->fd); /* opened for reading: nothing can be lost */
    file->fd = -1;
}

/* Read n bytes from the start of the file; a short read is continued, an interrupted one
 * repeated. */
static tl_status read_all(const tli_file *file, uint8_t *dst, size_t n, tl_error *err) {
    size_t n_read = 0;
    while (n_read < n) {
        const size_t n_left = n - n_read;
        const size_t n_ask = n_left < READ_MAX ? n_left : READ_MAX;
        const ssize_t got = pread(file->fd, dst + n_read, n_ask, (off_t)n_read);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail_errno(err, errno, file->path, "read");
        }
        if (got == 0) {
            return tli_fail(err, TL_ERR_IO, "%s: had %zu bytes when opened and ends after %zu",
                            file->path, file->n_bytes, n_read);
        }
        n_read += (size_t)got;
    }
    return TL_OK;
}

tl_status tli_file_peek(const tli_file *file, uint8_t *dst, size_t n, tl_error *err) {
    const size_t n_there = n < file->n_bytes ? n : file->n_bytes;
    return read_all(file, dst, n_there, err);
}

static tl_status map_file(const tli_file *file, tli_bytes *out, tl_error *err) {
    void *map = mmap(NULL, file->n_bytes, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED) {
        if (errno == ENOMEM) {
            return tli_fail(err, TL_ERR_NOMEM, "%s: no room to map its %zu bytes", file->path,
                            file->n_bytes);
        }
        return fail_errno(err, errno, file->path, "map");
    }
    out->data = (const uint8_t *)map;
    out->owned = map;
    return TL_OK;
}

static tl_status copy_file(const tli_file *file, tli_bytes *out, tl_error *err) {
    uint8_t *copy = (uint8_t *)malloc(file->n_bytes);
    if (copy == NULL) {
        return tli_fail(err, TL_ERR_NOMEM, "%s: no memory for its %zu bytes", file->path,
                        file->n_bytes);
    }
    const tl_status status = read_all(file, copy, file->n_bytes, err);
    if (status != TL_OK) {
        free(copy);
        return status;
    }
    out->data = copy;
    out->owned = copy;
    return TL_OK;
}

tl_status tli_file_bytes(const tli_file *file, tl_weights_mode mode, tli_bytes *out,
                         tl_error *err) {
    const tli_bytes none = {.mode = mode};
    *out = none;
    if (file->n_bytes == 0) {
        return TL_OK; /* nothing to hold, and a map of nothing is an error to the system */
    }
    TLI_TRY(mode == TL_WEIGHTS_MAP ? map_file(file, out, err) : copy_file(file, out, err));
    out->n = file->n_bytes;
    return TL_OK;
}

void tli_bytes_clear(tli_bytes *bytes) {
    const tli_bytes none = {0};
    if (bytes->owned != NULL && bytes->mode == TL_WEIGHTS_MAP) {
        (void)munmap(bytes->owned, bytes->n);
    } else {
        free(bytes->owned);
    }
    *bytes = none;
}

void tli_bytes_forget(const tli_bytes *bytes, size_t begin, size_t end) {
    const long page = sysconf(_SC_PAGESIZE);
    if (bytes->owned == NULL || bytes->mode != TL_WEIGHTS_MAP || page <= 0) {
        return;
    }
    /* Whole pages only, and all of them inside the map. */
    const size_t size = (size_t)page;
    const size_t first = begin / size * size;
    const size_t last = end / size * size;
    if (last > first) {
        (void)madvise((uint8_t *)bytes->owned + first, last - first, MADV_DONTNEED);
    }
}

static tl_status read_small(const tli_file *file, tli_bytes *out, size_t max_bytes, tl_error *err) {
    if (file->n_bytes > max_bytes) {
        return tli_fail(err, TL_ERR_FORMAT, "%s: %zu bytes, at most %zu are allowed", file->path,
                        file->n_bytes, max_bytes);
    }
    return tli_file_bytes(file, TL_WEIGHTS_COPY, out, err);
}

tl_status tli_file_read(tli_bytes *out, const char *path, size_t max_bytes, tl_error *err) {
    tli_file file = {.fd = -1};
    const tli_bytes none = {0};
    *out = none;
    TLI_TRY(tli_file_open(&file, path, err));
    const tl_status status = read_small(&file, out, max_bytes, err);
    tli_file_close(&file);
    return status;
}

tl_status tli_file_exists(const char *path, bool *out, tl_error *err) {
    struct stat st;
    const bool is_there = stat(path, &st) == 0;
    /* Any other reason than its absence says nothing about what is there. */
    if (!is_there && errno != ENOENT && errno != ENOTDIR) {
        return fail_errno(err, errno, path, "look at");
    }
    *out = is_there;
    return TL_OK;
}

char *tli_path_join(const char *dir, const char *name) {
    const size_t n_dir = strlen(dir);
    const size_t n_name = strlen(name);
    char *path = (char *)malloc(n_dir + n_name + 2);
    if (path == NULL) {
        return NULL;
    }
    memcpy(path, dir, n_dir);
    path[n_dir] = '/';
    memcpy(path + n_dir + 1, name, n_name);
    path[n_dir + 1 + n_name] = '\0';
    return path;
}
