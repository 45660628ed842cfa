/* host_faults.c: lets calls fail under an engine, the first time or a later one: those for memory,
 * for host_memory.c, which is told here what is held, too; and, in the op `faults`, opening,
 * looking at, mapping and reading a file. An interrupted call must be made again and a short read
 * be continued; what fails is IO, or NOMEM where the system says that memory is short.
 *
 * The functions below stand before the C library's of the same names, since the program comes first
 * where a library's calls are resolved. An engine that makes its calls in another way never meets a
 * fault, and nothing is asked of it. Not under a sanitizer, which does the same with these names,
 * and with glibc only, which has its own functions under further names.
 *
 * Source: conformance/spec/testee.md, Failing calls. */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum faulty { ON_MEMORY, ON_OPEN, ON_FSTAT, ON_STAT, ON_MMAP, ON_READ, N_FAULTY } faulty;

#define SHORT_READ 0     /* instead of an error: one byte */
#define END_OF_FILE (-1) /* instead of an error: none, as in a file that was cut meanwhile */

static struct {
    bool is_armed;
    faulty call;
    int error;
    unsigned skipped; /* calls that still go well */
    bool is_lasting;  /* all calls after it fail, too */
    bool was_met;
} fault;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define NO_FAULTS
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define NO_FAULTS
#endif

static _Atomic int64_t n_blocks;
static _Atomic int64_t n_maps;

host_holdings host_held(void) {
    return (host_holdings){.n_blocks = n_blocks, .n_maps = n_maps};
}

static void arm(faulty call, int error, unsigned skipped) {
    fault.call = call;
    fault.error = error;
    fault.skipped = skipped;
    fault.is_lasting = false;
    fault.was_met = false;
    fault.is_armed = true;
}

static bool disarm(void) {
    fault.is_armed = false;
    return fault.was_met;
}

void host_refuse_memory(unsigned skipped, bool is_lasting) {
    arm(ON_MEMORY, ENOMEM, skipped);
    fault.is_lasting = is_lasting;
}

bool host_grant_memory(void) {
    return disarm();
}

#if !defined(NO_FAULTS)

static bool fails(faulty call) {
    if (!fault.is_armed || fault.call != call) {
        return false;
    }
    if (fault.skipped > 0) {
        fault.skipped--;
        return false;
    }
    fault.is_armed = fault.is_lasting;
    fault.was_met = true;
    errno = fault.error;
    return true;
}

#define SEEN __attribute__((visibility("default"))) /* for other objects */

/* NOLINTBEGIN(bugprone-reserved-identifier): glibc's names. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t n);
extern void *__libc_memalign(size_t alignment, size_t n);
extern void __libc_free(void *block);
/* NOLINTEND(bugprone-reserved-identifier) */

static void *counted(void *block) {
    n_blocks += block != NULL;
    return block;
}

SEEN void *malloc(size_t n) {
    return fails(ON_MEMORY) ? NULL : counted(__libc_malloc(n));
}

SEEN void *calloc(size_t n, size_t size) {
    return fails(ON_MEMORY) ? NULL : counted(__libc_calloc(n, size));
}

SEEN void *realloc(void *block, size_t n) {
    if (fails(ON_MEMORY)) {
        return NULL;
    }
    void *moved = __libc_realloc(block, n);
    n_blocks += block == NULL && moved != NULL;
    n_blocks -= block != NULL && moved == NULL && n == 0; /* which frees it */
    return moved;
}

SEEN void *memalign(size_t alignment, size_t n) {
    return fails(ON_MEMORY) ? NULL : counted(__libc_memalign(alignment, n));
}

SEEN void *aligned_alloc(size_t alignment, size_t n) {
    return memalign(alignment, n);
}

SEEN int posix_memalign(void **block, size_t alignment, size_t n) {
    void *made = memalign(alignment, n);
    if (made == NULL) {
        return ENOMEM;
    }
    *block = made;
    return 0;
}

SEEN void free(void *block) {
    n_blocks -= block != NULL;
    __libc_free(block);
}

/* Each under the two names that it has in the C library. */
/* NOLINTBEGIN(bugprone-macro-parentheses): names, which parentheses would turn into nothing. */
#define NAMED(function, name, other)                                                               \
    SEEN extern __typeof__(function) function __asm__(name);                                       \
    SEEN extern __typeof__(function) function##_too __asm__(other) __attribute__((alias(name)))
/* NOLINTEND(bugprone-macro-parentheses) */

int faulty_open(const char *path, int flags, ...);
NAMED(faulty_open, "open64", "open");
int faulty_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const int mode = (flags & O_CREAT) != 0 ? va_arg(args, int) : 0;
    va_end(args);
    return fails(ON_OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What a call that failed has written may be anything, also what looks sound. */
int faulty_fstat(int fd, struct stat *about);
NAMED(faulty_fstat, "fstat64", "fstat");
int faulty_fstat(int fd, struct stat *about) {
    const int status = fstatat(fd, "", about, AT_EMPTY_PATH);
    return fails(ON_FSTAT) ? -1 : status;
}

int faulty_stat(const char *path, struct stat *about);
NAMED(faulty_stat, "stat64", "stat");
int faulty_stat(const char *path, struct stat *about) {
    const int status = fstatat(AT_FDCWD, path, about, 0);
    return fails(ON_STAT) ? -1 : status;
}

void *faulty_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
NAMED(faulty_mmap, "mmap64", "mmap");
void *faulty_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails(ON_MMAP)) {
        return MAP_FAILED;
    }
    void *map = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    n_maps += map != MAP_FAILED;
    return map;
}

SEEN int faulty_munmap(void *at, size_t n) __asm__("munmap");
int faulty_munmap(void *at, size_t n) {
    const int status = (int)syscall(SYS_munmap, at, n);
    n_maps -= status == 0;
    return status;
}

/* false: the call fails; a short one reads a byte. errno means nothing after a success. */
static bool may_read(size_t *n) {
    if (!fails(ON_READ)) {
        return true;
    }
    *n = *n > 0 && fault.error == SHORT_READ ? 1 : 0;
    errno = fault.error > 0 ? fault.error : EINTR;
    return fault.error <= 0;
}

SEEN ssize_t faulty_read(int fd, void *to, size_t n) __asm__("read");
ssize_t faulty_read(int fd, void *to, size_t n) {
    return may_read(&n) ? syscall(SYS_read, fd, to, n) : -1;
}

ssize_t faulty_pread(int fd, void *to, size_t n, off_t offset);
NAMED(faulty_pread, "pread64", "pread");
ssize_t faulty_pread(int fd, void *to, size_t n, off_t offset) {
    return may_read(&n) ? syscall(SYS_pread64, fd, to, n, offset) : -1;
}

#endif

/* ------------------------------------------------------------------ the op */

static const struct {
    faulty call;
    const char *name;
    int error;
    tl_status due; /* TL_OK: it must be as if nothing had been */
} faults[] = {{ON_OPEN, "open", EINTR, TL_OK},         {ON_OPEN, "open", EMFILE, TL_ERR_IO},
              {ON_FSTAT, "fstat", EIO, TL_ERR_IO},     {ON_STAT, "stat", EACCES, TL_ERR_IO},
              {ON_STAT, "stat", EPERM, TL_ERR_IO},     {ON_STAT, "stat", ELOOP, TL_ERR_IO},
              {ON_MMAP, "mmap", ENOMEM, TL_ERR_NOMEM}, {ON_MMAP, "mmap", EACCES, TL_ERR_IO},
              {ON_MMAP, "mmap", EOVERFLOW, TL_ERR_IO}, {ON_READ, "read", EINTR, TL_OK},
              {ON_READ, "read", EIO, TL_ERR_IO},       {ON_READ, "read", EPERM, TL_ERR_IO},
              {ON_READ, "read", SHORT_READ, TL_OK},    {ON_READ, "read", END_OF_FILE, TL_ERR_IO}};

/* Load the model; false: the fault was never met. */
static bool load_faulty(host *h, const char *dir, tl_weights_mode mode, size_t i,
                        unsigned skipped) {
    const tl_model_load_cfg cfg = {.weights = mode};
    tl_error err = host_error();
    tl_model *model = host_unset();
    arm(faults[i].call, faults[i].error, skipped);
    const tl_status status = h->tl.model_load(&model, dir, &cfg, &err);
    const bool was_met = disarm();
    host_expect(h, !was_met || status == faults[i].due, TL_OK,
                "model_load where %s number %u is answered with error %d gives status %d, must "
                "be %d",
                faults[i].name, skipped + 1, faults[i].error, (int)status, (int)faults[i].due);
    if (status == TL_OK) {
        h->tl.model_free(model);
    }
    return was_met;
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static size_t load_with_faults(host *h, const char *dir) {
    static const tl_weights_mode modes[] = {TL_WEIGHTS_MAP, TL_WEIGHTS_COPY};
    const bool was_open = is_open(STDIN_FILENO);
    size_t n_met = 0;
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            for (unsigned skipped = 0; load_faulty(h, dir, modes[m], i, skipped); skipped++) {
                n_met++;
            }
            host_expect(h, is_open(STDIN_FILENO) == was_open && is_open(STDOUT_FILENO), TL_OK,
                        "model_load where %s is answered with error %d leaves other descriptors "
                        "open than it found",
                        faults[i].name, faults[i].error);
        }
    }
    return n_met;
}

static bool op_faults(host *h, const json_t *in, json_t *out) {
    const char *dir = host_arg_text(h, in, "dir");
    if (!host_ready(h)) {
        return false;
    }
    size_t n_met = load_with_faults(h, dir);
    /* And once more where 0 is what opening gives: a descriptor as good as any. */
    const int aside = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (aside >= 0) {
        (void)close(STDIN_FILENO);
        n_met += load_with_faults(h, dir);
        (void)dup2(aside, STDIN_FILENO);
        (void)close(aside);
    }
    host_put_int(out, "met", n_met);
    return true;
}

const host_op host_fault_ops[] = {{"faults", op_faults}, {NULL, NULL}};
