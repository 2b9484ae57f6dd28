/* SPDX-License-Identifier: MIT */
/*
 * libc/names: functions of libc's that the library has copies of its own of, under libc's names.  Included in
 * front of every file of the library.
 *
 * The program, or a library that is preloaded, can replace any function that libc exports, by one that
 * allocates or waits for a lock.  Called from the middle of an allocation, it would come back to locks that
 * are held.  Compilers call memcpy and its like for plain C, so that no other way of writing avoids them: the
 * assembler is told here what the names mean.
 *
 * What the library still takes from libc, and why it may, is in scripts/lint/imported-symbols.
 */
#ifndef CPUSLAB_LIBC_NAMES_H
#define CPUSLAB_LIBC_NAMES_H

#include "arch/symbol.h"

#define LIBC_OWN(name) ARCH_MEANS(name, cpuslab_libc_##name)

LIBC_OWN(memchr);
LIBC_OWN(memcmp);
LIBC_OWN(memcpy);
LIBC_OWN(memmove);
LIBC_OWN(memset);
LIBC_OWN(stpcpy);
LIBC_OWN(stpncpy);
LIBC_OWN(strchr);
LIBC_OWN(strcmp);
LIBC_OWN(strcpy);
LIBC_OWN(strcspn);
LIBC_OWN(strlen);
LIBC_OWN(strncmp);
LIBC_OWN(strncpy);
LIBC_OWN(strrchr);
LIBC_OWN(strspn);
LIBC_OWN(strtoul);
ARCH_MEANS(__isoc23_strtoul, cpuslab_libc_strtoul); /* so the headers of glibc 2.38 and later call it */
LIBC_OWN(snprintf);
LIBC_OWN(sprintf);
LIBC_OWN(abort);
LIBC_OWN(raise);

#endif
