/* SPDX-License-Identifier: MIT */
/* slabinfo: the process's caches in the format of /proc/slabinfo.  See cpuslab_slabinfo(). */
#ifndef CPUSLAB_SLABINFO_H
#define CPUSLAB_SLABINFO_H

/* Writes the same to standard error.  The library must have started. */
void slabinfo_write_error(void);

#endif
