/* SPDX-License-Identifier: MIT */
/*
 * A stack walk for samples: by the call frame information that compilers leave for exceptions (.eh_frame,
 * DWARF 6.4), and by frame pointers in code that has none, such as what a JIT compiler made.
 *
 * The unwinder of the C++ runtime would do, but it is no part of libc, and it takes locks.  Here the object
 * file of an address comes from _dl_find_object (glibc 2.35), which takes none; and of the rules only what
 * compilers use for ordinary code is understood: where the frame begins, by a register and an offset, and
 * where the frame pointer was saved.  Anything else ends the walk, or goes on by frame pointers.
 *
 * What was found for an address is remembered.  An entry is two words, of which the first is the address
 * exclusive-or the second: two threads that write one at a time leave something that fits no address.
 */
#include "profile/profile.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "arch/registers.h"
#include "os/os.h"

extern __typeof__(_dl_find_object) _dl_find_object __attribute__((weak));

enum {
	STACK_REACH = 64 << 20, /* a frame further away than this is no frame */
	STATES = 4,             /* rules remembered by a function at once */
	REMEMBERED = 1024,
	MACHINE_HAS_CFI = ARCH_DWARF_PC == 16
};

/* Where a frame begins and what the caller's registers were, for one address. */
struct rule {
	int32_t cfa_offset;
	int16_t fp_offset;    /* from the frame's beginning; SAME where the caller's is still in it */
	uint8_t cfa_register; /* ARCH_DWARF_SP or ARCH_DWARF_FP */
	uint8_t known;
};
enum { SAME = INT16_MIN };

/* ---- DWARF --------------------------------------------------------------------------------------------- */

struct cursor {
	const uint8_t *at, *end;
};

static uint64_t take_bytes(struct cursor *cursor, unsigned bytes)
{
	uint64_t value = 0;

	if ((size_t)(cursor->end - cursor->at) < bytes) {
		cursor->at = cursor->end;
		return 0;
	}
	memcpy(&value, cursor->at, bytes);
	cursor->at += bytes;
	return value;
}

static uint64_t take_unsigned(struct cursor *cursor)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = (uint8_t)take_bytes(cursor, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && cursor->at < cursor->end);
	return value;
}

static int64_t take_signed(struct cursor *cursor)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = (uint8_t)take_bytes(cursor, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && cursor->at < cursor->end);
	if (shift < 64 && byte & 0x40)
		value |= ~0ul << shift;
	return (int64_t)value;
}

/* An address in the encodings that linkers write: relative to itself or to the header, 4 or 8 bytes. */
static uintptr_t take_pointer(struct cursor *cursor, uint8_t encoding, const uint8_t *header)
{
	uintptr_t base = (encoding & 0x70) == 0x10   ? (uintptr_t)cursor->at
			 : (encoding & 0x70) == 0x30 ? (uintptr_t)header
						     : 0;

	switch (encoding & 0x0f) {
	case 0x00:
	case 0x04:
	case 0x0c:
		return base + take_bytes(cursor, 8);
	case 0x03:
		return base + take_bytes(cursor, 4);
	case 0x0b:
		return base + (uintptr_t)(intptr_t)(int32_t)take_bytes(cursor, 4);
	default:
		cursor->at = cursor->end;
		return 0;
	}
}

struct description {
	struct cursor initial, own; /* instructions */
	uintptr_t start, length;
	uint64_t code_unit;
	int64_t data_unit;
	bool signal; /* the kernel's frame: the address is not a return address */
};

static bool read_common(const uint8_t *common, struct description *description, uint8_t *encoding)
{
	struct cursor cursor = {common, common + 4};
	uint64_t length = take_bytes(&cursor, 4);

	cursor.end = cursor.at + length;
	description->initial.end = cursor.end;
	if (length == 0xffffffff || take_bytes(&cursor, 4) != 0)
		return false;
	uint64_t version = take_bytes(&cursor, 1);
	const char *augmentation = (const char *)cursor.at;

	cursor.at += strnlen(augmentation, (size_t)(cursor.end - cursor.at)) + 1;
	description->code_unit = take_unsigned(&cursor);
	description->data_unit = take_signed(&cursor);
	uint64_t return_register = version == 1 ? take_bytes(&cursor, 1) : take_unsigned(&cursor);

	*encoding = 0;
	description->initial.at = cursor.at;
	if (*augmentation == 'z') {
		uint64_t bytes = take_unsigned(&cursor);

		description->initial.at = cursor.at + bytes;
		for (const char *letter = augmentation + 1; *letter; letter++)
			switch (*letter) {
			case 'R':
				*encoding = (uint8_t)take_bytes(&cursor, 1);
				break;
			case 'P': {
				uint8_t personality = (uint8_t)take_bytes(&cursor, 1);

				(void)take_pointer(&cursor, personality, NULL);
				break;
			}
			case 'L':
				(void)take_bytes(&cursor, 1);
				break;
			case 'S':
				description->signal = true;
				break;
			default:
				return false;
			}
	}
	return return_register == ARCH_DWARF_PC;
}

/* The description of the function that an address lies in, by the sorted table of an .eh_frame_hdr. */
static bool find_description(uintptr_t pc, const uint8_t *header, struct description *description)
{
	struct cursor cursor = {header + 4, header + 4 + 16};

	/* Version 1, and a table of pairs relative to the header, as all linkers make it. */
	if (header[0] != 1 || header[2] != 0x03 || header[3] != 0x3b)
		return false;
	(void)take_pointer(&cursor, header[1], header);
	uint32_t count = (uint32_t)take_bytes(&cursor, 4);
	const int32_t *table = (const int32_t *)cursor.at;
	uint32_t low = 0, high = count;

	while (high - low > 1 && high) {
		uint32_t middle = low + (high - low) / 2;

		if (pc >= (uintptr_t)header + (uintptr_t)(intptr_t)table[2 * middle])
			low = middle;
		else
			high = middle;
	}
	if (!count)
		return false;
	const uint8_t *frame = header + table[2 * low + 1];
	struct cursor own = {frame, frame + 8};
	uint64_t length = take_bytes(&own, 4), common = take_bytes(&own, 4);
	uint8_t encoding;

	*description = (struct description){.signal = false};
	if (length == 0xffffffff || !common || !read_common(frame + 4 - common, description, &encoding))
		return false;
	own.end = frame + 4 + length;
	description->start = take_pointer(&own, encoding, NULL);
	description->length = take_pointer(&own, encoding & 0x0f, NULL);
	own.at += take_unsigned(&own);
	description->own = own;
	return pc - description->start < description->length;
}

/* Follows one program of instructions up to the address; false at what is not understood. */
static bool follow(struct cursor cursor, const struct description *description, uintptr_t pc,
		   struct rule *rule, const struct rule *initial)
{
	struct rule remembered[STATES];
	unsigned states = 0;
	uintptr_t at = description->start;

	while (cursor.at < cursor.end && at <= pc) {
		uint8_t instruction = (uint8_t)take_bytes(&cursor, 1), low = instruction & 0x3f;
		uint64_t number;
		int64_t offset;

		switch (instruction & 0xc0) {
		case 0x40: /* advance_loc */
			at += low * description->code_unit;
			continue;
		case 0x80: /* offset */
			offset = (int64_t)take_unsigned(&cursor) * description->data_unit;
			if (low == ARCH_DWARF_FP)
				rule->fp_offset = (int16_t)offset;
			continue;
		case 0xc0: /* restore */
			if (low == ARCH_DWARF_FP)
				rule->fp_offset = initial->fp_offset;
			continue;
		}
		switch (instruction) {
		case 0x00: /* nop */
			break;
		case 0x02: /* advance_loc1, 2, 4 */
		case 0x03:
		case 0x04:
			at += take_bytes(&cursor, 1u << (instruction - 2)) * description->code_unit;
			break;
		case 0x05: /* offset_extended */
			number = take_unsigned(&cursor);
			offset = (int64_t)take_unsigned(&cursor) * description->data_unit;
			if (number == ARCH_DWARF_FP)
				rule->fp_offset = (int16_t)offset;
			break;
		case 0x06: /* restore_extended, undefined, same_value */
		case 0x07:
		case 0x08:
			number = take_unsigned(&cursor);
			if (number == ARCH_DWARF_PC)
				return false; /* the outermost frame */
			break;
		case 0x0a: /* remember_state */
			if (states == STATES)
				return false;
			remembered[states++] = *rule;
			break;
		case 0x0b: /* restore_state */
			if (!states)
				return false;
			*rule = remembered[--states];
			break;
		case 0x0c: /* def_cfa */
			rule->cfa_register = (uint8_t)take_unsigned(&cursor);
			rule->cfa_offset = (int32_t)take_unsigned(&cursor);
			break;
		case 0x0d: /* def_cfa_register */
			rule->cfa_register = (uint8_t)take_unsigned(&cursor);
			break;
		case 0x0e: /* def_cfa_offset */
			rule->cfa_offset = (int32_t)take_unsigned(&cursor);
			break;
		case 0x2e: /* GNU_args_size */
			(void)take_unsigned(&cursor);
			break;
		case 0x10: /* expression: of a register that is not asked for, mostly */
		case 0x16:
			number = take_unsigned(&cursor);
			cursor.at += take_unsigned(&cursor);
			if (number == ARCH_DWARF_FP || number == ARCH_DWARF_PC)
				return false;
			break;
		default:
			return false;
		}
	}
	return true;
}

static struct rule find_rule(uintptr_t pc)
{
	static const struct rule nothing = {.known = 1};
	struct rule rule = {.fp_offset = SAME};
	struct description description;
	struct dl_find_object object;

	if (!MACHINE_HAS_CFI || !&_dl_find_object || _dl_find_object((void *)pc, &object) != 0 ||
	    !object.dlfo_eh_frame || !find_description(pc, object.dlfo_eh_frame, &description) ||
	    description.signal)
		return nothing;
	if (!follow(description.initial, &description, UINTPTR_MAX, &rule, &rule))
		return nothing;
	struct rule initial = rule;

	if (!follow(description.own, &description, pc, &rule, &initial) ||
	    (rule.cfa_register != ARCH_DWARF_SP && rule.cfa_register != ARCH_DWARF_FP))
		return nothing;
	rule.known = 1;
	return rule;
}

static struct rule rule_of(uintptr_t pc)
{
	static struct {
		uint64_t check, rule;
	} remembered[REMEMBERED];
	_Static_assert(sizeof(struct rule) == sizeof(uint64_t), "a rule is one word");
	uint64_t packed = __atomic_load_n(&remembered[pc % REMEMBERED].rule, __ATOMIC_RELAXED);
	struct rule rule;

	if ((__atomic_load_n(&remembered[pc % REMEMBERED].check, __ATOMIC_RELAXED) ^ packed) == pc) {
		memcpy(&rule, &packed, sizeof(rule));
		return rule;
	}
	rule = find_rule(pc);
	memcpy(&packed, &rule, sizeof(packed));
	__atomic_store_n(&remembered[pc % REMEMBERED].rule, packed, __ATOMIC_RELAXED);
	__atomic_store_n(&remembered[pc % REMEMBERED].check, packed ^ pc, __ATOMIC_RELAXED);
	return rule;
}

/* ---- the walk ------------------------------------------------------------------------------------------ */

static bool is_frame(uintptr_t address, uintptr_t sp)
{
	return address % sizeof(uintptr_t) == 0 && address >= sp && address - sp < STACK_REACH;
}

/* Up to the caller by call frame information. */
static bool step_by_rule(struct arch_frame *frame, struct rule rule)
{
	uintptr_t cfa = (rule.cfa_register == ARCH_DWARF_FP ? frame->fp : frame->sp) +
			(uintptr_t)(intptr_t)rule.cfa_offset;

	if (!is_frame(cfa, frame->sp + 1))
		return false;
	frame->pc = *(const uintptr_t *)(cfa - sizeof(uintptr_t));
	if (rule.fp_offset != SAME)
		frame->fp = *(const uintptr_t *)(cfa + (uintptr_t)(intptr_t)rule.fp_offset);
	frame->sp = cfa;
	return true;
}

/* The same by the frame pointer, which may be anything here: the kernel reads, and says if nothing is there.
 */
static bool step_by_pointer(struct arch_frame *frame)
{
	uintptr_t saved[2];

	if (!is_frame(frame->fp, frame->sp) || os_read_memory(frame->fp, saved, sizeof(saved)) != 0)
		return false;
	frame->sp = frame->fp + sizeof(saved);
	frame->fp = saved[0];
	frame->pc = saved[1];
	return true;
}

/*
 * Whether an address is in the library, where that is a file of its own: whoever called it is what a profile
 * is about.  In a program that has it linked in, readers tell by the names.
 */
static bool is_own(uintptr_t pc)
{
	struct dl_find_object object, own;

	return &_dl_find_object && _dl_find_object((void *)pc, &object) == 0 &&
	       _dl_find_object((void *)(uintptr_t)&profile_stack, &own) == 0 &&
	       object.dlfo_link_map == own.dlfo_link_map && own.dlfo_link_map->l_name[0];
}

__attribute__((noinline)) unsigned profile_stack(uint64_t *frames, unsigned capacity)
{
	struct arch_frame frame = arch_here();
	unsigned count = 0;

	for (unsigned depth = 0; count < capacity; depth++) {
		/* A return address may be the first after its function: the call is what is looked up. */
		struct rule rule = frame.pc ? rule_of(frame.pc - (depth > 0)) : (struct rule){.known = 1};
		bool moved = rule.cfa_register ? step_by_rule(&frame, rule) : step_by_pointer(&frame);

		if (!moved || !frame.pc)
			break;
		if (depth > 0 && (count || !is_own(frame.pc)))
			frames[count++] = frame.pc;
	}
	return count;
}
