/* SPDX-License-Identifier: MIT */
/*
 * arch/note: an ELF note in the program's own image that leads an outside reader to one of our records.
 *
 * The program headers name the note's segment (PT_NOTE), so it is found in any mapped image without
 * symbols: stripped, static and position-independent ones alike.  Its description is one 64-bit number: the
 * distance from the number itself to the record.
 */
#ifndef CPUSLAB_ARCH_NOTE_H
#define CPUSLAB_ARCH_NOTE_H

/* `record` must be a symbol that the linker resolves inside this image: hidden, not static. */
#define ARCH_DEFINE_NOTE(owner, type, record)                                                                \
	__asm__(".pushsection .note." owner ", \"a\", @note\n"                                               \
		".balign 4\n"                                                                                \
		".long 2f - 1f, 4f - 3f, " #type "\n"                                                        \
		"1: .asciz \"" owner "\"\n"                                                                  \
		"2: .balign 4\n"                                                                             \
		"3: .quad " #record " - .\n"                                                                 \
		"4: .balign 4\n"                                                                             \
		".popsection\n")

#endif
