/* SPDX-License-Identifier: MIT */
/*
 * x86-64: the sections, and what else the fast paths and the locks have in asm.
 *
 * A section runs from label 1 to label 2.  Its descriptor (label 3) names those bounds and the abort
 * handler (label 4), which sits behind the signature in a section of its own, counts, and starts again at
 * label 0.  The descriptor's address goes into rseq_cs before label 1 and is left there: the kernel clears
 * it lazily, as it finds the instruction pointer outside.
 *
 * __rseq_cs_ptr_array and __rseq_exit_point_array tell debuggers and binary translators where the sections
 * are and where they may be left, so that they step over them instead of into an endless abort.
 *
 * Stacks can be unwound at every instruction.  In the section itself the compiler's own tables hold, as the
 * stack pointer stays.  The handler lies outside of every function, so it has an entry of its own, which says
 * that its caller is where its jump leads, with all registers as they are: the jump's distance is read from
 * the instruction.  By hand, since clang's assembler knows no .cfi_startproc within another, and its common
 * entry once in a file.
 *
 * The word is addressed by one register without an index: some processors forward a store to a load of such
 * an address in a cycle, and need seven where there is an index.
 */
#ifndef CPUSLAB_ARCH_X86_64_H
#define CPUSLAB_ARCH_X86_64_H

#include <cpuid.h>

#define ARCH_HAS_RSEQ 1
#define ARCH_HAS_PAIR 1
#define ARCH_HAS_WIDE 1

/*
 * DWARF: the program counter and how far ahead the jump's distance is, from the handler's first instruction
 * (5f - 4f) or from the jump; its four bytes, with their sign; and the end of the jump is behind them.
 *   breg16 AHEAD, dup, deref_size 4, const1u 32, shl, const1u 32, shra, plus, plus_uconst 4
 */
#define ARCH_ABORT_CALLER(ahead)                                                                             \
	".byte 0x16, 16, 14, 0x80, " ahead ", 0x12, 0x94, 4, 8, 32, 0x24, 8, 32, 0x26, 0x22, 0x23, 4\n"

/* For the handler from label 4 over its jump, label 5, to label 6.  "S": its caller made no call. */
#define ARCH_ABORT_FRAME                                                                                     \
	".pushsection .eh_frame\n"                                                                           \
	".ifndef .Lcpuslab_abort_entry\n"                                                                    \
	".Lcpuslab_abort_entry:\n"                                                                           \
	".long 8f - 7f\n"                                                                                    \
	"7:\n"                                                                                               \
	".long 0\n"                                                                                          \
	".byte 1\n"                                                                                          \
	".asciz \"zRS\"\n"                                                                                   \
	".byte 1, 0x78, 16, 1, 0x1b\n" /* units 1 and -8, the return column, encoding pcrel | sdata4 */      \
	".byte 0x0c, 7, 0\n"           /* the frame is at the stack pointer */                               \
	".balign 8, 0\n"                                                                                     \
	"8:\n"                                                                                               \
	".endif\n"                                                                                           \
	".long 8f - 7f\n"                                                                                    \
	"7:\n"                                                                                               \
	".long . - .Lcpuslab_abort_entry, 4b - ., 6b - 4b\n"                                                 \
	".byte 0\n" ARCH_ABORT_CALLER("5b - 4b + 1") ".byte 0x40 + (5b - 4b)\n" /* advance to the jump */    \
		ARCH_ABORT_CALLER("1") ".balign 8, 0\n"                                                      \
				       "8:\n"                                                                \
				       ".popsection\n"

#define ARCH_SECTION_BEGIN                                                                                   \
	".pushsection __rseq_cs, \"aw\"\n"                                                                   \
	".balign 32\n"                                                                                       \
	"3:\n"                                                                                               \
	".long 0, 0\n"                                                                                       \
	".quad 1f, (2f - 1f), 4f\n"                                                                          \
	".popsection\n"                                                                                      \
	".pushsection __rseq_cs_ptr_array, \"aw\"\n"                                                         \
	".quad 3b\n"                                                                                         \
	".popsection\n"                                                                                      \
	".pushsection __rseq_failure, \"ax\"\n"                                                              \
	".byte 0x0f, 0xb9, 0x3d\n" /* ud1, with the signature as its displacement */                         \
	".long 0x53053053\n"                                                                                 \
	"4:\n"                                                                                               \
	"lock incq %[aborts]\n"                                                                              \
	"5:\n"                                                                                               \
	"jmp 0f\n"                                                                                           \
	"6:\n"                                                                                               \
	".popsection\n" ARCH_ABORT_FRAME "0:\n"                                                              \
	"leaq 3b(%%rip), %%rcx\n"                                                                            \
	"movq %%rcx, %%fs:8(%[rseq])\n"                                                                      \
	"1:\n"                                                                                               \
	"movl %%fs:(%[id]), %%ecx\n"

#define ARCH_SECTION_EXIT(label)                                                                             \
	".pushsection __rseq_exit_point_array, \"aw\"\n"                                                     \
	".quad 1b, %l[" #label "]\n"                                                                         \
	".popsection\n"

#define ARCH_SECTION_INPUTS(self, map)                                                                       \
	[rseq] "r"((self).rseq), [id] "r"((self).id), [map] "r"(map), [table] "i"(-(long)ARCH_TABLE_BYTES),  \
		[aborts] "m"(arch_section_aborts)

/*
 * Takes the top object off the word at *offset in this vCPU's area; NULL on a miss.  `offset` is read
 * inside the section so that a restart needs no copy of it.
 */
static inline __attribute__((always_inline)) void *arch_pop(struct arch_self self, const void *map,
							    const uint16_t *offset)
{
	void *object;

	/*
	 * gcc before 13 takes an asm goto with an output for one that it may remove when nobody reads that.
	 */
	asm volatile goto(ARCH_SECTION_BEGIN "movzwl %[offset], %%edx\n"
					     "addq %c[table](%[map], %%rcx, 8), %%rdx\n"
					     "movq (%%rdx), %%rcx\n"
					     "movq (%%rcx), %[object]\n"
					     "testq %[object], %[object]\n"
					     "jz %l[miss]\n"
					     "subq $8, (%%rdx)\n"
					     "2:\n" ARCH_SECTION_EXIT(miss)
			  : [object] "=&a"(object)
			  : ARCH_SECTION_INPUTS(self, map), [offset] "m"(*offset)
			  : "rcx", "rdx", "memory", "cc"
			  : miss);
	if (!object)
		__builtin_unreachable();
	return object;
miss:
	return NULL;
}

/* Puts an object on the word at *offset in this vCPU's area; false when it is full, closed, or on top
 * already. */
static inline __attribute__((always_inline)) bool arch_push(struct arch_self self, const void *map,
							    const uint16_t *offset, void *object)
{
	asm goto(ARCH_SECTION_BEGIN "movzwl %[offset], %%edx\n"
				    "addq %c[table](%[map], %%rcx, 8), %%rdx\n"
				    "movq (%%rdx), %%rcx\n"
				    "cmpq %[object], (%%rcx)\n"
				    "je %l[miss]\n"
				    "testb $1, 8(%%rcx)\n"
				    "jnz %l[miss]\n"
				    "movq %[object], 8(%%rcx)\n"
				    "addq $8, (%%rdx)\n"
				    "2:\n" ARCH_SECTION_EXIT(miss)
		 :
		 : ARCH_SECTION_INPUTS(self, map), [offset] "m"(*offset), [object] "r"(object)
		 : "rcx", "rdx", "memory", "cc"
		 : miss);
	return true;
miss:
	return false;
}

/* Takes the first object off the list whose word is at *offset in this vCPU's area; NULL on a miss. */
static inline __attribute__((always_inline)) void *
arch_list_pop(struct arch_self self, const void *map, const uint16_t *offset, const struct arch_list *list)
{
	void *object;
	uintptr_t next;

	asm volatile goto(ARCH_SECTION_BEGIN "movzwl %[offset], %%edx\n"
					     "addq %c[table](%[map], %%rcx, 8), %%rdx\n"
					     "movq (%%rdx), %[object]\n"
					     "testb $1, %b[object]\n"
					     "jnz %l[miss]\n"
					     "movq %[link], %%rcx\n"
					     "addq %[object], %%rcx\n"
					     "movq %[secret], %[next]\n"
					     "xorq %%rcx, %[next]\n"
					     "xorq (%%rcx), %[next]\n"
					     "movq %[next], %%rcx\n"
					     "xorq %[object], %%rcx\n"
					     "cmpq %[mask], %%rcx\n" /* a link that leaves the slab */
					     "ja %l[miss]\n"
					     "movq %[next], (%%rdx)\n"
					     "2:\n" ARCH_SECTION_EXIT(miss)
			  : [object] "=&a"(object), [next] "=&r"(next)
			  : ARCH_SECTION_INPUTS(self, map), [offset] "m"(*offset), [link] "m"(list->link),
			    [secret] "m"(list->secret), [mask] "m"(list->slab_mask)
			  : "rcx", "rdx", "memory", "cc"
			  : miss);
	if (!object)
		__builtin_unreachable();
	return object;
miss:
	return NULL;
}

/* Puts an object before the list whose word is at *offset in this vCPU's area; false on a miss. */
static inline __attribute__((always_inline)) bool arch_list_push(struct arch_self self, const void *map,
								 const uint16_t *offset,
								 const struct arch_list *list, void *object)
{
	uintptr_t scratch;

	asm volatile goto(ARCH_SECTION_BEGIN
			  "movzwl %[offset], %%edx\n"
			  "addq %c[table](%[map], %%rcx, 8), %%rdx\n"
			  "movq (%%rdx), %%rcx\n"
			  "movq %%rcx, %[scratch]\n"
			  "xorq %[object], %[scratch]\n"
			  "decq %[scratch]\n" /* 0, the object that is first, becomes the largest number */
			  "cmpq %[mask], %[scratch]\n"
			  "jae %l[miss]\n"
			  "movq %[mask], %[scratch]\n"
			  "andq %[object], %[scratch]\n"
			  "imulq %[reciprocal], %[scratch]\n"
			  "cmpq %[reciprocal], %[scratch]\n" /* not at a multiple of the stride */
			  "jae %l[miss]\n"
			  "movq %[link], %[scratch]\n"
			  "addq %[object], %[scratch]\n"
			  "xorq %[scratch], %%rcx\n"
			  "xorq %[secret], %%rcx\n"
			  "movq %%rcx, (%[scratch])\n"
			  "movq %[object], (%%rdx)\n"
			  "2:\n" ARCH_SECTION_EXIT(miss)
			  : [scratch] "=&r"(scratch)
			  : ARCH_SECTION_INPUTS(self, map), [offset] "m"(*offset), [object] "r"(object),
			    [link] "m"(list->link), [secret] "m"(list->secret), [mask] "m"(list->slab_mask),
			    [reciprocal] "m"(list->reciprocal)
			  : "rcx", "rdx", "memory", "cc"
			  : miss);
	return true;
miss:
	return false;
}

/* Stores desired[] into 16 aligned bytes if they hold expected[], in one step for all CPUs. */
static inline bool arch_replace_pair(uint64_t *pair, const uint64_t expected[2], const uint64_t desired[2])
{
	uint64_t low = expected[0], high = expected[1];
	bool same;

	asm volatile("lock cmpxchg16b %[pair]"
		     : "=@ccz"(same), [pair] "+m"(*(uint64_t(*)[2])pair), "+a"(low), "+d"(high)
		     : "b"(desired[0]), "c"(desired[1])
		     : "memory");
	return same;
}

/* Reads a word of this vCPU's area.  The thread may have left the vCPU before the value is used. */
static inline uintptr_t arch_peek(struct arch_self self, const void *map, uintptr_t offset)
{
	uint32_t id;

	asm volatile("movl %%fs:(%[id]), %[result]" : [result] "=r"(id) : [id] "r"(self.id));
	uintptr_t area = __atomic_load_n((const uintptr_t *)((const char *)map - ARCH_TABLE_BYTES) + id,
					 __ATOMIC_ACQUIRE);
	return __atomic_load_n((const uintptr_t *)(area + offset), __ATOMIC_ACQUIRE);
}

/* Stores `desired` into a word of this vCPU's area if it holds `expected`; false if it does not. */
static inline bool arch_replace(struct arch_self self, const void *map, uintptr_t offset, uintptr_t expected,
				uintptr_t desired)
{
	asm goto(ARCH_SECTION_BEGIN "movq %c[table](%[map], %%rcx, 8), %%rdx\n"
				    "cmpq %[expected], (%%rdx, %[offset])\n"
				    "jne %l[differs]\n"
				    "movq %[desired], (%%rdx, %[offset])\n"
				    "2:\n" ARCH_SECTION_EXIT(differs)
		 :
		 : ARCH_SECTION_INPUTS(self, map), [offset] "r"(offset), [expected] "r"(expected),
		   [desired] "r"(desired)
		 : "rcx", "rdx", "memory", "cc"
		 : differs);
	return true;
differs:
	return false;
}

/* Adds to a word of this vCPU's area. */
static inline void arch_add(struct arch_self self, const void *map, uintptr_t offset, uint64_t amount)
{
	asm volatile(ARCH_SECTION_BEGIN "movq %c[table](%[map], %%rcx, 8), %%rdx\n"
					"addq %[amount], (%%rdx, %[offset])\n"
					"2:\n"
		     : [aborts] "+m"(arch_section_aborts)
		     : [rseq] "r"(self.rseq), [id] "r"(self.id), [map] "r"(map),
		       [table] "i"(-(long)ARCH_TABLE_BYTES), [offset] "r"(offset), [amount] "r"(amount)
		     : "rcx", "rdx", "memory", "cc");
}

/* This thread's vCPU id at some instant of the call. */
static inline uint32_t arch_id(struct arch_self self)
{
	uint32_t id;

	asm volatile("movl %%fs:(%[id]), %[result]" : [result] "=r"(id) : [id] "r"(self.id));
	return id;
}

/*
 * Defines `vfork`, which calls `before` in the parent ahead of the system call and `after` in both parent and
 * child behind it.  It cannot be a C function: the child returns through this frame first and overwrites it,
 * so the return address must wait in a register, which the kernel keeps for each of the two.
 */
#define ARCH_DEFINE_VFORK(before, after)                                                                     \
	__asm__(".pushsection .text\n"                                                                       \
		".globl vfork\n"                                                                             \
		".type vfork, @function\n"                                                                   \
		"vfork:\n"                                                                                   \
		".cfi_startproc\n"                                                                           \
		"subq $8, %rsp\n"                                                                            \
		".cfi_adjust_cfa_offset 8\n"                                                                 \
		"call " #before "\n" /* returns what after wants of it, in rax and rdx */                    \
		"movq %rax, %rsi\n"                                                                          \
		"addq $8, %rsp\n"                                                                            \
		".cfi_adjust_cfa_offset -8\n"                                                                \
		"popq %rdi\n"                                                                                \
		".cfi_adjust_cfa_offset -8\n"                                                                \
		".cfi_register %rip, %rdi\n"                                                                 \
		"movl $58, %eax\n" /* __NR_vfork */                                                          \
		"syscall\n"                                                                                  \
		"pushq %rdi\n"                                                                               \
		".cfi_adjust_cfa_offset 8\n"                                                                 \
		".cfi_rel_offset %rip, 0\n"                                                                  \
		"movq %rax, %rdi\n"                                                                          \
		"jmp " #after "\n" /* returns the process id, or -1 with errno, to vfork's caller */         \
		".cfi_endproc\n"                                                                             \
		".size vfork, . - vfork\n"                                                                   \
		".popsection\n")

/*
 * Whether the two functions below may be called: they need AVX2, and a system that keeps the wide registers.
 * By hand, because what __builtin_cpu_supports reads is filled in by a constructor at the start of every
 * program.
 */
static inline bool arch_finds_wide(void)
{
	enum { XMM_AND_YMM = 6 };
	unsigned a, b, c, d, kept, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return false;
	asm("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
	if ((kept & XMM_AND_YMM) != XMM_AND_YMM)
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
}

/*
 * Zeroes memory of ARCH_WIDE_BYTES or more, with few stores: up to 160 bytes in three or five, some bytes
 * twice, and without a loop.  The words of the sections are stored and loaded again all the time, and where
 * more than a dozen stores lie in between, Zen 4 takes eight cycles longer for it.
 */
static inline void arch_clear_wide(void *start, size_t bytes)
{
	char *block = start;

	asm volatile("vpxor %%xmm0, %%xmm0, %%xmm0\n"
		     "vmovdqu %%ymm0, (%[block])\n"
		     "vmovdqu %%ymm0, 32(%[block])\n"
		     "cmpq $96, %[bytes]\n"
		     "jbe 2f\n"
		     "cmpq $160, %[bytes]\n"
		     "jbe 1f\n"
		     "andq $-32, %[block]\n"
		     "0:\n"
		     "addq $64, %[block]\n"
		     "vmovdqu %%ymm0, (%[block])\n"
		     "vmovdqu %%ymm0, 32(%[block])\n"
		     "cmpq %[last_loop], %[block]\n"
		     "jb 0b\n"
		     "1:\n"
		     "vmovdqu %%ymm0, -96(%[end])\n"
		     "vmovdqu %%ymm0, -64(%[end])\n"
		     "2:\n"
		     "vmovdqu %%ymm0, -32(%[end])\n"
		     : [block] "+r"(block)
		     : [bytes] "r"(bytes), [end] "r"(block + bytes), [last_loop] "r"(block + bytes - 160)
		     : "xmm0", "memory", "cc");
}

/*
 * Whether such memory is all zero.  What is declared beyond the first two loses its upper half, where a
 * compiler that may use AVX keeps things.
 */
static inline bool arch_is_clear_wide(const void *start, size_t bytes)
{
	const char *block = start;
	bool clear;

	asm volatile("vmovdqu (%[block]), %%ymm0\n"
		     "vmovdqu 32(%[block]), %%ymm1\n"
		     "cmpq $96, %[bytes]\n"
		     "jbe 2f\n"
		     "cmpq $160, %[bytes]\n"
		     "jbe 1f\n"
		     "andq $-32, %[block]\n"
		     "0:\n"
		     "addq $64, %[block]\n"
		     "vpor (%[block]), %%ymm0, %%ymm0\n"
		     "vpor 32(%[block]), %%ymm1, %%ymm1\n"
		     "cmpq %[last_loop], %[block]\n"
		     "jb 0b\n"
		     "1:\n"
		     "vpor -96(%[end]), %%ymm0, %%ymm0\n"
		     "vpor -64(%[end]), %%ymm1, %%ymm1\n"
		     "2:\n"
		     "vpor -32(%[end]), %%ymm0, %%ymm0\n"
		     "vpor %%ymm0, %%ymm1, %%ymm0\n"
		     "vptest %%ymm0, %%ymm0\n"
		     "vzeroupper\n"
		     : "=@ccz"(clear), [block] "+r"(block)
		     : [bytes] "r"(bytes), [end] "r"(block + bytes), [last_loop] "r"(block + bytes - 160)
		     : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
		       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	return clear;
}

/*
 * Eight numbers, the first below `count`, each one's bound one less than that of the number before it, from
 * 128 random bits.
 */
static inline arch_lanes arch_below(uint64_t random, uint64_t more, size_t count)
{
	arch_lanes lanes = (arch_lanes)(arch_lanes_bits){random, more};
	arch_lanes counts = (uint16_t)count - (arch_lanes){0, 1, 2, 3, 4, 5, 6, 7};

	/* The high halves of the products: compilers make a dozen instructions of that. */
	asm("pmulhuw %[counts], %[lanes]" : [lanes] "+x"(lanes) : [counts] "x"(counts));
	return lanes;
}

/* In a loop that waits for another CPU. */
static inline void arch_pause(void)
{
	__builtin_ia32_pause();
}

/* Moves a cache line out towards the shared caches (CLDEMOTE); does nothing on processors without it. */
static inline void arch_demote(const void *line)
{
	asm volatile("cldemote %0" : : "m"(*(const char *)line));
}

#endif
