/* SPDX-License-Identifier: MIT */
/*
 * os/image: functions of an ELF image in memory by their names, asked of the image itself: what answers is
 * this image's function, whoever has put another of that name before it.
 */
#ifndef CPUSLAB_OS_IMAGE_H
#define CPUSLAB_OS_IMAGE_H

#include <stdint.h>

/* The address of a function in the image whose ELF header is at `base` (0: none); 0 if it has none such. */
uintptr_t image_symbol(uintptr_t base, const char *name);

#endif
