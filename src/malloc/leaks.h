/* SPDX-License-Identifier: MIT */
/* leaks: what is still allocated as the program ends, by cache and by who allocated it. */
#ifndef CPUSLAB_LEAKS_H
#define CPUSLAB_LEAKS_H

/* To standard error, by write(2); allocates nothing. */
void leaks_report(void);

#endif
