/* SPDX-License-Identifier: MIT */
/* metadata: what the page room's own files share of it.  For the interface see page.h. */
#ifndef CPUSLAB_METADATA_H
#define CPUSLAB_METADATA_H

#include <stddef.h>
#include <stdint.h>

void metadata_repair(void);
size_t metadata_bytes(void);
void metadata_show(void (*show)(const char *name, uintptr_t value, size_t size));
/*
 * Where memory comes in steps: makes room for the descriptors of a heap of so many bytes, so that a full heap
 * can still be cut anew when its objects are freed; and, with 0, for what the rooms need at start.
 */
bool metadata_provide(size_t heap_bytes);

#endif
