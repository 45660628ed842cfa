/* act.c: the one file that differs between two hostile engines: -DHOSTILE_ACT='"name"'. */
#include "hostile.h"

#include <string.h>

#ifndef HOSTILE_ACT
#define HOSTILE_ACT "none"
#endif

bool hostile_is(const char *name) {
    return strcmp(HOSTILE_ACT, name) == 0;
}
