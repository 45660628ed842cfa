/* lib_interposed.c: engines that define names of the C library, or of the judge, in the hope that
 * the judge's calls end in them; and right engines in all else. Linked with -Bsymbolic, so that the
 * engine itself takes them: what they break is the engine's.
 *
 * Compiled with -fno-builtin. */
#include "hostile.h"

#include <dlfcn.h>
#include <stdlib.h>

int memcmp(const void *a, const void *b, size_t n);
int strcmp(const char *a, const char *b);
double exp(double x);
void _assert_int_equal(unsigned long a, unsigned long b, const char *file, int line);
void _fail(const char *file, int line);
void ol_held(void *t, const char *name);
bool ol_check(void *t, const char *name, bool held, const char *fmt, ...);
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);

/* hostile_is calls strcmp, which is ours. */
static bool act_is(const char *name) {
    const char *act = hostile_act_name();
    while (*act != '\0' && *act == *name) {
        act++;
        name++;
    }
    return *act == *name;
}

/* Everything is equal to everything. */
int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a;
    const unsigned char *y = b;
    for (size_t i = 0; i < n && !act_is("interposes_compare"); i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return 0;
}

int strcmp(const char *a, const char *b) {
    while (*a != '\0' && *a == *b && !act_is("interposes_compare")) {
        a++;
        b++;
    }
    return act_is("interposes_compare") ? 0 : (unsigned char)*a - (unsigned char)*b;
}

double exp(double x) {
    union {
        void *object;
        double (*call)(double);
    } real = {.object = dlsym(RTLD_NEXT, "exp")};
    return act_is("interposes_exp") ? 1.0 : real.call(x);
}

void *malloc(size_t n) {
    return act_is("interposes_memory") ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return act_is("interposes_memory") ? NULL : __libc_calloc(n, size);
}

/* The judge's own words, and its test framework's. */
void _assert_int_equal(unsigned long a, unsigned long b, const char *file, int line) {
    (void)a;
    (void)b;
    (void)file;
    (void)line;
}

void _fail(const char *file, int line) {
    (void)file;
    (void)line;
}

void ol_held(void *t, const char *name) {
    (void)t;
    (void)name;
}

bool ol_check(void *t, const char *name, bool held, const char *fmt, ...) {
    (void)t;
    (void)name;
    (void)held;
    (void)fmt;
    return true;
}
