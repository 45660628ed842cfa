/* act.c: the one file that differs between two hostile engines: -DHOSTILE_ACT='"name"'. */
#include "hostile.h"

#include <string.h>

#ifndef HOSTILE_ACT
#define HOSTILE_ACT "none"
#endif

const char *hostile_act_name(void) {
    return HOSTILE_ACT;
}

bool hostile_is(const char *name) {
    return strcmp(HOSTILE_ACT, name) == 0;
}
