/* SPDX-License-Identifier: MIT */
/* foreign: the scripts of foreign/, by their files' names; the build makes the table. */
#ifndef CPUSLAB_BENCH_FOREIGN_H
#define CPUSLAB_BENCH_FOREIGN_H

extern const struct foreign {
	const char *name, *script;
} foreign_scripts[]; /* ends with a NULL */

#endif
