/* source.c: open a folder of goldens; see source.h. */
#include "source.h"

#include "golden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *ol_source_load(const ol_source *source, const char *name, ol_fault *fault) {
    char path[4400];
    size_t n_bytes = 0;
    ol_format(path, sizeof path, "%s/%s", source->dir, name);
    char *bytes = ol_read_file(path, OL_VECTORS_BYTES_MAX, &n_bytes);
    if (bytes == NULL) {
        (void)ol_fault_set(fault, ol_exit_of_file(errno), "%s: %s", path, strerror(errno));
        return NULL;
    }
    json_error_t error;
    json_t *doc = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    bool ends_well = n_bytes > 0 && bytes[n_bytes - 1] == '\n';
    free(bytes);
    if (doc == NULL) {
        (void)ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: line %d, column %d: %s", path, error.line,
                           error.column, error.text);
    } else if (!ends_well) {
        (void)ol_fault_set(fault, OL_EXIT_GOLDEN, "%s: it does not end in a newline", path);
        json_decref(doc);
        doc = NULL;
    }
    return doc;
}

bool ol_source_has_model(const ol_source *source, const char *model) {
    for (size_t i = 0; i < source->n_models; i++) {
        if (strcmp(source->models[i], model) == 0) {
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------ the table */

/* "models/NAME/file": note the model, once. */
static bool add_model(ol_source *source, const char *path) {
    const char *end = strncmp(path, "models/", 7) == 0 ? strchr(path + 7, '/') : NULL;
    if (end == NULL) {
        return true;
    }
    char *model = strndup(path, (size_t)(end - path));
    if (model != NULL && ol_source_has_model(source, model)) {
        free(model);
        return true;
    }
    char **models =
        model == NULL ? NULL : realloc(source->models, (source->n_models + 1) * sizeof *models);
    if (models == NULL) {
        free(model);
        return false;
    }
    models[source->n_models++] = model;
    source->models = models;
    return true;
}

static bool is_vectors_name(const char *path) {
    size_t n = strlen(path);
    return strchr(path, '/') == NULL && n > 5 && strcmp(path + n - 5, ".json") == 0 &&
           strcmp(path, "MANIFEST.json") != 0 && strcmp(path, "libm.probe.json") != 0;
}

static bool describe(ol_vectors *v, const ol_source *source, const ol_entry *entry,
                     ol_fault *fault) {
    json_t *doc = ol_source_load(source, entry->path, fault);
    if (doc == NULL || !ol_golden_check(source, entry->path, doc, fault)) {
        json_decref(doc);
        return false;
    }
    memcpy(v->sha256, entry->sha256, sizeof v->sha256);
    v->name = strdup(entry->path);
    v->suite = strdup(json_string_value(json_object_get(doc, "suite")));
    v->n_cases = (size_t)json_integer_value(json_object_get(doc, "n_cases"));
    json_decref(doc);
    return v->name != NULL && v->suite != NULL;
}

static bool add_vectors(ol_source *source, const ol_entry *entry, ol_fault *fault) {
    ol_vectors *vectors = realloc(source->vectors, (source->n_vectors + 1) * sizeof *vectors);
    if (vectors == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for goldens");
    }
    source->vectors = vectors;
    ol_vectors v = {.name = NULL};
    if (!describe(&v, source, entry, fault)) {
        free(v.name);
        free(v.suite);
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for goldens");
    }
    vectors[source->n_vectors++] = v;
    return true;
}

static bool fill(ol_source *source, const ol_manifest *manifest, ol_fault *fault) {
    source->paths = calloc(manifest->n_entries + 1, sizeof *source->paths);
    if (source->paths == NULL) {
        return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for goldens");
    }
    for (size_t i = 0; i < manifest->n_entries; i++) {
        char *path = strdup(manifest->entries[i].path);
        if (path == NULL || !add_model(source, path)) {
            free(path);
            return ol_fault_set(fault, OL_EXIT_INTERNAL, "out of memory for goldens");
        }
        source->paths[source->n_paths++] = path;
    }
    /* After the models, which the cases name. */
    for (size_t i = 0; i < manifest->n_entries; i++) {
        if (is_vectors_name(manifest->entries[i].path) &&
            !add_vectors(source, &manifest->entries[i], fault)) {
            return false;
        }
    }
    return true;
}

bool ol_source_open(ol_source *source, const char *dir, ol_fault *fault) {
    *source = (ol_source){.dir = realpath(dir, NULL)};
    if (source->dir == NULL) {
        return ol_fault_set(fault, ol_exit_of_file(errno), "goldens: %s: %s", dir, strerror(errno));
    }
    ol_manifest manifest;
    bool ok = ol_manifest_load(&manifest, source->dir, fault);
    if (ok) {
        memcpy(source->sha256, manifest.sha256, sizeof source->sha256);
        ok = ol_manifest_verify(&manifest, source->dir, fault) &&
             ol_probe_check(source->dir, fault) && fill(source, &manifest, fault);
    }
    ol_manifest_clear(&manifest);
    return ok;
}

void ol_source_clear(ol_source *source) {
    for (size_t i = 0; i < source->n_vectors; i++) {
        free(source->vectors[i].name);
        free(source->vectors[i].suite);
    }
    for (size_t i = 0; i < source->n_paths; i++) {
        free(source->paths[i]);
    }
    for (size_t i = 0; i < source->n_models; i++) {
        free(source->models[i]);
    }
    free(source->vectors);
    free(source->paths);
    free(source->models);
    free(source->dir);
    *source = (ol_source){0};
}
