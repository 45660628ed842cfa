/* files.c: the directory of the child, and what a test puts there; see test.h.
 *
 * The directory belongs to the child, which may have put anything there: links to elsewhere,
 * folders in the place of files. So every step is taken from a descriptor of the directory, no link
 * is followed, and files are made anew. As root a careless write here would be a write anywhere. */
#include "child_private.h"
#include "context.h"

#include "wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECES_MAX ((size_t)4 << 20)
#define MODEL_FILE_MAX ((size_t)64 << 20)

bool ol_dir_make(const ol_setup *setup, const char *path, uid_t uid, ol_fault *fault) {
    if (mkdir(path, 0700) != 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "cannot make %s: %s", path, strerror(errno));
    }
    if (setup->sandbox.own_uid && chown(path, uid, (gid_t)uid) != 0) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "cannot give %s to uid %u: %s", path,
                            (unsigned)uid, strerror(errno));
    }
    return true;
}

/* ------------------------------------------------------------------ removal */

/* Remove what is no folder from an open folder, up to the first folder; its name, or "" when none
 * is left. false: it cannot be read. */
static bool clear_level(int fd, char *folder, size_t cap) {
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    folder[0] = '\0';
    if (dir == NULL) {
        child_close(&again);
        return false;
    }
    for (struct dirent *e = readdir(dir); folder[0] == '\0' && e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (e->d_type == DT_DIR || unlinkat(fd, e->d_name, 0) != 0) {
            ol_format(folder, cap, "%s", e->d_name);
        }
    }
    (void)closedir(dir);
    return true;
}

/* The names of the folders on the way down, so that each is removed on the way up. */
typedef struct way {
    char (*names)[256];
    size_t depth;
    size_t cap;
} way;

static bool go_down(way *w, const char *name) {
    if (w->depth == w->cap) {
        size_t cap = w->cap == 0 ? 16 : 2 * w->cap;
        char(*names)[256] = realloc(w->names, cap * sizeof *names);
        if (names == NULL) {
            return false;
        }
        w->names = names;
        w->cap = cap;
    }
    ol_format(w->names[w->depth++], sizeof w->names[0], "%s", name);
    return true;
}

/* One step of the removal from an open folder: the next one to look at, -1 at the end. Consumes fd.
 */
static int remove_step(way *w, int fd) {
    char name[256];
    int next = -1;
    if (clear_level(fd, name, sizeof name)) {
        if (name[0] != '\0' && go_down(w, name)) {
            (void)fchmodat(fd, name, 0700, 0);
            next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        } else if (name[0] == '\0' && w->depth > 0) {
            next = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            /* One that will not go away would be found again for ever. */
            if (next >= 0 && unlinkat(next, w->names[--w->depth], AT_REMOVEDIR) != 0) {
                child_close(&next);
            }
        }
    }
    child_close(&fd);
    return next;
}

void ol_dir_remove(const char *path) {
    /* Down into the first folder, up when a level has none left: no recursion and two descriptors,
     * however deep an engine has dug. */
    way w = {.names = NULL};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (fd >= 0) {
        fd = remove_step(&w, fd);
    }
    free(w.names);
    (void)rmdir(path);
}

/* ------------------------------------------------------------------ putting */

static OL_NORETURN void disturbed(ol_test *t, const char *path, const char *step) {
    int why = errno;
    if (why == ENOSPC || why == EDQUOT || why == EIO || why == ENOMEM) {
        ol_leave_fault(t, OL_EXIT_INTERNAL, "%s for the engine: %s: %s", path, step, strerror(why));
    }
    (void)ol_child_event(&t->child, OL_INTEGRITY, "changed its directory: %s of %s: %s", step, path,
                         strerror(why));
    ol_leave(t);
}

/* Open the folder that a relative path lies in, making it; `name` points at the last part. The
 * caller closes. */
static int open_parent(ol_test *t, const char *path, const char **name) {
    int fd = fcntl(t->dir_fd, F_DUPFD_CLOEXEC, 3);
    const char *at = path;
    for (const char *slash = strchr(at, '/'); fd >= 0 && slash != NULL; slash = strchr(at, '/')) {
        char part[256];
        ol_format(part, sizeof part, "%.*s", (int)(slash - at), at);
        if (mkdirat(fd, part, 0755) != 0 && errno != EEXIST) {
            disturbed(t, path, "making a folder");
        }
        int next = openat(fd, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            disturbed(t, path, "opening a folder");
        }
        (void)close(fd);
        fd = next;
        at = slash + 1;
    }
    if (fd < 0) {
        disturbed(t, path, "opening the folder");
    }
    *name = at;
    return fd;
}

static void remove_entry(int parent, const char *name) {
    if (unlinkat(parent, name, 0) != 0 && errno != ENOENT) {
        (void)unlinkat(parent, name, AT_REMOVEDIR);
    }
}

static FILE *create(ol_test *t, const char *path) {
    const char *name = NULL;
    int parent = open_parent(t, path, &name);
    remove_entry(parent, name);
    int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    (void)close(parent);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        disturbed(t, path, "making the file");
    }
    return file;
}

static void finish(ol_test *t, FILE *file, const char *path) {
    bool bad = ferror(file) != 0;
    if (fclose(file) != 0 || bad) {
        disturbed(t, path, "writing");
    }
}

void ol_put_file(ol_test *t, const char *path, const uint8_t *bytes, size_t n_bytes) {
    FILE *file = create(t, path);
    (void)fwrite(bytes, 1, n_bytes, file);
    finish(t, file, path);
}

bool ol_put_node(ol_test *t, const char *path, const char *node) {
    if (strcmp(node, "unreadable") == 0 && geteuid() == 0 && !t->setup->sandbox.own_uid) {
        t->n_left_out++;
        return false;
    }
    const char *name = NULL;
    int parent = open_parent(t, path, &name);
    int result = 0;
    struct stat info;
    bool is_there = fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode);
    if (strcmp(node, "unreadable") == 0) {
        if (!is_there) {
            finish(t, create(t, path), path);
        }
        result = fchmodat(parent, name, 0, 0);
    } else if (strcmp(node, "link") == 0) {
        char other[300];
        ol_format(other, sizeof other, "%s.real", name);
        result = is_there ? renameat(parent, name, parent, other) : 0;
        result = result != 0 ? result : symlinkat(other, parent, name);
    } else {
        remove_entry(parent, name);
        if (strcmp(node, "directory") == 0) {
            result = mkdirat(parent, name, 0755);
        } else if (strcmp(node, "fifo") == 0) {
            result = mkfifoat(parent, name, 0644);
        } else if (strcmp(node, "zero-device") == 0) {
            result = symlinkat("/dev/zero", parent, name);
        }
    }
    (void)close(parent);
    if (result != 0) {
        disturbed(t, path, node);
    }
    return true;
}

/* ------------------------------------------------------------------ pieces */

/* What one piece is made of: `unit` repeated `count` times. */
typedef struct piece {
    const uint8_t *unit;
    size_t n_unit;
    uint64_t count;
    uint8_t byte;
} piece;

static piece read_piece(ol_test *t, const ol_case *c, const json_t *from) {
    piece p = {.count = ol_get_count_or(t, c, from, "count", 1)};
    const json_t *text = json_object_get(from, "text");
    if (json_object_get(from, "byte") != NULL) {
        p.byte = (uint8_t)ol_get_count(t, c, from, "byte");
        p.unit = NULL;
        p.n_unit = 1;
        p.count = ol_get_count(t, c, from, "count");
    } else if (text != NULL) {
        p.unit = (const uint8_t *)ol_get_text(t, c, from, "text");
        p.n_unit = json_string_length(text);
    } else {
        p.unit = ol_get_bytes(t, c, from, "hex", &p.n_unit);
    }
    return p;
}

/* Some files are a hundred million times two bytes: a block holds as many units as fit. */
static void write_piece(FILE *file, const piece *p) {
    static uint8_t block[1 << 16];
    const uint8_t *unit = p->unit == NULL ? &p->byte : p->unit;
    if (p->count == 1 || p->n_unit == 0 || p->n_unit > sizeof block) {
        for (uint64_t k = 0; k < p->count; k++) {
            (void)fwrite(unit, 1, p->n_unit, file);
        }
        return;
    }
    uint64_t n_fit = sizeof block / p->n_unit;
    n_fit = n_fit < p->count ? n_fit : p->count;
    for (size_t i = 0; i < n_fit; i++) {
        memcpy(block + i * p->n_unit, unit, p->n_unit);
    }
    for (uint64_t left = p->count; left > 0;) {
        uint64_t n = left < n_fit ? left : n_fit;
        (void)fwrite(block, 1, (size_t)n * p->n_unit, file);
        left -= n;
    }
}

void ol_put_pieces(ol_test *t, const ol_case *c, const char *path, const json_t *pieces) {
    FILE *file = create(t, path);
    uint64_t mark = ol_mark(t);
    for (size_t i = 0; i < json_array_size(pieces); i++) {
        piece p = read_piece(t, c, json_array_get(pieces, i));
        write_piece(file, &p);
    }
    ol_release(t, mark);
    finish(t, file, path);
}

uint8_t *ol_pieces_bytes(ol_test *t, const ol_case *c, const json_t *pieces, size_t *n) {
    uint64_t total = 0;
    size_t n_pieces = json_array_size(pieces);
    piece *list = ol_alloc(t, n_pieces * sizeof *list + 1);
    for (size_t i = 0; i < n_pieces; i++) {
        list[i] = read_piece(t, c, json_array_get(pieces, i));
        if (list[i].count > PIECES_MAX || list[i].n_unit > PIECES_MAX) {
            total = PIECES_MAX + 1;
            break;
        }
        total += list[i].count * list[i].n_unit;
    }
    if (total > PIECES_MAX) {
        ol_leave_fault(t, OL_EXIT_GOLDEN,
                       "%s: case %s: pieces of more than %zu bytes cannot be sent inline", c->file,
                       c->id, PIECES_MAX);
    }
    uint8_t *bytes = ol_alloc(t, (size_t)total + 1);
    uint8_t *at = bytes;
    for (size_t i = 0; i < n_pieces; i++) {
        for (uint64_t k = 0; k < list[i].count; k++) {
            memcpy(at, list[i].unit == NULL ? &list[i].byte : list[i].unit, list[i].n_unit);
            at += list[i].n_unit;
        }
    }
    *n = (size_t)total;
    return bytes;
}

/* ------------------------------------------------------------------ models */

static const ol_source *source_of(ol_test *t, const ol_case *c) {
    if (c != NULL) {
        return c->src;
    }
    if (t->setup->n_sources == 0) {
        ol_leave_fault(t, OL_EXIT_GOLDEN, "there are no goldens");
    }
    return &t->setup->sources[0];
}

static OL_NORETURN void no_model(ol_test *t, const ol_source *source, const ol_case *c,
                                 const char *model) {
    ol_leave_fault(t, OL_EXIT_GOLDEN, "%s: %s%s%s: there is no model %s", source->dir,
                   c == NULL ? t->def->name : c->file, c == NULL ? "" : ": case ",
                   c == NULL ? "" : c->id, model);
}

static void copy_file(ol_test *t, const char *from, const char *to) {
    static uint8_t block[1 << 16];
    FILE *in = fopen(from, "rbe");
    if (in == NULL) {
        ol_leave_fault(t, ol_exit_of_file(errno), "%s: %s", from, strerror(errno));
    }
    FILE *out = create(t, to);
    size_t n = 0;
    while ((n = fread(block, 1, sizeof block, in)) > 0) {
        (void)fwrite(block, 1, n, out);
    }
    (void)fclose(in);
    finish(t, out, to);
}

const char *ol_put_model(ol_test *t, const ol_case *c, const char *model) {
    const ol_source *source = source_of(t, c);
    if (!ol_source_has_model(source, model)) {
        no_model(t, source, c, model);
    }
    /* Two sources may have a model of the same name. */
    char *to = source == &t->setup->sources[0]
                   ? ol_text(t, "%s", model)
                   : ol_text(t, "s%zu/%s", (size_t)(source - t->setup->sources), model);
    struct stat info;
    if (fstatat(t->dir_fd, to, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        return to;
    }
    size_t n_model = strlen(model);
    for (size_t i = 0; i < source->n_paths; i++) {
        const char *path = source->paths[i];
        if (strncmp(path, model, n_model) == 0 && path[n_model] == '/') {
            uint64_t mark = ol_mark(t);
            copy_file(t, ol_text(t, "%s/%s", source->dir, path),
                      ol_text(t, "%s%s", to, path + n_model));
            ol_release(t, mark);
        }
    }
    return to;
}

uint8_t *ol_model_file(ol_test *t, const ol_case *c, const char *model, const char *file,
                       size_t *n) {
    const ol_source *source = source_of(t, c);
    if (!ol_source_has_model(source, model)) {
        no_model(t, source, c, model);
    }
    char *bytes = ol_read_file(ol_text(t, "%s/%s/%s", source->dir, model, file), MODEL_FILE_MAX, n);
    if (bytes == NULL) {
        ol_leave_fault(t, ol_exit_of_file(errno), "%s/%s/%s: %s", source->dir, model, file,
                       strerror(errno));
    }
    uint8_t *copy = ol_alloc(t, *n + 1);
    memcpy(copy, bytes, *n);
    free(bytes);
    return copy;
}

size_t ol_n_models(ol_test *t) {
    return source_of(t, NULL)->n_models;
}

const char *ol_model_at(ol_test *t, size_t index) {
    return source_of(t, NULL)->models[index];
}
