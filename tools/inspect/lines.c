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

struct lines {
	Dwfl *session;
	Dwfl_Module *module;
	bool broken;
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

/* Follows the scopes of one address outwards. */
static size_t follow(Dwarf_Die *unit, Dwarf_Die *scopes, int count, struct lines_frame *frames, size_t most,
		     struct lines_frame at)
{
	size_t found = 0;

	for (int i = 0; i < count && found < most; i++) {
		int tag = dwarf_tag(&scopes[i]);

		if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram && tag != DW_TAG_entry_point)
			continue;
		at.function = name_of(&scopes[i]);
		frames[found++] = at;
		if (tag != DW_TAG_inlined_subroutine)
			break;
		find_call(unit, &scopes[i], &at.file, &at.line);
	}
	return found;
}

struct search {
	Dwfl_Module *module;
	uint64_t address;
	struct lines_frame *frames;
	size_t most, found;
};

static void search_scopes(struct search *search, struct lines_frame at)
{
	Dwarf_Addr bias;
	Dwarf_Die *unit = dwfl_module_addrdie(search->module, search->address, &bias), *scopes, innermost;
	int count = unit ? dwarf_getscopes(unit, search->address - bias, &scopes) : 0;

	if (count > 0) {
		/* These are the scopes of the source; those of the code are the parents of the innermost. */
		innermost = scopes[0];
		free(scopes);
		count = dwarf_getscopes_die(&innermost, &scopes);
	}
	if (count > 0) {
		search->found = follow(unit, scopes, count, search->frames, search->most, at);
		free(scopes);
	}
}

/* By a symbol table, which may be in the file of the debug information too, or compressed. */
static const char *find_symbol(const struct search *search)
{
	GElf_Off offset;
	GElf_Sym symbol;
	const char *name =
		dwfl_module_addrinfo(search->module, search->address, &offset, &symbol, NULL, NULL, NULL);

	return name && offset < symbol.st_size ? name : NULL;
}

static void search(void *request)
{
	struct search *search = request;
	Dwfl_Line *source = dwfl_module_getsrc(search->module, search->address);
	struct lines_frame at = {.line = 0};

	if (source)
		at.file = dwfl_lineinfo(source, NULL, &at.line, NULL, NULL, NULL);
	search_scopes(search, at);
	if (search->found)
		return;
	at.function = find_symbol(search);
	if (at.file || at.function)
		search->frames[search->found++] = at;
}

size_t lines_find(struct lines *lines, uint64_t address, struct lines_frame *frames, size_t most)
{
	if (!lines || lines->broken)
		return 0;
	struct search request = {.module = lines->module, .address = address, .frames = frames, .most = most};

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

size_t lines_find(struct lines *lines, uint64_t address, struct lines_frame *frames, size_t most)
{
	(void)lines;
	(void)address;
	(void)frames;
	(void)most;
	return 0;
}

const char *lines_lacks(void)
{
	return "libdw, so that files and lines are not known";
}
#endif
