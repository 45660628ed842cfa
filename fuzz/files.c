/* files.c: a directory of a checkpoint as one input, and how it is changed; see fuzz.h.
 *
 * Inputs that are directories stay close to what they are, so that other people's parsers can be
 * given the files themselves (`fuzz.py export`). */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One entry at *at, its bytes from *begin to *end; false at the end of the input. */
static bool next_entry(const uint8_t *data, size_t n, size_t *at, char name[FUZZ_NAME_MAX],
                       size_t *begin, size_t *end) {
    size_t n_name = 0;
    if (*at >= n) {
        return false;
    }
    while (*at < n && data[*at] != 0) {
        if (n_name + 1 < FUZZ_NAME_MAX) {
            name[n_name++] = (char)data[*at];
        }
        (*at)++;
    }
    name[n_name] = '\0';
    fuzz_tape tape = {.data = data, .n = n, .at = *at + 1};
    const size_t length = fuzz_u32(&tape);
    *begin = tape.at < n ? tape.at : n;
    *end = length < n - *begin ? *begin + length : n;
    *at = *end;
    return true;
}

const tl_file_view *fuzz_folder_find(const fuzz_folder *folder, const char *name) {
    for (size_t i = 0; i < folder->n; i++) {
        if (strcmp(folder->names[i], name) == 0) {
            return &folder->views[i];
        }
    }
    return NULL;
}

fuzz_folder fuzz_folder_read(const uint8_t *data, size_t n) {
    fuzz_folder folder = {.n = 0};
    size_t at = 0;
    size_t begin = 0;
    size_t end = 0;
    char name[FUZZ_NAME_MAX];
    while (folder.n < FUZZ_FILES_MAX && next_entry(data, n, &at, name, &begin, &end)) {
        if (fuzz_folder_find(&folder, name) != NULL) {
            continue;
        }
        memcpy(folder.names[folder.n], name, FUZZ_NAME_MAX);
        folder.views[folder.n].bytes = fuzz_copy(data + begin, end - begin);
        folder.views[folder.n].n_bytes = end - begin;
        folder.n++;
    }
    return folder;
}

void fuzz_folder_clear(fuzz_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        free((void *)(uintptr_t)folder->views[i].bytes);
    }
    folder->n = 0;
}

void fuzz_folder_point(fuzz_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        folder->views[i].name = folder->names[i];
    }
}

/* ------------------------------------------------------------------ on disk */

void fuzz_file_write(const fuzz_case *f, const char *name, const uint8_t *bytes, size_t n,
                     char path[FUZZ_PATH_MAX]) {
    path[0] = '\0';
    if (f->disk == NULL) {
        return;
    }
    (void)snprintf(path, FUZZ_PATH_MAX, "%s/%s", f->disk, name);
    FILE *file = fopen(path, "wb");
    const bool is_written = file != NULL && (n == 0 || fwrite(bytes, 1, n, file) == n);
    if (file == NULL || fclose(file) != 0 || !is_written) {
        (void)fprintf(stderr, "fuzz: cannot write %s\n", path);
        exit(70);
    }
}

bool fuzz_folder_write(const fuzz_case *f, const fuzz_folder *folder) {
    char path[FUZZ_PATH_MAX];
    for (size_t i = 0; i < folder->n; i++) {
        const char *name = folder->names[i];
        if (strchr(name, '/') != NULL || name[0] == '\0' || strcmp(name, ".") == 0 ||
            strcmp(name, "..") == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < folder->n; i++) {
        fuzz_file_write(f, folder->names[i], folder->views[i].bytes, folder->views[i].n_bytes,
                        path);
    }
    return f->disk != NULL;
}

void fuzz_folder_remove(const fuzz_case *f, const fuzz_folder *folder) {
    char path[FUZZ_PATH_MAX];
    for (size_t i = 0; i < folder->n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", f->disk, folder->names[i]);
        (void)remove(path);
    }
}

/* ------------------------------------------------------------------ mutation */

static bool ends_in(const char *name, const char *suffix) {
    const size_t n = strlen(name);
    const size_t n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

/* Change the bytes of one file by what its name says it is. */
static size_t mutate_file(const char *name, uint8_t *bytes, size_t n, size_t cap, fuzz_rng *rng) {
    fuzz_text text = {.text = (char *)bytes, .n = n, .cap = cap};
    if (ends_in(name, ".safetensors")) {
        return fuzz_mutate_safetensors(bytes, n, cap, rng);
    }
    if (ends_in(name, ".index.json")) {
        fuzz_mutate_json(&text, fuzz_words_index, rng);
    } else if (ends_in(name, ".json")) {
        fuzz_mutate_json(&text, fuzz_words_config, rng);
    } else if (n > 0) {
        bytes[fuzz_below(rng, (uint32_t)n)] = (uint8_t)("0246812x"[fuzz_below(rng, 8)]);
    }
    return text.n;
}

/* The length field in front of `begin`. */
static void store_length(uint8_t *data, size_t begin, size_t n) {
    for (unsigned i = 0; i < 4; i++) {
        data[begin - 4 + i] = (uint8_t)(n >> (8 * i));
    }
}

size_t fuzz_mutate_folder(uint8_t *data, size_t n, size_t cap, fuzz_rng *rng) {
    char name[FUZZ_NAME_MAX];
    size_t n_entries = 0;
    size_t at = 0;
    size_t begin = 0;
    size_t end = 0;
    while (next_entry(data, n, &at, name, &begin, &end)) {
        n_entries++;
    }
    size_t chosen = fuzz_below(rng, (uint32_t)n_entries) + 1;
    at = 0;
    size_t start = 0;
    for (size_t i = 0; i < chosen; i++) {
        start = at;
        if (!next_entry(data, n, &at, name, &begin, &end)) {
            return n;
        }
    }
    if (begin < start + 5 || begin > n) {
        return n;
    }
    if (fuzz_chance(rng, 24)) { /* the whole file goes */
        memmove(data + start, data + end, n - end);
        return n - (end - start);
    }
    const size_t n_rest = n - end;
    const size_t room = cap - begin - n_rest;
    uint8_t *work = fuzz_alloc(room);
    memcpy(work, data + begin, end - begin);
    const size_t n_new = mutate_file(name, work, end - begin, room, rng);
    memmove(data + begin + n_new, data + end, n_rest);
    memcpy(data + begin, work, n_new);
    free(work);
    store_length(data, begin, n_new);
    return begin + n_new + n_rest;
}
