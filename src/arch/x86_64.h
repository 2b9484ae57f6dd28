/* SPDX-License-Identifier: MIT */
/*
 * x86-64: the restartable sections, and the other asm of the fast paths and the locks.
 *
 * A section runs from label 1 to label 2.  Its descriptor (label 3) names those bounds and the abort
 * handler (label 4).  The descriptor's address is stored in rseq_cs before label 1 and left there: the kernel
 * clears it lazily when it finds the instruction pointer outside.
 *
 * The handler lies in a section of its own behind the signature, in a block (label 5) that ends with the
 * distances from the block to the section's miss and to label 0, where it restarts.  It jumps to
 * arch_aborted (arch.c), which counts the abort and chooses between the two.
 *
 * __rseq_cs_ptr_array and __rseq_exit_point_array tell debuggers and binary translators where the sections
 * are and where they may be left, so that they step over a section instead of aborting it for ever.
 *
 * Stacks can be unwound at every instruction.  Inside a section the compiler's own tables hold, as the
 * stack pointer does not move.  The handler's block lies outside every function and has an unwind entry of
 * its own: its caller is where the section restarts, with all registers unchanged.  The entry is written by
 * hand, since clang's assembler does not nest .cfi_startproc; its CIE is emitted once per file.
 *
 * The word is addressed by a single register without an index: some processors forward a store to a load of
 * such an address in one cycle, and need seven with an index.
 */
#ifndef CPUSLAB_ARCH_X86_64_H
#define CPUSLAB_ARCH_X86_64_H

#include <cpuid.h>

#define ARCH_HAS_RSEQ 1
#define ARCH_HAS_PAIR 1
#define ARCH_HAS_WIDE 1
#define ARCH_HAS_LONG 1

/* Bytes and alignment of a handler's block, in which DWARF can find the block from the program counter. */
#define ARCH_ABORT_BYTES "32"
#define ARCH_ABORT_BLOCK "0x80, 0, 9, -" ARCH_ABORT_BYTES ", 0x1a" /* breg16 0, const1s, and */

/*
 * Covers the block up to its data, label 6.  "S": the return address does not follow a call.
 *
 * The rule for the program counter adds the distance at the block's end to the block's address.  It takes
 * only operations that every reader of such tables knows: valgrind lacks dup, deref_size and shra.
 */
#define ARCH_ABORT_FRAME                                                                                     \
	".pushsection .eh_frame\n"                                                                           \
	".ifndef .Lcpuslab_abort_entry\n"                                                                    \
	".Lcpuslab_abort_entry:\n"                                                                           \
	".long 8f - 7f\n"                                                                                    \
	"7:\n"                                                                                               \
	".long 0\n"                                                                                          \
	".byte 1\n"                                                                                          \
	".asciz \"zRS\"\n"                                                                                   \
	".byte 1, 0x78, 16, 1, 0x1b\n" /* factors 1 and -8, return column, encoding pcrel | sdata4 */        \
	".byte 0x0c, 7, 0\n"           /* CFA: the stack pointer */                                          \
	".balign 8, 0\n"                                                                                     \
	"8:\n"                                                                                               \
	".endif\n"                                                                                           \
	".long 8f - 7f\n"                                                                                    \
	"7:\n"                                                                                               \
	".long . - .Lcpuslab_abort_entry, 5b - ., 6b - 5b\n"                                                 \
	".byte 0\n"                                                                                          \
	".byte 0x16, 16, 14\n"                      /* val_expression of register 16, the program counter */ \
	".byte " ARCH_ABORT_BLOCK ", 0x23, 24, 6\n" /* plus_uconst, deref */                                 \
	".byte " ARCH_ABORT_BLOCK ", 0x22\n"        /* plus */                                               \
	".balign 8, 0\n"                                                                                     \
	"8:\n"                                                                                               \
	".popsection\n"

/* `miss` is where a section ends that was aborted too often. */
#define ARCH_SECTION_BEGIN(miss)                                                                             \
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
	".balign " ARCH_ABORT_BYTES ", 0xcc\n"                                                               \
	"5:\n"                                                                                               \
	".byte 0x0f, 0xb9, 0x3d\n" /* ud1 with the signature as its displacement */                          \
	".long 0x53053053\n"                                                                                 \
	"4:\n"                                                                                               \
	"leaq 5b(%%rip), %%rcx\n"                                                                            \
	"jmp arch_aborted\n"                                                                                 \
	"6:\n"                                                                                               \
	".org 5b + 20, 0xcc\n"                                                                               \
	".long " miss " - 5b\n"                                                                              \
	".quad 0f - 5b\n"                                                                                    \
	".popsection\n" ARCH_ABORT_FRAME "0:\n"                                                              \
	"leaq 3b(%%rip), %%rcx\n"                                                                            \
	"movq %%rcx, %%fs:8(%[rseq])\n"                                                                      \
	"1:\n"                                                                                               \
	"movslq %%fs:(%[id]), %%rcx\n"

#define ARCH_SECTION_EXIT(label)                                                                             \
	".pushsection __rseq_exit_point_array, \"aw\"\n"                                                     \
	".quad 1b, %l[" #label "]\n"                                                                         \
	".popsection\n"

#define ARCH_SECTION_INPUTS(self, map)                                                                       \
	[rseq] "r"((self).rseq), [id] "r"((self).id), [map] "r"(map), [table] "i"(-(long)ARCH_TABLE_BYTES)

/*
 * What a section returns on a miss: NULL.  With -fsanitize=undefined gcc 12 leaves in its place what the
 * section has read, unless it cannot know the value.
 */
#ifdef NDEBUG
#define ARCH_NOTHING(object) NULL
#else
#define ARCH_NOTHING(object)                                                                                 \
	({                                                                                                   \
		(object) = NULL;                                                                             \
		asm volatile("" : "+r"(object));                                                             \
		(object);                                                                                    \
	})
#endif

/*
 * Pops the top object off the word at *offset in this vCPU's area; NULL on a miss.  `offset` is read inside
 * the section so that a restart needs no copy of it.
 */
static inline __attribute__((always_inline)) void *arch_pop(struct arch_self self, const void *map,
							    const uint16_t *offset)
{
	void *object;

	/* Volatile: gcc before 13 may remove an asm goto whose output is unused. */
	asm volatile goto(ARCH_SECTION_BEGIN("%l[miss]") "movzwl %[offset], %%edx\n"
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
	return ARCH_NOTHING(object);
}

/*
 * Pushes an object onto the word at *offset in this vCPU's area; false when the word is full or closed, or
 * the object is on top already.
 */
static inline __attribute__((always_inline)) bool arch_push(struct arch_self self, const void *map,
							    const uint16_t *offset, void *object)
{
	asm goto(ARCH_SECTION_BEGIN("%l[miss]") "movzwl %[offset], %%edx\n"
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

/* Pops the first object off the list whose word is at *offset in this vCPU's area; NULL on a miss. */
static inline __attribute__((always_inline)) void *
arch_list_pop(struct arch_self self, const void *map, const uint16_t *offset, const struct arch_list *list)
{
	void *object;
	uintptr_t next;

	asm volatile goto(
		ARCH_SECTION_BEGIN("%l[miss]") "movzwl %[offset], %%edx\n"
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
					       "cmpq %[mask], %%rcx\n" /* the link leaves the slab */
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
	return ARCH_NOTHING(object);
}

/* Pushes an object onto the list whose word is at *offset in this vCPU's area; false on a miss. */
static inline __attribute__((always_inline)) bool arch_list_push(struct arch_self self, const void *map,
								 const uint16_t *offset,
								 const struct arch_list *list, void *object)
{
	uintptr_t scratch;

	asm volatile goto(
		ARCH_SECTION_BEGIN(
			"%l[miss]") "movzwl %[offset], %%edx\n"
				    "addq %c[table](%[map], %%rcx, 8), %%rdx\n"
				    "movq (%%rdx), %%rcx\n"
				    "movq %%rcx, %[scratch]\n"
				    "xorq %[object], %[scratch]\n"
				    "decq %[scratch]\n" /* 0, the first object itself, becomes the largest
							   number */
				    "cmpq %[mask], %[scratch]\n"
				    "jae %l[miss]\n"
				    "movq %[mask], %[scratch]\n"
				    "andq %[object], %[scratch]\n"
				    "imulq %[reciprocal], %[scratch]\n"
				    "cmpq %[reciprocal], %[scratch]\n" /* not a multiple of the stride */
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

/* Stores desired[] into 16 aligned bytes if they hold expected[], atomically across CPUs. */
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

/* Reads a word of this vCPU's area.  The thread may have migrated before the value is used. */
static inline uintptr_t arch_peek(struct arch_self self, const void *map, uintptr_t offset)
{
	uint32_t id;

	asm volatile("movl %%fs:(%[id]), %[result]" : [result] "=r"(id) : [id] "r"(self.id));
	uintptr_t area = __atomic_load_n(
		(const uintptr_t *)((const char *)map - ARCH_TABLE_BYTES) + (int32_t)id, __ATOMIC_ACQUIRE);
	return __atomic_load_n((const uintptr_t *)(area + offset), __ATOMIC_ACQUIRE);
}

/*
 * Stores `desired` into a word of this vCPU's area if it holds `expected`; false if it does not, or if the
 * thread is hindered.
 */
static inline bool arch_replace(struct arch_self self, const void *map, uintptr_t offset, uintptr_t expected,
				uintptr_t desired)
{
	asm goto(ARCH_SECTION_BEGIN("%l[miss]") "movq %c[table](%[map], %%rcx, 8), %%rdx\n"
						"cmpq %[expected], (%%rdx, %[offset])\n"
						"jne %l[miss]\n"
						"movq %[desired], (%%rdx, %[offset])\n"
						"2:\n" ARCH_SECTION_EXIT(miss)
		 :
		 : ARCH_SECTION_INPUTS(self, map), [offset] "r"(offset), [expected] "r"(expected),
		   [desired] "r"(desired)
		 : "rcx", "rdx", "memory", "cc"
		 : miss);
	return true;
miss:
	return false;
}

/* Adds to a word of this vCPU's area; false if the thread is hindered. */
static inline bool arch_add(struct arch_self self, const void *map, uintptr_t offset, uint64_t amount)
{
	asm goto(ARCH_SECTION_BEGIN("%l[miss]") "movq %c[table](%[map], %%rcx, 8), %%rdx\n"
						"addq %[amount], (%%rdx, %[offset])\n"
						"2:\n" ARCH_SECTION_EXIT(miss)
		 :
		 : ARCH_SECTION_INPUTS(self, map), [offset] "r"(offset), [amount] "r"(amount)
		 : "rcx", "rdx", "memory", "cc"
		 : miss);
	arch_aborts_in_row = 0;
	return true;
miss:
	return false;
}

/*
 * Defines `arch_aborted`, where abort handlers jump with the address of their block in rcx: counts the abort,
 * and goes on where the section restarts, or from `most` aborts in a row on where it misses.  A section
 * leaves rcx and rdx to it; the stack is not touched, as the red zone may be in use.
 *
 * It may be interrupted anywhere: the thread's count changes by one instruction, and a handler that sets it
 * back only lets the section restart more often.
 */
#define ARCH_DEFINE_ABORTED(most)                                                                            \
	__asm__(".pushsection .text.arch_aborted, \"ax\", @progbits\n"                                       \
		".globl arch_aborted\n"                                                                      \
		".hidden arch_aborted\n"                                                                     \
		".type arch_aborted, @function\n"                                                            \
		"arch_aborted:\n"                                                                            \
		".cfi_startproc\n"                                                                           \
		".cfi_signal_frame\n"                                                                        \
		".cfi_def_cfa %rsp, 0\n"                                                                     \
		".cfi_register %rip, %rcx\n"                                                                 \
		"lock incq arch_section_aborts(%rip)\n"                                                      \
		"movq arch_aborts_in_row@gottpoff(%rip), %rdx\n"                                             \
		"incl %fs:(%rdx)\n"                                                                          \
		"cmpl $" most ", %fs:(%rdx)\n"                                                               \
		"ja 1f\n"                                                                                    \
		"addq 24(%rcx), %rcx\n"                                                                      \
		"jmp *%rcx\n"                                                                                \
		"1:\n"                                                                                       \
		"movslq 20(%rcx), %rdx\n"                                                                    \
		"addq %rdx, %rcx\n"                                                                          \
		"jmp *%rcx\n"                                                                                \
		".cfi_endproc\n"                                                                             \
		".size arch_aborted, . - arch_aborted\n"                                                     \
		".popsection\n")

/*
 * Defines `name`: makes a thread by the clone system call, which runs `function` on a stack and a thread
 * pointer of its own, and ends when that returns.  `id` receives its id, and 0 as it ends.  Returns the id,
 * or a negative errno.  It cannot be a C function: the new thread has nothing on its stack to return through,
 * which is also what its unwind entry says.
 */
#define ARCH_HAS_THREAD 1
#define ARCH_DEFINE_THREAD(name)                                                                             \
	__asm__(".pushsection .text." #name ", \"ax\", @progbits\n"                                          \
		".globl " #name "\n"                                                                         \
		".hidden " #name "\n"                                                                        \
		".type " #name ", @function\n" #name ":\n"                                                   \
		".cfi_startproc\n"                                                                           \
		"movq %r8, %r9\n"  /* the function */                                                        \
		"movq %rcx, %r8\n" /* the thread pointer */                                                  \
		"movq %rdx, %r10\n"                                                                          \
		"movl $56, %eax\n" /* __NR_clone */                                                          \
		"syscall\n"                                                                                  \
		"testq %rax, %rax\n"                                                                         \
		"jz 1f\n"                                                                                    \
		"ret\n"                                                                                      \
		"1:\n"                                                                                       \
		".cfi_undefined %rip\n"                                                                      \
		"xorl %ebp, %ebp\n"                                                                          \
		"call *%r9\n"                                                                                \
		"movl $60, %eax\n" /* __NR_exit */                                                           \
		"xorl %edi, %edi\n"                                                                          \
		"syscall\n"                                                                                  \
		"hlt\n"                                                                                      \
		".cfi_endproc\n"                                                                             \
		".size " #name ", . - " #name "\n"                                                           \
		".popsection\n")

/* Makes zeroed memory a thread pointer: it points at itself, in the two words where libc's do. */
static inline void arch_init_thread_pointer(void *pointer)
{
	((void **)pointer)[0] = ((void **)pointer)[2] = pointer;
}

/* Returns the thread's vCPU id at some instant of the call. */
static inline uint32_t arch_id(struct arch_self self)
{
	uint32_t id;

	asm volatile("movl %%fs:(%[id]), %[result]" : [result] "=r"(id) : [id] "r"(self.id));
	return id;
}

/*
 * Defines `vfork`, which calls `before` in the parent ahead of the system call, and `after` behind it in
 * both parent and child.  It cannot be a C function: the child returns through this frame first and
 * overwrites it, so the return address waits in a register, which the kernel preserves for each of the two.
 */
#define ARCH_DEFINE_VFORK(before, after)                                                                     \
	__asm__(".pushsection .text\n"                                                                       \
		".globl vfork\n"                                                                             \
		".type vfork, @function\n"                                                                   \
		"vfork:\n"                                                                                   \
		".cfi_startproc\n"                                                                           \
		"subq $8, %rsp\n"                                                                            \
		".cfi_adjust_cfa_offset 8\n"                                                                 \
		"call " #before "\n" /* returns what `after` needs, in rax and rdx */                        \
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
 * Defines libc's `syscall`: number `seen` goes to the C function `see`, which has the same parameters as
 * longs; all others go on to the function at `*next`, or to the kernel while that is NULL.  With a jump, and
 * no frame: a task that such a call makes may return on another stack.  `fail` turns a negative errno into
 * -1.
 */
#define ARCH_DEFINE_SYSCALL(seen, see, next, fail)                                                           \
	__asm__(".pushsection .text.far_syscall, \"ax\"\n"                                                   \
		".globl syscall\n"                                                                           \
		".type syscall, @function\n"                                                                 \
		"syscall:\n"                                                                                 \
		".cfi_startproc\n"                                                                           \
		"cmpq $" #seen ", %rdi\n"                                                                    \
		"je " #see "\n"                                                                              \
		"movq " #next "(%rip), %rax\n"                                                               \
		"testq %rax, %rax\n"                                                                         \
		"jz 1f\n"                                                                                    \
		"jmpq *%rax\n"                                                                               \
		"1:\n"                                                                                       \
		"movq %rdi, %rax\n"                                                                          \
		"movq %rsi, %rdi\n"                                                                          \
		"movq %rdx, %rsi\n"                                                                          \
		"movq %rcx, %rdx\n"                                                                          \
		"movq %r8, %r10\n"                                                                           \
		"movq %r9, %r8\n"                                                                            \
		"movq 8(%rsp), %r9\n"                                                                        \
		"syscall\n"                                                                                  \
		"cmpq $-4096, %rax\n" /* the last page: errors */                                            \
		"ja 2f\n"                                                                                    \
		"ret\n"                                                                                      \
		"2:\n"                                                                                       \
		"movq %rax, %rdi\n"                                                                          \
		"jmp " #fail "\n"                                                                            \
		".cfi_endproc\n"                                                                             \
		".size syscall, . - syscall\n"                                                               \
		".popsection\n")

/*
 * Returns whether the two functions below may be called: they need AVX2, and a system that saves the wide
 * registers.  Uses cpuid directly, because a constructor in every program would fill in what
 * __builtin_cpu_supports reads.
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
 * Zeroes memory of ARCH_WIDE_BYTES or more with few stores: up to 160 bytes take three or five, partly
 * overlapping, and no loop.  The fast paths store and reload the words all the time; with more than a dozen
 * stores in between, Zen 4 takes eight cycles longer for that.
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
 * Returns whether such memory is all zero.  vzeroupper destroys the upper half of every vector register,
 * where a compiler that may use AVX keeps values: hence the clobbers beyond the first two.
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
 * Turns 128 random bits into eight numbers: the first is below `count`, and the bound of each next one is
 * one lower.
 */
static inline arch_lanes arch_below(uint64_t random, uint64_t more, size_t count)
{
	arch_lanes lanes = (arch_lanes)(arch_lanes_bits){random, more};
	arch_lanes counts = (uint16_t)count - (arch_lanes){0, 1, 2, 3, 4, 5, 6, 7};

	/* The high halves of the products; compilers emit a dozen instructions for this. */
	asm("pmulhuw %[counts], %[lanes]" : [lanes] "+x"(lanes) : [counts] "x"(counts));
	return lanes;
}

/*
 * Copying and filling by the processor's own loops, which start slowly and end as fast as any other.  Cycles
 * on a Xeon with fast short ones, beside 16 bytes at a time: copying 1, 2 and 16 KiB 34, 39 and 167 beside
 * 23, 60 and 340; filling 33, 39 and 171 beside 21, 41 and 329.
 */
enum { ARCH_LONG_BYTES = 2048 };

static inline void arch_copy_long(void *to, const void *from, size_t bytes)
{
	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

static inline void arch_fill_long(void *to, unsigned char byte, size_t bytes)
{
	asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(byte) : "memory");
}

/* For loops that wait for another CPU. */
static inline void arch_pause(void)
{
	__builtin_ia32_pause();
}

/* Demotes a cache line towards the shared caches (CLDEMOTE); a no-op on processors without it. */
static inline void arch_demote(const void *line)
{
	asm volatile("cldemote %0" : : "m"(*(const char *)line));
}

#endif
