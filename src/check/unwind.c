/* SPDX-License-Identifier: MIT */
#include "check/unwind.h"

#include <stdbool.h>
#include <string.h>

#include "arch/arch.h"
#include "arch/registers.h"
#include "check/symbol.h"
#include "os/os.h"

struct unwind {
	uintptr_t registers[ARCH_REGISTERS];
	bool interrupted;                     /* the frame made no call: a signal arrived there */
	uintptr_t readable_from, readable_to; /* stack pages known to be readable */
};

/* ---- the stack's memory ------------------------------------------------------------------------------- */

/* Only the kernel can say whether a page may be read; it is asked once for each page. */
static __attribute__((noinline)) bool ask_for_page(struct unwind *unwind, uintptr_t address)
{
	uintptr_t page = address & -(uintptr_t)OS_PAGE_BYTES;

	if (!os_can_read((const void *)address))
		return false;
	if (page == unwind->readable_to) {
		unwind->readable_to += OS_PAGE_BYTES;
	} else {
		unwind->readable_from = page;
		unwind->readable_to = page + OS_PAGE_BYTES;
	}
	return true;
}

static inline bool read_word(struct unwind *unwind, uintptr_t address, uintptr_t *word)
{
	if (!address || address % sizeof *word)
		return false;
	if ((address < unwind->readable_from || address >= unwind->readable_to) &&
	    !ask_for_page(unwind, address))
		return false;
	*word = *(const uintptr_t *)address;
	return true;
}

#if ARCH_HAS_FRAME_TABLES

/* ---- encodings (DWARF 5, 7.6; Linux Standard Base, exception frames) ---------------------------------- */

struct bytes {
	const unsigned char *at, *end;
};

static uint64_t take(struct bytes *bytes, unsigned count)
{
	uint64_t value = 0;

	if ((size_t)(bytes->end - bytes->at) < count) {
		bytes->at = bytes->end;
		return 0;
	}
	memcpy(&value, bytes->at, count);
	bytes->at += count;
	return value;
}

/* Returns the bits of a LEB128 number; *beyond is the first bit above them, *last their last byte. */
static uint64_t take_leb(struct bytes *bytes, unsigned *beyond, unsigned *last)
{
	uint64_t value = 0;
	unsigned shift = 0, byte;

	do {
		byte = (unsigned)take(bytes, 1);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	*beyond = shift;
	*last = byte;
	return value;
}

static uint64_t take_uleb(struct bytes *bytes)
{
	unsigned beyond, last;

	return take_leb(bytes, &beyond, &last);
}

static int64_t take_sleb(struct bytes *bytes)
{
	unsigned beyond, last;
	uint64_t value = take_leb(bytes, &beyond, &last);

	if (beyond < 64 && last & 0x40)
		value |= -(uint64_t)1 << beyond;
	return (int64_t)value;
}

enum {
	POINTER_ABSOLUTE = 0x00,
	POINTER_UDATA4 = 0x03,
	POINTER_SDATA4 = 0x0b,
	POINTER_RELATIVE = 0x10, /* to its own position */
	POINTER_DATA = 0x30,     /* to the table's start */
};

/* Reads an encoded code address; encodings not handled here do not occur on 64-bit Linux. */
static bool take_pointer(struct bytes *bytes, unsigned encoding, uintptr_t *pointer)
{
	uintptr_t place = (uintptr_t)bytes->at;

	switch (encoding) {
	case POINTER_ABSOLUTE:
		*pointer = take(bytes, sizeof *pointer);
		return true;
	case POINTER_RELATIVE | POINTER_SDATA4:
		*pointer = place + (uintptr_t)(int32_t)take(bytes, 4);
		return true;
	default:
		return false;
	}
}

/* ---- finding the description of a code address ----------------------------------------------------- */

struct description {
	struct bytes common, own; /* call frame instructions: common, the function's own */
	uintptr_t start, length;  /* of the function */
	uint64_t code_unit;
	int64_t data_unit;
	unsigned return_register;
	bool signal_frame;
};

/* Reads a common information entry, which says how the function's entry encodes addresses. */
static bool read_common(const unsigned char *entry, struct description *description, unsigned *encoding,
			bool *augmented)
{
	struct bytes bytes = {entry, entry + 4};
	uint64_t length = take(&bytes, 4);

	if (length == UINT32_MAX)
		return false;
	bytes.end = bytes.at + length;
	if (take(&bytes, 4) != 0)
		return false;
	unsigned version = (unsigned)take(&bytes, 1);
	const char *letters = (const char *)bytes.at;

	if ((version != 1 && version != 3) || (letters[0] && letters[0] != 'z'))
		return false;
	bytes.at += strlen(letters) + 1;
	description->code_unit = take_uleb(&bytes);
	description->data_unit = take_sleb(&bytes);
	description->return_register = (unsigned)(version == 1 ? take(&bytes, 1) : take_uleb(&bytes));
	*encoding = POINTER_ABSOLUTE;
	*augmented = letters[0] == 'z';
	if (*augmented) {
		uint64_t data_length = take_uleb(&bytes);
		struct bytes data = {bytes.at, bytes.at + data_length};
		uintptr_t personality;

		bytes.at += data_length;
		for (letters++; *letters; letters++) {
			if (*letters == 'R')
				*encoding = (unsigned)take(&data, 1);
			else if (*letters == 'L')
				(void)take(&data, 1);
			else if (*letters == 'S')
				description->signal_frame = true;
			else if (*letters != 'P' ||
				 /* indirect or not, its length is the same */
				 !take_pointer(&data, (unsigned)take(&data, 1) & 0x7f, &personality))
				return false;
		}
	}
	description->common = bytes;
	return true;
}

/* Reads a frame description entry and the common one that it refers to. */
static bool read_description(const unsigned char *entry, uintptr_t address, struct description *description)
{
	struct bytes bytes = {entry, entry + 4};
	uint64_t length = take(&bytes, 4);
	unsigned encoding;
	bool augmented;

	*description = (struct description){0};
	if (length == UINT32_MAX)
		return false;
	bytes.end = bytes.at + length;
	const unsigned char *here = bytes.at;
	uint64_t distance = take(&bytes, 4);

	if (!distance || !read_common(here - distance, description, &encoding, &augmented) ||
	    !take_pointer(&bytes, encoding, &description->start))
		return false;
	description->length = take(&bytes, encoding == POINTER_ABSOLUTE ? 8 : 4);
	if (augmented) {
		uint64_t data_length = take_uleb(&bytes);

		bytes.at += data_length;
	}
	description->own = bytes;
	return address - description->start < description->length;
}

/* Searches the module's table of functions, which is sorted by address. */
static bool find_description(uintptr_t address, struct description *description)
{
	struct module module;

	if (!symbol_module(address, &module) || !module.unwind_table)
		return false;
	const unsigned char *header = module.unwind_table;

	if (header[0] != 1 || header[1] != (POINTER_RELATIVE | POINTER_SDATA4) ||
	    header[2] != POINTER_UDATA4 || header[3] != (POINTER_DATA | POINTER_SDATA4))
		return false;
	struct row {
		int32_t start, entry; /* from the header */
	};
	uint32_t count;

	memcpy(&count, header + 8, sizeof count);
	const struct row *rows = (const struct row *)(header + 12);
	int64_t wanted = (int64_t)(address - (uintptr_t)header);
	uint32_t low = 0, high = count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (rows[middle].start <= wanted)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && read_description(header + rows[low - 1].entry, address, description);
}

/* ---- call frame instructions ---------------------------------------------------------------------- */

enum rule_kind {
	RULE_SAME,
	RULE_UNDEFINED,
	RULE_AT,
	RULE_VALUE,
	RULE_REGISTER,
	RULE_AT_EXPRESSION,
	RULE_EXPRESSION
};

/* How to find a register of the calling frame. */
struct rule {
	enum rule_kind kind;
	int64_t operand; /* offset from the frame's address, or a register */
	struct bytes expression;
};

struct rules {
	struct rule of[ARCH_REGISTERS];
	unsigned frame_register;
	int64_t frame_offset;
	struct bytes frame_expression; /* used instead of the two if present */
};

enum { REMEMBERED_MOST = 2 };

struct machine {
	struct rules now, initial;
	struct rules remembered[REMEMBERED_MOST];
	unsigned remembered_count;
	uintptr_t location;
};

static struct bytes take_block(struct bytes *bytes)
{
	uint64_t length = take_uleb(bytes);
	struct bytes block = {bytes->at, bytes->at};

	if (length <= (uint64_t)(bytes->end - bytes->at))
		block.end = bytes->at += length;
	return block;
}

static void set_rule(struct machine *machine, uint64_t which, struct rule rule)
{
	/* Vector registers and the like are ignored. */
	if (which < ARCH_REGISTERS)
		machine->now.of[which] = rule;
}

static void restore_rule(struct machine *machine, uint64_t which)
{
	if (which < ARCH_REGISTERS)
		machine->now.of[which] = machine->initial.of[which];
}

static void set_frame(struct machine *machine, uint64_t which, int64_t offset)
{
	machine->now.frame_register = (unsigned)which;
	machine->now.frame_offset = offset;
	machine->now.frame_expression = (struct bytes){0};
}

/* Executes instructions up to the first for code beyond `address`.  Returns false on an unknown one. */
static bool execute(struct machine *machine, const struct description *description, struct bytes code,
		    uintptr_t address)
{
	enum { ADVANCE = 1, OFFSET = 2, RESTORE = 3 }; /* the upper two bits; the lower six are an operand */

	while (code.at < code.end && machine->location <= address) {
		unsigned instruction = (unsigned)take(&code, 1), operand = instruction & 0x3f;
		uint64_t which;

		switch (instruction >> 6) {
		case ADVANCE:
			machine->location += operand * description->code_unit;
			continue;
		case OFFSET:
			set_rule(machine, operand,
				 (struct rule){
					 RULE_AT, (int64_t)take_uleb(&code) * description->data_unit, {0}});
			continue;
		case RESTORE:
			restore_rule(machine, operand);
			continue;
		default:
			break;
		}
		switch (instruction) {
		case 0x00: /* nop */
			break;
		case 0x02: /* advance_loc1, 2 and 4 */
			machine->location += take(&code, 1) * description->code_unit;
			break;
		case 0x03:
			machine->location += take(&code, 2) * description->code_unit;
			break;
		case 0x04:
			machine->location += take(&code, 4) * description->code_unit;
			break;
		case 0x05: /* offset_extended */
			which = take_uleb(&code);
			set_rule(machine, which,
				 (struct rule){
					 RULE_AT, (int64_t)take_uleb(&code) * description->data_unit, {0}});
			break;
		case 0x06: /* restore_extended */
			restore_rule(machine, take_uleb(&code));
			break;
		case 0x07: /* undefined */
			set_rule(machine, take_uleb(&code), (struct rule){.kind = RULE_UNDEFINED});
			break;
		case 0x08: /* same_value */
			set_rule(machine, take_uleb(&code), (struct rule){.kind = RULE_SAME});
			break;
		case 0x09: /* register */
			which = take_uleb(&code);
			set_rule(machine, which,
				 (struct rule){RULE_REGISTER, (int64_t)take_uleb(&code), {0}});
			break;
		case 0x0a: /* remember_state */
			if (machine->remembered_count == REMEMBERED_MOST)
				return false;
			machine->remembered[machine->remembered_count++] = machine->now;
			break;
		case 0x0b: /* restore_state */
			if (!machine->remembered_count)
				return false;
			machine->now = machine->remembered[--machine->remembered_count];
			break;
		case 0x0c: /* def_cfa */
			which = take_uleb(&code);
			set_frame(machine, which, (int64_t)take_uleb(&code));
			break;
		case 0x0d: /* def_cfa_register */
			set_frame(machine, take_uleb(&code), machine->now.frame_offset);
			break;
		case 0x0e: /* def_cfa_offset */
			machine->now.frame_offset = (int64_t)take_uleb(&code);
			break;
		case 0x0f: /* def_cfa_expression */
			machine->now.frame_expression = take_block(&code);
			break;
		case 0x10: /* expression */
			which = take_uleb(&code);
			set_rule(machine, which, (struct rule){RULE_AT_EXPRESSION, 0, take_block(&code)});
			break;
		case 0x11: /* offset_extended_sf */
			which = take_uleb(&code);
			set_rule(machine, which,
				 (struct rule){RULE_AT, take_sleb(&code) * description->data_unit, {0}});
			break;
		case 0x12: /* def_cfa_sf */
			which = take_uleb(&code);
			set_frame(machine, which, take_sleb(&code) * description->data_unit);
			break;
		case 0x13: /* def_cfa_offset_sf */
			machine->now.frame_offset = take_sleb(&code) * description->data_unit;
			break;
		case 0x14: /* val_offset */
			which = take_uleb(&code);
			set_rule(machine, which,
				 (struct rule){RULE_VALUE,
					       (int64_t)take_uleb(&code) * description->data_unit,
					       {0}});
			break;
		case 0x16: /* val_expression */
			which = take_uleb(&code);
			set_rule(machine, which, (struct rule){RULE_EXPRESSION, 0, take_block(&code)});
			break;
		case 0x2e: /* GNU_args_size */
			(void)take_uleb(&code);
			break;
		default:
			return false;
		}
	}
	return true;
}

enum {
	OPERATION_DEREF = 0x06,
	OPERATION_CONST1S = 0x09,
	OPERATION_AND = 0x1a,
	OPERATION_PLUS = 0x22,
	OPERATION_PLUS_UCONST = 0x23,
	OPERATION_BREG = 0x70, /* and those after it: a register and an offset */
};

/* Applies an operation to the two topmost values; returns false if it is unknown. */
static bool combine(unsigned operation, uintptr_t *first, uintptr_t second)
{
	switch (operation) {
	case OPERATION_PLUS:
		*first += second;
		return true;
	case OPERATION_AND:
		*first &= second;
		return true;
	default:
		return false;
	}
}

/* Evaluates the few operations used by compilers, libc's signal frame and arch's abort handlers. */
static bool evaluate(struct unwind *unwind, struct bytes expression, const uintptr_t *frame,
		     uintptr_t *result)
{
	enum { STACK_MOST = 8 };
	uintptr_t stack[STACK_MOST];
	unsigned depth = 0;

	if (frame)
		stack[depth++] = *frame;
	while (expression.at < expression.end) {
		unsigned operation = (unsigned)take(&expression, 1);

		if (operation >= OPERATION_BREG && operation < OPERATION_BREG + ARCH_REGISTERS &&
		    depth < STACK_MOST) {
			stack[depth++] = unwind->registers[operation - OPERATION_BREG] +
					 (uintptr_t)take_sleb(&expression);
		} else if (operation == OPERATION_CONST1S && depth < STACK_MOST) {
			stack[depth++] = (uintptr_t)(int8_t)take(&expression, 1);
		} else if (operation == OPERATION_DEREF && depth) {
			if (!read_word(unwind, stack[depth - 1], &stack[depth - 1]))
				return false;
		} else if (operation == OPERATION_PLUS_UCONST && depth) {
			stack[depth - 1] += take_uleb(&expression);
		} else if (depth < 2 || !combine(operation, &stack[depth - 2], stack[depth - 1])) {
			return false;
		} else {
			depth--;
		}
	}
	if (!depth)
		return false;
	*result = stack[depth - 1];
	return true;
}

/* ---- frames ------------------------------------------------------------------------------------------- */

static bool apply(struct unwind *unwind, const struct rule *rule, uintptr_t frame, uintptr_t *value)
{
	uintptr_t address;

	switch (rule->kind) {
	case RULE_SAME:
		return true;
	case RULE_UNDEFINED:
		*value = 0;
		return true;
	case RULE_AT:
		return read_word(unwind, frame + (uintptr_t)rule->operand, value);
	case RULE_VALUE:
		*value = frame + (uintptr_t)rule->operand;
		return true;
	case RULE_REGISTER:
		if (rule->operand >= ARCH_REGISTERS)
			return false;
		*value = unwind->registers[rule->operand];
		return true;
	case RULE_AT_EXPRESSION:
		return evaluate(unwind, rule->expression, &frame, &address) &&
		       read_word(unwind, address, value);
	case RULE_EXPRESSION:
		return evaluate(unwind, rule->expression, &frame, value);
	}
	return false;
}

/* Finds the tables' rules for an address; returns false where they are not understood. */
static bool find_rules(const struct description *description, uintptr_t address, struct rules *rules)
{
	struct machine machine = {.location = 0};

	if (description->return_register != ARCH_REGISTER_IP ||
	    !execute(&machine, description, description->common, address))
		return false;
	machine.initial = machine.now;
	machine.location = description->start;
	if (!execute(&machine, description, description->own, address))
		return false;
	*rules = machine.now;
	return true;
}

/* The outermost function is marked so. */
static bool has_no_caller(const struct rules *rules)
{
	return rules->of[ARCH_REGISTER_IP].kind == RULE_SAME ||
	       rules->of[ARCH_REGISTER_IP].kind == RULE_UNDEFINED;
}

static bool step_by_rules(struct unwind *unwind, const struct rules *rules)
{
	uintptr_t caller[ARCH_REGISTERS], frame;

	if (rules->frame_expression.at) {
		if (!evaluate(unwind, rules->frame_expression, NULL, &frame))
			return false;
	} else {
		if (rules->frame_register >= ARCH_REGISTERS)
			return false;
		frame = unwind->registers[rules->frame_register] + (uintptr_t)rules->frame_offset;
	}
	memcpy(caller, unwind->registers, sizeof caller);
	caller[ARCH_REGISTER_SP] = frame;
	if (has_no_caller(rules))
		return false;
	for (unsigned i = 0; i < ARCH_REGISTERS; i++)
		if (!apply(unwind, &rules->of[i], frame, &caller[i]))
			return false;
	memcpy(unwind->registers, caller, sizeof caller);
	return true;
}

/* ---- rules in brief ----------------------------------------------------------------------------------- */

/*
 * Nearly always a frame begins at an offset from one of two registers, the return address lies just below,
 * and the callee-saved registers are still in place, or a few words further down.  A brief holds such rules
 * in one word: for each of these registers, from the lowest byte on, how many words down it lies (0: still in
 * place); then the offset in words; then whether it counts from the stack pointer or the frame pointer, or
 * that there is no caller.  0 says that a function's rules do not fit.
 */
enum {
	BRIEF_OFFSET = 48, /* lowest bit */
	BRIEF_BASE = 62,
	BRIEF_BY_SP = 1,
	BRIEF_BY_FP = 2,
	BRIEF_OUTERMOST = 3,
	WORD = sizeof(uintptr_t),
};

static const uint8_t saved[] = {ARCH_REGISTERS_SAVED};
enum { SAVED = sizeof saved };
_Static_assert(SAVED * 8 <= BRIEF_OFFSET, "a byte for each");

static bool is_saved(unsigned which)
{
	for (unsigned i = 0; i < SAVED; i++)
		if (saved[i] == which)
			return true;
	return false;
}

/* Returns how many words below the frame a register lies; 0 if that does not fit one byte. */
static uint64_t words_below(const struct rule *rule)
{
	return rule->kind == RULE_AT && rule->operand < 0 && rule->operand % WORD == 0 &&
			       rule->operand >= -UINT8_MAX * WORD
		       ? (uint64_t)-rule->operand / WORD
		       : 0;
}

static uint64_t in_brief(const struct rules *rules)
{
	uint64_t brief = 0, words = (uint64_t)rules->frame_offset / WORD;

	if (has_no_caller(rules))
		return (uint64_t)BRIEF_OUTERMOST << BRIEF_BASE;
	if (rules->frame_expression.at || rules->frame_offset < 0 || rules->frame_offset % WORD ||
	    words >> (BRIEF_BASE - BRIEF_OFFSET) || words_below(&rules->of[ARCH_REGISTER_IP]) != 1)
		return 0;
	for (unsigned i = 0; i < SAVED; i++) {
		const struct rule *rule = &rules->of[saved[i]];
		uint64_t below = words_below(rule);

		if (!below && rule->kind != RULE_SAME)
			return 0;
		brief |= below << 8 * i;
	}
	for (unsigned i = 0; i < ARCH_REGISTERS; i++)
		if (i != ARCH_REGISTER_IP && !is_saved(i) && rules->of[i].kind != RULE_SAME)
			return 0;
	uint64_t base = rules->frame_register == ARCH_REGISTER_SP   ? BRIEF_BY_SP
			: rules->frame_register == ARCH_REGISTER_FP ? BRIEF_BY_FP
								    : 0;

	return base ? brief | words << BRIEF_OFFSET | base << BRIEF_BASE : 0;
}

static bool step_in_brief(struct unwind *unwind, uint64_t brief)
{
	uintptr_t *registers = unwind->registers;

	if (brief >> BRIEF_BASE == BRIEF_OUTERMOST)
		return false;
	uintptr_t words = brief >> BRIEF_OFFSET & ((1ul << (BRIEF_BASE - BRIEF_OFFSET)) - 1);
	uintptr_t frame =
		registers[brief >> BRIEF_BASE == BRIEF_BY_SP ? ARCH_REGISTER_SP : ARCH_REGISTER_FP] +
		words * WORD;

	if (!read_word(unwind, frame - WORD, &registers[ARCH_REGISTER_IP]))
		return false;
	uint64_t rest = brief & ((1ul << 8 * SAVED) - 1);

	while (rest) {
		unsigned i = (unsigned)__builtin_ctzl(rest) / 8;

		if (!read_word(unwind, frame - (uint8_t)(brief >> 8 * i) * WORD, &registers[saved[i]]))
			return false;
		rest &= ~(0xfful << 8 * i);
	}
	registers[ARCH_REGISTER_SP] = frame;
	unwind->interrupted = false;
	return true;
}

/*
 * Cache of briefs.  The first of the two words is the address exclusive-or the second, so that two threads
 * that write one at a time leave an entry that fits no address.  A module mapped where another was closed may
 * be given the other's rules for a while: its stacks are then wrong, but read with the same care.
 */
enum { BRIEF_SETS = 1 << 10, BRIEFS_IN_SET = 2 };
static struct brief {
	uint64_t check, brief;
} briefs[BRIEF_SETS][BRIEFS_IN_SET] ARCH_SPARSE;

/* Addresses that occur together often lie a round number of bytes apart. */
static struct brief *briefs_of(uintptr_t address)
{
	return briefs[(address * 0x9e3779b97f4a7c15u >> 32) % BRIEF_SETS];
}

static uint64_t recall(uintptr_t address)
{
	const struct brief *set = briefs_of(address);

	for (unsigned i = 0; i < BRIEFS_IN_SET; i++) {
		uint64_t brief = __atomic_load_n(&set[i].brief, __ATOMIC_RELAXED);

		if ((__atomic_load_n(&set[i].check, __ATOMIC_RELAXED) ^ brief) == address)
			return brief;
	}
	return 0;
}

static void remember(uintptr_t address, uint64_t brief)
{
	struct brief *set = briefs_of(address);
	/* Keep the first entry as long as there is room beside it. */
	unsigned i = __atomic_load_n(&set[0].brief, __ATOMIC_RELAXED) != 0 &&
		     __atomic_load_n(&set[1].brief, __ATOMIC_RELAXED) == 0;

	__atomic_store_n(&set[i].brief, brief, __ATOMIC_RELAXED);
	__atomic_store_n(&set[i].check, brief ^ address, __ATOMIC_RELAXED);
}

/* Returns false where the tables do not cover the address; *stepped tells whether the frame could be left. */
static bool step_by_table(struct unwind *unwind, uintptr_t address, bool *stepped)
{
	struct description description;
	struct rules rules;
	uint64_t brief = recall(address);

	if (!brief) {
		if (!find_description(address, &description))
			return false;
		*stepped = find_rules(&description, address, &rules);
		if (!*stepped)
			return true;
		brief = description.signal_frame ? 0 : in_brief(&rules);
		if (!brief) {
			*stepped = step_by_rules(unwind, &rules);
			unwind->interrupted = description.signal_frame;
			return true;
		}
		remember(address, brief);
	}
	*stepped = step_in_brief(unwind, brief);
	return true;
}

#else

static bool step_by_table(struct unwind *unwind, uintptr_t address, bool *stepped)
{
	(void)unwind;
	(void)address;
	(void)stepped;
	return false;
}

#endif

/* ---- the walk ----------------------------------------------------------------------------------------- */

/* For code without tables: generated at run time, or built without unwind information. */
static bool step_by_frame_pointer(struct unwind *unwind)
{
	uintptr_t frame = unwind->registers[ARCH_REGISTER_FP], next, address;

	if (frame < unwind->registers[ARCH_REGISTER_SP] || !read_word(unwind, frame, &next) ||
	    !read_word(unwind, frame + sizeof next, &address))
		return false;
	unwind->registers[ARCH_REGISTER_SP] = frame + 2 * sizeof next;
	unwind->registers[ARCH_REGISTER_FP] = next;
	unwind->registers[ARCH_REGISTER_IP] = address;
	unwind->interrupted = false;
	return true;
}

/* Moves to the calling frame; returns false at the last one, or where nothing can be trusted any more. */
static bool step(struct unwind *unwind)
{
	uintptr_t before = unwind->registers[ARCH_REGISTER_SP];
	/*
	 * A call may be the last instruction of its function; the return address is then the next function's.
	 */
	uintptr_t address = unwind->registers[ARCH_REGISTER_IP] - !unwind->interrupted;
	bool was_interrupted = unwind->interrupted, stepped;

	if (!step_by_table(unwind, address, &stepped))
		stepped = step_by_frame_pointer(unwind);
	/* Stacks grow downwards, except that a signal may have come on a stack of its own. */
	return stepped && unwind->registers[ARCH_REGISTER_IP] &&
	       (unwind->registers[ARCH_REGISTER_SP] > before || unwind->interrupted || was_interrupted);
}

/*
 * The pages that the thread's last walk found readable, trusted as long as the thread stands on one of them:
 * the first page's number, and in the low bits their count.  One word, since a signal handler may intervene.
 */
enum { STACK_PAGES = 24 }; /* bits */
static __thread uint64_t last_stack;

static void recall_stack(struct unwind *unwind)
{
	uintptr_t page = unwind->registers[ARCH_REGISTER_SP] >> OS_PAGE_SHIFT;
	uintptr_t first = last_stack >> STACK_PAGES, pages = last_stack & ((1ul << STACK_PAGES) - 1);

	if (page - first >= pages) {
		first = page;
		pages = 1;
	}
	unwind->readable_from = first << OS_PAGE_SHIFT;
	unwind->readable_to = (first + pages) << OS_PAGE_SHIFT;
}

static void remember_stack(const struct unwind *unwind)
{
	uintptr_t pages = (unwind->readable_to - unwind->readable_from) >> OS_PAGE_SHIFT;

	if (pages >> STACK_PAGES == 0)
		last_stack = unwind->readable_from >> OS_PAGE_SHIFT << STACK_PAGES | pages;
}

__attribute__((noinline)) unsigned unwind_callers(uintptr_t *frames, unsigned capacity)
{
	struct unwind unwind = {.interrupted = false};
	struct module own;
	unsigned count = 0;
	/* Skip the library's own frames where it is a module of its own, so that they can be told apart. */
	bool skipping = symbol_module((uintptr_t)&unwind_callers, &own) && !own.program;

	arch_read_registers(unwind.registers);
	recall_stack(&unwind);
	while (count < capacity && step(&unwind)) {
		uintptr_t address = unwind.registers[ARCH_REGISTER_IP];

		skipping = skipping && address - own.start < own.end - own.start;
		if (!skipping)
			frames[count++] = address;
	}
	remember_stack(&unwind);
	return count;
}
