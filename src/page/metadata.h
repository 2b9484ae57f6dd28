/* SPDX-License-Identifier: MIT */
/* metadata: what the page room's own files share of it.  For the interface see page.h. */
#ifndef CPUSLAB_METADATA_H
#define CPUSLAB_METADATA_H

#include <stddef.h>

void metadata_repair(void);
size_t metadata_bytes(void);

#endif
