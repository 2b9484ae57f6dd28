/* SPDX-License-Identifier: MIT */
/*
 * arch/probe: statically defined tracepoints (USDT) for bpftrace, perf, gdb and SystemTap: a nop in the
 * code, and a note that says where it is and where its two arguments are.  The layout is SystemTap's
 * <sys/sdt.h>, version 3, without semaphores.  Not for the fast paths.
 */
#ifndef CPUSLAB_ARCH_PROBE_H
#define CPUSLAB_ARCH_PROBE_H

#include <stdint.h>

#define ARCH_PROBE(name, first, second)                                                                      \
	__asm__ volatile("990: nop\n"                                                                        \
			 ".pushsection .note.stapsdt, \"\", @note\n"                                         \
			 ".balign 4\n"                                                                       \
			 ".4byte 992f - 991f, 994f - 993f, 3\n"                                              \
			 "991: .asciz \"stapsdt\"\n"                                                         \
			 "992: .balign 4\n"                                                                  \
			 "993: .8byte 990b, _.stapsdt.base, 0\n"                                             \
			 ".asciz \"cpuslab\"\n"                                                              \
			 ".asciz \"" name "\"\n"                                                             \
			 ".asciz \"8@%0 8@%1\"\n"                                                            \
			 "994: .balign 4\n"                                                                  \
			 ".popsection\n"                                                                     \
			 ".ifndef _.stapsdt.base\n"                                                          \
			 ".pushsection .stapsdt.base, \"aGR\", @progbits, .stapsdt.base, comdat\n"           \
			 ".weak _.stapsdt.base\n"                                                            \
			 ".hidden _.stapsdt.base\n"                                                          \
			 "_.stapsdt.base: .space 1\n"                                                        \
			 ".size _.stapsdt.base, 1\n"                                                         \
			 ".popsection\n"                                                                     \
			 ".endif\n"                                                                          \
			 :                                                                                   \
			 : "nr"((uint64_t)(first)), "nr"((uint64_t)(second)))

#endif
