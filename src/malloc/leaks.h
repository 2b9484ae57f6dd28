/* SPDX-License-Identifier: MIT */
/* leaks: reports what is still allocated when the program ends, by cache and by allocating stack. */
#ifndef CPUSLAB_LEAKS_H
#define CPUSLAB_LEAKS_H

/* Writes to standard error by write(2); allocates nothing. */
void leaks_report(void);

#endif
