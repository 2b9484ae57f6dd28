/* SPDX-License-Identifier: MIT */
#include "inspect/lines.h"

#ifdef CPUSLAB_HAS_LIBDW
#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Code of one compilation unit, at addresses as in the debug information. */
struct range {
	Dwarf_Addr low, high;
	Dwarf_Die *unit;
};

struct lines {
	Dwfl *session;
	Dwfl_Module *module;
	bool broken;
	Dwarf_Addr bias; /* from addresses in the debug information to those in the program headers */
	struct range *ranges;
	size_t range_count;
};

/*
 * libdw maps files, and whoever owns one may truncate it meanwhile: then the file is given up.  This is the
 * only signal that is caught, since it comes from reading such a page, never from the middle of malloc.
 */
static sigjmp_buf truncated;
static struct sigaction before;

static void on_bus_error(int number)
{
	(void)number;
	siglongjmp(truncated, 1);
}

/* Calls `read`; returns false if it met a page that is gone. */
static bool read_safely(void (*read)(void *request), void *request)
{
	struct sigaction action = {.sa_handler = on_bus_error};
	bool whole = sigsetjmp(truncated, 1) == 0;

	if (whole) {
		sigaction(SIGBUS, &action, &before);
		read(request);
	}
	sigaction(SIGBUS, &before, NULL);
	return whole;
}

/* ---- which unit ---------------------------------------------------------------------------------------- */

static int by_low(const void *one, const void *other)
{
	const struct range *a = one, *b = other;

	return (a->low > b->low) - (a->low < b->low);
}

static void add_range(struct lines *lines, Dwarf_Addr low, Dwarf_Addr high, Dwarf_Die *unit)
{
	if ((lines->range_count & (lines->range_count - 1)) == 0) {
		size_t room = lines->range_count ? 2 * lines->range_count : 1;
		struct range *larger = reallocarray(lines->ranges, room, sizeof(*larger));

		if (!larger)
			return;
		lines->ranges = larger;
	}
	lines->ranges[lines->range_count++] = (struct range){low, high, unit};
}

/*
 * Reads the ranges of all units, since .debug_aranges, by which libdw finds them, is missing where clang or
 * rustc compiled.  Functions that the linker dropped begin at 0.
 */
static void read_ranges(void *request)
{
	struct lines *lines = request;

	for (Dwarf_Die *unit = NULL; (unit = dwfl_module_nextcu(lines->module, unit, &lines->bias));) {
		Dwarf_Addr base, low, high;
		ptrdiff_t at = 0;

		while ((at = dwarf_ranges(unit, at, &base, &low, &high)) > 0)
			if (low && low < high)
				add_range(lines, low, high, unit);
	}
	if (lines->range_count)
		qsort(lines->ranges, lines->range_count, sizeof(*lines->ranges), by_low);
}

static Dwarf_Die *find_unit(const struct lines *lines, Dwarf_Addr address)
{
	size_t low = 0, high = lines->range_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (lines->ranges[middle].low <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low && address < lines->ranges[low - 1].high ? lines->ranges[low - 1].unit : NULL;
}

/* ---- a file -------------------------------------------------------------------------------------------- */

struct opening {
	struct lines *lines;
	int file;
	const char *path;
	bool opened;
};

static void open_session(void *request)
{
	static const Dwfl_Callbacks callbacks = {.find_elf = dwfl_build_id_find_elf,
						 .find_debuginfo = dwfl_standard_find_debuginfo};
	struct opening *opening = request;
	struct lines *lines = opening->lines;

	lines->session = dwfl_begin(&callbacks);
	if (!lines->session)
		return;
	dwfl_report_begin(lines->session);
	lines->module = dwfl_report_elf(lines->session, opening->path, opening->path, opening->file, 0, true);
	opening->opened = dwfl_report_end(lines->session, NULL, NULL) == 0 && lines->module;
}

struct lines *lines_open(int file, const char *path)
{
	struct lines *lines = calloc(1, sizeof(*lines));
	struct opening opening = {.lines = lines, .file = dup(file), .path = path};

	if (!lines) {
		perror("cpuslab");
		exit(1);
	}
	unsetenv("DEBUGINFOD_URLS");
	lines->broken = opening.file < 0 || !read_safely(open_session, &opening);
	if (opening.opened && !lines->broken)
		lines->broken = !read_safely(read_ranges, lines);
	/* The session closes the file, once it has a module of it. */
	if (opening.file >= 0 && !lines->module)
		close(opening.file);
	if (opening.opened && !lines->broken)
		return lines;
	lines_close(lines);
	return NULL;
}

void lines_close(struct lines *lines)
{
	/* Nothing is known about a session that was left in the middle. */
	if (lines && lines->session && !lines->broken)
		dwfl_end(lines->session);
	if (lines)
		free(lines->ranges);
	free(lines);
}

static const char *name_of(Dwarf_Die *die)
{
	Dwarf_Attribute attribute;
	const char *name = NULL;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute))
		name = dwarf_formstring(&attribute);
	return name ? name : dwarf_diename(die);
}

/* Where an inlined function is called. */
static void find_call(Dwarf_Die *unit, Dwarf_Die *inlined, const char **file, int *line)
{
	Dwarf_Attribute attribute;
	Dwarf_Word number, index;
	Dwarf_Files *files;
	size_t count;

	*file = NULL;
	*line = 0;
	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_line, &attribute), &number) == 0)
		*line = (int)number;
	if (dwarf_formudata(dwarf_attr(inlined, DW_AT_call_file, &attribute), &index) == 0 &&
	    dwarf_getsrcfiles(unit, &files, &count) == 0 && index < count)
		*file = dwarf_filesrc(files, index, NULL, NULL);
}

/* The functions at an address, the one that contains it first, then those inlined there. */
struct chain {
	Dwarf_Die functions[LINES_FRAMES];
	size_t count;
};

/*
 * Looks among a DIE's children, and in what has no address itself but contains functions: Rust defines them
 * in their namespaces, where dwarf_getscopes() does not look.
 */
static bool find_functions(Dwarf_Die *parent, Dwarf_Addr address, struct chain *chain)
{
	Dwarf_Die child;

	if (dwarf_child(parent, &child) != 0)
		return false;
	do {
		int tag = dwarf_tag(&child);
		bool function = tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;

		if (function || tag == DW_TAG_lexical_block || tag == DW_TAG_try_block ||
		    tag == DW_TAG_catch_block) {
			if (dwarf_haspc(&child, address) <= 0)
				continue;
			if (function && chain->count < LINES_FRAMES)
				chain->functions[chain->count++] = child;
			find_functions(&child, address, chain);
			return true;
		}
		if ((tag == DW_TAG_namespace || tag == DW_TAG_module || tag == DW_TAG_structure_type ||
		     tag == DW_TAG_class_type || tag == DW_TAG_union_type ||
		     tag == DW_TAG_enumeration_type) &&
		    find_functions(&child, address, chain))
			return true;
	} while (dwarf_siblingof(&child, &child) == 0);
	return false;
}

/* ---- an address ---------------------------------------------------------------------------------------- */

struct search {
	struct lines *lines;
	uint64_t address;
	struct lines_frame *frames;
	size_t found;
};

static void search_unit(struct search *search, Dwarf_Die *unit, Dwarf_Addr address)
{
	struct lines_frame at = {.line = 0};
	struct chain chain = {.count = 0};
	Dwarf_Line *source = dwarf_getsrc_die(unit, address);

	if (source && dwarf_lineno(source, &at.line) == 0)
		at.file = dwarf_linesrc(source, NULL, NULL);
	find_functions(unit, address, &chain);
	while (chain.count) {
		Dwarf_Die *function = &chain.functions[--chain.count];

		at.function = name_of(function);
		search->frames[search->found++] = at;
		find_call(unit, function, &at.file, &at.line);
	}
	if (!search->found && at.file)
		search->frames[search->found++] = at;
}

/* By a symbol table, which may be in the file of the debug information too, or compressed. */
static const char *find_symbol(const struct search *search)
{
	GElf_Off offset;
	GElf_Sym symbol;
	const char *name = dwfl_module_addrinfo(search->lines->module, search->address, &offset, &symbol,
						NULL, NULL, NULL);

	return name && offset < symbol.st_size ? name : NULL;
}

static void search(void *request)
{
	struct search *search = request;
	Dwarf_Addr address = search->address - search->lines->bias;
	Dwarf_Die *unit = find_unit(search->lines, address);

	if (unit)
		search_unit(search, unit, address);
	if (search->found && search->frames[search->found - 1].function)
		return;
	const char *name = find_symbol(search);

	if (name && !search->found)
		search->frames[search->found++] = (struct lines_frame){.line = 0};
	if (name)
		search->frames[search->found - 1].function = name;
}

size_t lines_find(struct lines *lines, uint64_t address, struct lines_frame frames[static LINES_FRAMES])
{
	if (!lines || lines->broken)
		return 0;
	struct search request = {.lines = lines, .address = address, .frames = frames};

	lines->broken = !read_safely(search, &request);
	return lines->broken ? 0 : request.found;
}

const char *lines_lacks(void)
{
	return NULL;
}
#else
struct lines *lines_open(int file, const char *path)
{
	(void)file;
	(void)path;
	return NULL;
}

void lines_close(struct lines *lines)
{
	(void)lines;
}

size_t lines_find(struct lines *lines, uint64_t address, struct lines_frame frames[static LINES_FRAMES])
{
	(void)lines;
	(void)address;
	(void)frames;
	return 0;
}

const char *lines_lacks(void)
{
	return "libdw, so that files and lines are not known";
}
#endif
