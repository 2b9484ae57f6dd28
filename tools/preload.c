/* SPDX-License-Identifier: MIT */
/*
 * Whether a program takes a preloaded library, by the rules of execve(2), execvp(3) and ld.so(8).  Where a
 * file cannot be read, nothing is said of it.
 */
#include "commands.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

/* As in the kernel: scripts whose interpreters are scripts. */
enum { SCRIPTS_DEEP = 5, LINE_BYTES = 256 };

/* What decides which libraries a program can load. */
struct kind {
	bool is_elf, is_linker; /* the latter: a dynamic linker that is called by its name */
	unsigned char class;
	Elf64_Half machine;
	char linker[LINE_BYTES]; /* the dynamic linker's path; empty for none */
};

static bool is_program(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Finds a program as execvp does. */
static bool find_program(const char *name, char path[static PATH_MAX])
{
	const char *folders = getenv("PATH");

	if (strchr(name, '/'))
		return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX && is_program(path);
	for (const char *folder = folders ? folders : "/bin:/usr/bin"; folder;) {
		int length = (int)strcspn(folder, ":");

		if (snprintf(path, PATH_MAX, "%.*s%s%s", length, folder, length ? "/" : "", name) <
			    PATH_MAX &&
		    is_program(path))
			return true;
		folder = folder[length] ? folder + length + 1 : NULL;
	}
	return false;
}

static bool read_at(int file, void *into, size_t bytes, Elf64_Off offset)
{
	return pread(file, into, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Only libraries have a name of this kind, and so has a dynamic linker; a static-pie program has none. */
static bool has_soname(int file, const Elf64_Phdr *dynamic)
{
	Elf64_Dyn entry;

	for (Elf64_Off at = 0; at + sizeof entry <= dynamic->p_filesz; at += sizeof entry)
		if (!read_at(file, &entry, sizeof entry, dynamic->p_offset + at) || entry.d_tag == DT_NULL)
			break;
		else if (entry.d_tag == DT_SONAME)
			return true;
	return false;
}

static void read_segments(int file, const Elf64_Ehdr *header, struct kind *kind)
{
	for (unsigned i = 0; i < header->e_phnum; i++) {
		Elf64_Phdr segment;

		if (!read_at(file, &segment, sizeof segment, header->e_phoff + i * sizeof segment))
			return;
		if (segment.p_type == PT_INTERP && segment.p_filesz < sizeof kind->linker)
			(void)read_at(file, kind->linker, segment.p_filesz, segment.p_offset);
		if (segment.p_type == PT_DYNAMIC)
			kind->is_linker = has_soname(file, &segment);
	}
}

static bool read_kind(int file, struct kind *kind)
{
	Elf64_Ehdr header = {0};

	*kind = (struct kind){0};
	if (pread(file, &header, sizeof header, 0) < 0) /* a script may be shorter */
		return false;
	kind->is_elf = memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
	kind->class = header.e_ident[EI_CLASS];
	kind->machine = header.e_machine; /* the same place in both classes */
	if (kind->is_elf && kind->class == ELFCLASS64)
		read_segments(file, &header, kind);
	return true;
}

/*
 * Puts a script's interpreter in the place of its own path; false if the file is none.  What is neither a
 * script nor ELF execvp gives to the shell.
 */
static bool find_interpreter(int file, const struct kind *kind, char path[static PATH_MAX])
{
	char line[LINE_BYTES] = "";

	if (kind->is_elf || pread(file, line, sizeof line - 1, 0) < 0)
		return false;
	if (strncmp(line, "#!", 2) != 0) {
		strcpy(path, "/bin/sh");
		return true;
	}
	line[strcspn(line, "\n")] = '\0';
	char *name = line + 2 + strspn(line + 2, " \t");

	name[strcspn(name, " \t")] = '\0';
	strcpy(path, name);
	return *name;
}

/* Opens the file that the kernel will map as the program; -1 if it cannot be read. */
static int open_program(char path[static PATH_MAX], struct kind *kind)
{
	for (int depth = 0; depth < SCRIPTS_DEEP; depth++) {
		int file = open(path, O_RDONLY | O_CLOEXEC);

		if (file < 0)
			return -1;
		if (!read_kind(file, kind) || !find_interpreter(file, kind, path))
			return file;
		close(file);
	}
	return -1;
}

/* Whether the kernel will tell the dynamic linker that the program has rights that its user lacks
 * (AT_SECURE). */
static const char *gains_rights(const char *path)
{
	struct stat status;
	struct statvfs system;

	if (stat(path, &status) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (statvfs(path, &system) == 0 && system.f_flag & ST_NOSUID))
		return NULL;
	if (status.st_mode & S_ISUID && status.st_uid != getuid())
		return "it is a set-user-id program";
	if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != getgid())
		return "it is a set-group-id program";
	if (getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0)
		return "its file has capabilities";
	return NULL;
}

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Compares with the command itself, which was built with the library. */
static const char *differs(const struct kind *kind)
{
	struct kind own;
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	bool known = self >= 0 && read_kind(self, &own);

	if (self >= 0)
		close(self);
	if (!known || !kind->is_elf)
		return NULL;
	if (kind->machine != own.machine || kind->class != own.class)
		return kind->class != own.class ? "it is a program of another word size than the library"
						: "it is for another processor than the library";
	if (*kind->linker && strcmp(file_name(kind->linker), file_name(own.linker)) != 0)
		return "it uses another C library";
	return NULL;
}

const char *preload_obstacle(const char *program, bool *hurts)
{
	char path[PATH_MAX];
	struct kind kind = {0};

	*hurts = false;
	if (!find_program(program, path))
		return NULL;
	int file = open_program(path, &kind);

	if (file >= 0)
		close(file);
	const char *obstacle = differs(&kind);

	if (obstacle) {
		*hurts = true;
		return obstacle;
	}
	if (kind.is_elf && !*kind.linker && !kind.is_linker)
		return "it is statically linked";
	return gains_rights(path);
}
