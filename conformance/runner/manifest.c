/* manifest.c: the list of all files of a goldens folder with their hashes, and the folder compared
 * with it; see golden.h. A file that is not listed is a fault too: nobody knows where it came from.
 */
#include "golden.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MANIFEST_NAME "MANIFEST.json"
#define MANIFEST_BYTES_MAX ((size_t)4 << 20)
#define DEPTH_MAX 8 /* folders below the goldens */

static bool is_hash(const char *text) {
    if (text == NULL || strlen(text) != 64) {
        return false;
    }
    return strspn(text, "0123456789abcdef") == 64;
}

/* Below the folder, in one spelling: no empty part, no "." or "..", no backslash. */
static bool is_plain_path(const char *path) {
    if (path == NULL || path[0] == '\0' || path[0] == '/') {
        return false;
    }
    for (const char *at = path;;) {
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) {
            return false;
        }
        if (at[n] == '\0') {
            return strchr(path, '\\') == NULL;
        }
        at += n + 1;
    }
}

static bool is_text_array(const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i))) {
            return false;
        }
    }
    return json_is_array(list);
}

/* What is wrong with an entry, NULL for nothing; `key` is the key that it is about. */
static const char *entry_fault(const json_t *from, const char **key) {
    static const char *const keys[] = {"path", "bytes", "sha256", "generator", "args"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        *key = keys[i];
        if (json_object_get(from, keys[i]) == NULL) {
            return "is missing";
        }
    }
    *key = "path";
    if (!is_plain_path(json_string_value(json_object_get(from, "path")))) {
        return "is no path below the goldens";
    }
    *key = "bytes";
    if (!json_is_integer(json_object_get(from, "bytes")) ||
        json_integer_value(json_object_get(from, "bytes")) < 0) {
        return "is no count";
    }
    *key = "sha256";
    if (!is_hash(json_string_value(json_object_get(from, "sha256")))) {
        return "is not 64 hex digits";
    }
    *key = "generator";
    if (!is_plain_path(json_string_value(json_object_get(from, "generator")))) {
        return "is no path below the goldens";
    }
    *key = "args";
    if (!is_text_array(json_object_get(from, "args"))) {
        return "is no array of strings";
    }
    *key = "";
    return json_object_size(from) == sizeof keys / sizeof *keys ? NULL : "a key is unknown";
}

static bool load_entries(ol_manifest *m, const char *dir, ol_fault *fault) {
    const char *schema = json_string_value(json_object_get(m->root, "schema"));
    const json_t *files = json_object_get(m->root, "files");
    if (schema == NULL || strcmp(schema, "ol.manifest/1") != 0 || !json_is_array(files) ||
        json_object_size(m->root) != 2) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN,
                            "%s/" MANIFEST_NAME
                            ": needs schema \"ol.manifest/1\" and files, and nothing else",
                            dir);
    }
    m->n_entries = json_array_size(files);
    m->entries = calloc(m->n_entries + 1, sizeof *m->entries);
    if (m->entries == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for a manifest");
    }
    for (size_t i = 0; i < m->n_entries; i++) {
        const json_t *from = json_array_get(files, i);
        const char *key = "";
        const char *what = entry_fault(from, &key);
        if (what != NULL) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s/" MANIFEST_NAME ": files[%zu].%s: %s",
                                dir, i, key, what);
        }
        ol_entry *entry = &m->entries[i];
        entry->path = json_string_value(json_object_get(from, "path"));
        entry->n_bytes = (uint64_t)json_integer_value(json_object_get(from, "bytes"));
        memcpy(entry->sha256, json_string_value(json_object_get(from, "sha256")), 65);
        if (i > 0 && strcmp(m->entries[i - 1].path, entry->path) >= 0) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN,
                                "%s/" MANIFEST_NAME
                                ": files[%zu].path: %s does not follow %s in order",
                                dir, i, entry->path, m->entries[i - 1].path);
        }
    }
    return true;
}

bool ol_manifest_load(ol_manifest *m, const char *dir, ol_fault *fault) {
    *m = (ol_manifest){0};
    char path[4400];
    size_t n_bytes = 0;
    ol_format(path, sizeof path, "%s/" MANIFEST_NAME, dir);
    char *bytes = ol_read_file(path, MANIFEST_BYTES_MAX, &n_bytes);
    if (bytes == NULL) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", path, strerror(errno));
    }
    ol_sha256 hash;
    ol_sha256_init(&hash);
    ol_sha256_add(&hash, bytes, n_bytes);
    ol_sha256_text(&hash, m->sha256);
    json_error_t error;
    m->root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (m->root == NULL) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: line %d, column %d: %s", path, error.line,
                            error.column, error.text);
    }
    return load_entries(m, dir, fault);
}

void ol_manifest_clear(ol_manifest *m) {
    json_decref(m->root);
    free(m->entries);
    *m = (ol_manifest){0};
}

static const ol_entry *find_entry(const ol_manifest *m, const char *path) {
    for (size_t low = 0, high = m->n_entries; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(path, m->entries[middle].path);
        if (order == 0) {
            return &m->entries[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

static bool check_file(const ol_manifest *m, const char *dir, const char *path, ol_fault *fault) {
    const ol_entry *entry = find_entry(m, path);
    if (entry == NULL) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s/%s: the manifest does not list it", dir,
                            path);
    }
    char full[8800];
    char sha256[OL_SHA256_TEXT];
    uint64_t n_bytes = 0;
    ol_format(full, sizeof full, "%s/%s", dir, path);
    if (!ol_sha256_file(full, &n_bytes, sha256)) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", full, strerror(errno));
    }
    if (n_bytes != entry->n_bytes) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: it has %llu bytes, the manifest says %llu",
                            full, (unsigned long long)n_bytes, (unsigned long long)entry->n_bytes);
    }
    if (strcmp(sha256, entry->sha256) != 0) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN,
                            "%s: its sha256 is %.16s..., the manifest says %.16s...", full, sha256,
                            entry->sha256);
    }
    return true;
}

static bool is_left_out(const char *path) {
    return strcmp(path, MANIFEST_NAME) == 0 || strcmp(path, "gen") == 0;
}

static bool walk(const ol_manifest *m, const char *dir, const char *below, int depth,
                 size_t *n_found, ol_fault *fault);

static bool walk_entry(const ol_manifest *m, const char *dir, const char *path, int depth,
                       size_t *n_found, ol_fault *fault) {
    char full[8800];
    struct stat info;
    if (is_left_out(path)) {
        return true;
    }
    ol_format(full, sizeof full, "%s/%s", dir, path);
    if (lstat(full, &info) != 0) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", full, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        return walk(m, dir, path, depth + 1, n_found, fault);
    }
    if (!S_ISREG(info.st_mode)) {
        return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: it is no regular file", full);
    }
    (*n_found)++;
    return check_file(m, dir, path, fault);
}

/* The depth is bounded, so this recursion is. */
static bool walk(const ol_manifest *m, const char *dir, const char *below, int depth,
                 size_t *n_found, ol_fault *fault) {
    char full[8800];
    ol_format(full, sizeof full, "%s%s%s", dir, below[0] == '\0' ? "" : "/", below);
    DIR *open_dir = depth > DEPTH_MAX ? NULL : opendir(full);
    if (open_dir == NULL) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", full,
                            depth > DEPTH_MAX ? "nested too deep" : strerror(errno));
    }
    bool ok = true;
    for (struct dirent *e = readdir(open_dir); ok && e != NULL; e = readdir(open_dir)) {
        char path[4400];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        ol_format(path, sizeof path, "%s%s%s", below, below[0] == '\0' ? "" : "/", e->d_name);
        ok = walk_entry(m, dir, path, depth, n_found, fault);
    }
    (void)closedir(open_dir);
    return ok;
}

bool ol_manifest_verify(const ol_manifest *m, const char *dir, ol_fault *fault) {
    size_t n_found = 0;
    if (!walk(m, dir, "", 0, &n_found, fault)) {
        return false;
    }
    /* Each file that was found is listed once; if fewer were found, one of the list is not there.
     */
    for (size_t i = 0; n_found != m->n_entries && i < m->n_entries; i++) {
        char full[8800];
        struct stat info;
        ol_format(full, sizeof full, "%s/%s", dir, m->entries[i].path);
        if (lstat(full, &info) != 0 || is_left_out(m->entries[i].path)) {
            return ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: the manifest lists it; it is not there",
                                full);
        }
    }
    return n_found == m->n_entries ||
           ol_fault_set(fault, OL_EXIT_GOLDEN,
                        "%s/" MANIFEST_NAME ": it lists files that are not looked at", dir);
}
