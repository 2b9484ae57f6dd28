/* SPDX-License-Identifier: MIT */
/*
 * libc: the library's own copies of functions of libc.  Other rooms call them by libc's names (names.h).
 */
#ifndef CPUSLAB_LIBC_H
#define CPUSLAB_LIBC_H

#include <stdarg.h>
#include <stddef.h>

void *cpuslab_libc_memchr(const void *start, int byte, size_t bytes);
int cpuslab_libc_memcmp(const void *one, const void *other, size_t bytes);
void *cpuslab_libc_memcpy(void *to, const void *from, size_t bytes);
void *cpuslab_libc_memmove(void *to, const void *from, size_t bytes);
void *cpuslab_libc_memset(void *start, int byte, size_t bytes);
char *cpuslab_libc_stpcpy(char *to, const char *from);
char *cpuslab_libc_stpncpy(char *to, const char *from, size_t most);
char *cpuslab_libc_strchr(const char *string, int letter);
int cpuslab_libc_strcmp(const char *one, const char *other);
char *cpuslab_libc_strcpy(char *to, const char *from);
size_t cpuslab_libc_strcspn(const char *string, const char *set);
size_t cpuslab_libc_strlen(const char *string);
int cpuslab_libc_strncmp(const char *one, const char *other, size_t most);
char *cpuslab_libc_strncpy(char *to, const char *from, size_t most);
char *cpuslab_libc_strrchr(const char *string, int letter);
size_t cpuslab_libc_strspn(const char *string, const char *set);
/* Of decimal numbers without a sign. */
unsigned long cpuslab_libc_strtoul(const char *text, char **end, int base);

/*
 * What the library prints: %s, %c, %p, and %d, %u and %x with h, l, ll, z and t; the flags - 0 #, a width,
 * and a precision for strings.  Anything else is printed as it stands.
 */
__attribute__((format(printf, 3, 4))) int cpuslab_libc_snprintf(char *text, size_t bytes, const char *format,
								...);
__attribute__((format(printf, 2, 3))) int cpuslab_libc_sprintf(char *text, const char *format, ...);

/* Ends the process by SIGABRT, through the program's handler if it has one. */
_Noreturn void cpuslab_libc_abort(void);
/* Sends the calling thread a signal. */
int cpuslab_libc_raise(int signal);

#endif
