/* SPDX-License-Identifier: MIT */
/* slabinfo: the caches of the process in the format of /proc/slabinfo.  See cpuslab_slabinfo(). */
#ifndef CPUSLAB_SLABINFO_H
#define CPUSLAB_SLABINFO_H

/* The same to standard error.  The library has started. */
void slabinfo_write_error(void);

#endif
