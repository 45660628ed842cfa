/* load.c: open the shared library and fill the table of its functions.
 *
 * RTLD_LOCAL keeps the library's symbols out of the host's own look-ups; RTLD_NOW makes a missing
 * dependency an error here, with a name, and not a crash at the first call. */
#include "host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Append a name to the list in text, or dots once it is full. */
static void add_name(char text[HOST_TEXT_CAP], const char *name) {
    size_t len = strlen(text);
    size_t room = HOST_TEXT_CAP - len;
    if (room > strlen(name) + 12) {
        (void)snprintf(text + len, room, " %s", name);
    } else if (strcmp(text + len - 4, " ...") != 0) {
        (void)snprintf(text + len, room, " ...");
    }
}

/* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bits are
 * the same. */
static bool resolve(void *library, const char *name, void *function, size_t n_bytes) {
    void *address = dlsym(library, name);
    if (address == NULL) {
        return false;
    }
    memcpy(function, &address, n_bytes);
    return true;
}

static bool resolve_all(host_api *tl, void *library, char text[HOST_TEXT_CAP]) {
    size_t n_missing = 0;
    (void)snprintf(text, HOST_TEXT_CAP, "the library lacks");
#define HOST_RESOLVE(name)                                                                         \
    if (!resolve(library, "tl_" #name, (void *)&tl->name, sizeof tl->name)) {                      \
        add_name(text, "tl_" #name);                                                               \
        n_missing++;                                                                               \
    }
    HOST_SYMBOLS(HOST_RESOLVE)
#undef HOST_RESOLVE
    return n_missing == 0;
}

bool host_load(host_api *tl, const char *path, char text[HOST_TEXT_CAP]) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        (void)snprintf(text, HOST_TEXT_CAP, "the library does not load: %s",
                       why == NULL ? "no reason given" : why);
        return false;
    }
    if (!resolve_all(tl, library, text)) {
        return false;
    }
    uint32_t abi = tl->abi_version();
    if (abi >> 16 != TL_ABI_MAJOR) {
        (void)snprintf(
            text, HOST_TEXT_CAP,
            "the library has ABI major %u (version %u.%u), the judge was built for %u.%u",
            (unsigned)(abi >> 16), (unsigned)(abi >> 16), (unsigned)(abi & 0xffffu), TL_ABI_MAJOR,
            TL_ABI_MINOR);
        return false;
    }
    text[0] = '\0';
    return true;
}
