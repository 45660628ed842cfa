/* base.c: the names of the status values and the versions of the library that is running.
 *
 * Nothing here can fail, and every text is static.
 *
 * Source: conformance/spec/README.md. */
#include "tl/base.h"

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *tl_status_name(tl_status status) {
    switch (status) {
    case TL_OK:
        return "OK";
    case TL_ERR_INVALID:
        return "INVALID";
    case TL_ERR_NOMEM:
        return "NOMEM";
    case TL_ERR_IO:
        return "IO";
    case TL_ERR_FORMAT:
        return "FORMAT";
    case TL_ERR_UNSUPPORTED:
        return "UNSUPPORTED";
    case TL_ERR_CAPACITY:
        return "CAPACITY";
    case TL_ERR_NOT_FOUND:
        return "NOT_FOUND";
    case TL_ERR_STATE:
        return "STATE";
    case TL_ERR_INTERNAL:
        return "INTERNAL";
    }
    return "UNKNOWN";
}

const char *tl_version(void) {
    return VERSION_TEXT(TL_VERSION_MAJOR, TL_VERSION_MINOR, TL_VERSION_PATCH);
}

uint32_t tl_abi_version(void) {
    return TL_ABI_VERSION;
}
