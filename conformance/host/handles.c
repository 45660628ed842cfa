/* handles.c: pools, runners and checkpoints under numbers.
 *
 * A number is given once in the life of the process, so that a handle of something freed is told
 * from a live one. A runner's pool has a handle too; it is not the host's to free and ends with its
 * runner. */
#include "host.h"

#include <stdlib.h>

int64_t host_handle_add(host *h, host_kind kind, void *object, int64_t parent) {
    host_handle *handles = realloc(h->handles, (h->n_handles + 1) * sizeof *handles);
    if (handles == NULL) {
        host_bad(h, "no memory for a handle");
        return 0;
    }
    h->handles = handles;
    handles[h->n_handles++] = (host_handle){.kind = kind, .object = object, .parent = parent};
    return (int64_t)h->n_handles;
}

/* The number that an argument stands for: itself, or {"result": i, "key": k} of an earlier call of
 * the list. */
static int64_t handle_number(const host *h, const json_t *value) {
    if (json_is_object(value) && h->earlier != NULL) {
        json_int_t i = json_integer_value(json_object_get(value, "result"));
        const char *key = json_string_value(json_object_get(value, "key"));
        const json_t *result = i < 0 ? NULL : json_array_get(h->earlier, (size_t)i);
        value = key == NULL ? NULL : json_object_get(result, key);
    }
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
}

static host_handle *find_handle(host *h, const json_t *in, const char *key, int64_t *number) {
    int64_t n = handle_number(h, json_object_get(in, key));
    if (n < 1 || (uint64_t)n > h->n_handles || h->handles[n - 1].object == NULL) {
        host_bad(h, "`%s` is no live handle", key);
        return NULL;
    }
    if (number != NULL) {
        *number = n;
    }
    return &h->handles[n - 1];
}

void *host_arg_handle(host *h, const json_t *in, const char *key, host_kind kind, int64_t *number) {
    const host_handle *handle = find_handle(h, in, key, number);
    if (handle == NULL) {
        return NULL;
    }
    if (handle->kind != kind) {
        host_bad(h, "`%s` is a handle of another kind", key);
        return NULL;
    }
    return handle->object;
}

void *host_arg_checkpoint(host *h, const json_t *in, host_kind *kind, int64_t *number) {
    const host_handle *handle = find_handle(h, in, "checkpoint", number);
    if (handle == NULL) {
        return NULL;
    }
    if (handle->kind != HOST_SAFETENSORS && handle->kind != HOST_CHECKPOINT) {
        host_bad(h, "`checkpoint` is a handle of another kind");
        return NULL;
    }
    *kind = handle->kind;
    return handle->object;
}

static void free_object(host *h, const host_handle *handle) {
    switch (handle->kind) {
    case HOST_POOL:
        if (handle->parent == 0) {
            h->tl.kv_pool_free(handle->object);
        }
        break;
    case HOST_RUNNER:
        h->tl.runner_free(handle->object);
        break;
    case HOST_SAFETENSORS:
        h->tl.safetensors_free(handle->object);
        break;
    case HOST_CHECKPOINT:
        h->tl.checkpoint_free(handle->object);
        break;
    }
}

void host_handle_free(host *h, int64_t number) {
    for (size_t i = 0; i < h->n_handles; i++) {
        if (h->handles[i].parent == number) {
            h->handles[i].object = NULL;
        }
    }
    host_handle *handle = &h->handles[number - 1];
    free_object(h, handle);
    handle->object = NULL;
}

void host_handles_clear(host *h) {
    for (size_t i = h->n_handles; i > 0; i--) {
        if (h->handles[i - 1].object != NULL) {
            host_handle_free(h, (int64_t)i);
        }
    }
    free(h->handles);
    h->handles = NULL;
    h->n_handles = 0;
}
