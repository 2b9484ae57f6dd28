/* SPDX-License-Identifier: MIT */
#include "inspect/target.h"
#include "inspect/bounds.h"
#include "report/letter.h"

#include <ctype.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES_AT_ONCE = 1024 /* UIO_MAXIOV */, NOTES_MAX = 4096, HEADERS_MAX = 64, STAT_LINE = 1024 };

__attribute__((format(printf, 3, 4))) static enum target_status
trouble(struct target *target, enum target_status status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(target->trouble, sizeof(target->trouble), format, arguments);
	va_end(arguments);
	return status;
}

/* ---- /proc --------------------------------------------------------------------------------------------- */

static FILE *open_proc(pid_t pid, const char *file)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return fopen(path, "re");
}

/* Without this, a process that memory did not suffice to look at would pass for one that does not exist. */
static void tell_no_memory(void)
{
	if (errno == ENOMEM)
		bounds_no_room();
}

/*
 * Returns what precedes a field of /proc/PID/stat.  Counting starts after the name in field 2, which may
 * contain anything.
 */
static const char *find_stat(pid_t pid, int wanted, char line[static STAT_LINE])
{
	FILE *file = open_proc(pid, "stat");

	if (!file)
		return NULL;
	size_t length = fread(line, 1, STAT_LINE - 1, file);

	fclose(file);
	line[length] = '\0';
	const char *field = strrchr(line, ')');

	for (int number = 2; field && number < wanted; number++)
		field = strchr(field + 1, ' ');
	return field;
}

bool target_start_time(pid_t pid, uint64_t *start_time)
{
	char line[STAT_LINE];
	const char *field = find_stat(pid, 22, line);

	if (!field)
		return false;
	*start_time = strtoull(field + 1, NULL, 10);
	return true;
}

char target_state(pid_t pid)
{
	char line[STAT_LINE];
	const char *field = find_stat(pid, 3, line);

	return field ? field[1] : 0;
}

/* Returns a thread of the process that has not ended; 0 if there is none. */
static pid_t find_living_thread(pid_t pid)
{
	char path[64];
	pid_t living = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);

	for (struct dirent *entry; threads && !living && (entry = readdir(threads));) {
		pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
		char state = thread > 0 ? target_state(thread) : 'X';

		if (state && !strchr("ZXx", state))
			living = thread;
	}
	if (threads)
		closedir(threads);
	return living;
}

/* The first thread may end before the others: it has no memory from then on, but the process has. */
static void choose_thread(struct target *target)
{
	pid_t living = target_state(target->pid) == 'Z' ? find_living_thread(target->pid) : 0;

	target->thread = living ? living : target->pid;
}

/* For a process without memory of its own. */
static enum target_status without_memory(struct target *target)
{
	enum { PF_KTHREAD = 0x200000 };
	char line[STAT_LINE];
	const char *flags = find_stat(target->pid, 9, line);

	if (!flags)
		return trouble(target, TARGET_GONE, "no such process");
	if (strtoul(flags + 1, NULL, 10) & PF_KTHREAD)
		return trouble(target, TARGET_FOREIGN, "it has no memory of its own: a thread of the kernel");
	return trouble(target, TARGET_GONE, "the process has ended");
}

static bool read_name(pid_t pid, char name[static 64])
{
	FILE *file = open_proc(pid, "comm");
	bool read = file && fgets(name, 64, file);

	if (file)
		fclose(file);
	if (read)
		name[strcspn(name, "\n")] = '\0';
	return read;
}

void target_clean_name(char *name)
{
	while (*name) {
		size_t length = letter_length(name);

		if (!length)
			*name = '?';
		name += length ? length : 1;
	}
}

/* Says why the system refuses, as far as can be told, and what helps. */
static enum target_status forbidden(struct target *target)
{
	char path[64], self[256];
	struct stat owner;
	int scope = 0;
	FILE *yama = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");

	if (yama) {
		if (fscanf(yama, "%d", &scope) != 1)
			scope = 0;
		fclose(yama);
	}
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d", (int)target->pid);
	if (stat(path, &owner) == 0 && geteuid() != 0 && owner.st_uid != geteuid())
		return trouble(target, TARGET_FORBIDDEN,
			       "it belongs to user %u, and only that user or root may read it: "
			       "sudo cpuslab ..., or once: sudo setcap cap_sys_ptrace+ep %s",
			       owner.st_uid, self);
	if (scope == 3)
		return trouble(target, TARGET_FORBIDDEN,
			       "kernel.yama.ptrace_scope is 3, which forbids reading any process until the "
			       "next boot");
	if (scope > 0)
		return trouble(target, TARGET_FORBIDDEN,
			       "kernel.yama.ptrace_scope is %d, which lets a process be read by %s only: "
			       "sudo cpuslab ..., or once: sudo setcap cap_sys_ptrace+ep %s%s",
			       scope, scope == 1 ? "its parents and root" : "root", self,
			       scope == 1 ? ", or: sudo sysctl kernel.yama.ptrace_scope=0" : "");
	return trouble(target, TARGET_FORBIDDEN,
		       "the system does not let this process read it (a set-user-id program, a container's "
		       "seccomp filter or missing CAP_SYS_PTRACE): try as root, outside of the container");
}

/* ---- reading memory ------------------------------------------------------------------------------------ */

static ssize_t read_at(const struct target *target, uint64_t address, void *buffer, size_t bytes)
{
	struct iovec local = {buffer, bytes}, remote = {(void *)(uintptr_t)address, bytes};

	if (target->memory >= 0)
		return pread(target->memory, buffer, bytes, (off_t)address);
	return process_vm_readv(target->thread, &local, 1, &remote, 1, 0);
}

bool target_read(const struct target *target, uint64_t address, void *buffer, size_t bytes)
{
	return read_at(target, address, buffer, bytes) == (ssize_t)bytes;
}

/* Returns how many pieces, from the first on, one call read whole. */
static size_t gather_some(const struct target *target, const struct target_piece *pieces, size_t count)
{
	static struct iovec local[PIECES_AT_ONCE], remote[PIECES_AT_ONCE];
	size_t whole = 0;

	for (size_t i = 0; i < count; i++) {
		local[i] = (struct iovec){pieces[i].buffer, pieces[i].bytes};
		remote[i] = (struct iovec){(void *)(uintptr_t)pieces[i].address, pieces[i].bytes};
	}
	ssize_t got = process_vm_readv(target->thread, local, count, remote, count, 0);

	while (whole < count && got >= (ssize_t)pieces[whole].bytes)
		got -= (ssize_t)pieces[whole++].bytes;
	return whole;
}

void target_gather(const struct target *target, struct target_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count;) {
		if (target->memory >= 0) {
			pieces[i].read =
				target_read(target, pieces[i].address, pieces[i].buffer, pieces[i].bytes);
			i++;
			continue;
		}
		size_t some = count - i < PIECES_AT_ONCE ? count - i : PIECES_AT_ONCE;
		size_t whole = gather_some(target, pieces + i, some);

		for (size_t n = 0; n < whole; n++)
			pieces[i + n].read = true;
		i += whole;
		/* The call stops at the first page that is missing. */
		if (whole < some)
			pieces[i++].read = false;
	}
}

uint64_t target_member(const void *structure, const struct root_field *field)
{
	uint64_t value = 0;

	/* Little-endian, as on every machine that the library runs on. */
	memcpy(&value, (const char *)structure + field->value, field->size < 8 ? field->size : 8);
	return value;
}

bool target_variable(const struct target *target, const struct root_field *field, uint64_t *value)
{
	*value = 0;
	return field->size <= sizeof(*value) && target_read(target, field->value, value, field->size);
}

/* ---- the root record ----------------------------------------------------------------------------------- */

/* Searches the notes of one segment; returns the record's address, or 0. */
static uint64_t find_in_notes(const struct target *target, uint64_t address, size_t bytes)
{
	static const char owner[] = ROOT_NOTE_OWNER;
	char notes[NOTES_MAX];

	if (bytes > sizeof(notes) || !target_read(target, address, notes, bytes))
		return 0;
	for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
		Elf64_Nhdr note;

		memcpy(&note, notes + at, sizeof(note));
		size_t name = at + sizeof(note), description = name + ((note.n_namesz + 3ul) & ~3ul);
		size_t next = description + ((note.n_descsz + 3ul) & ~3ul);

		if (description < name || next < description || next > bytes)
			return 0;
		if (note.n_type == ROOT_NOTE_TYPE && note.n_namesz == sizeof(owner) &&
		    memcmp(notes + name, owner, sizeof(owner)) == 0 && note.n_descsz == sizeof(int64_t)) {
			int64_t distance;

			memcpy(&distance, notes + description, sizeof(distance));
			return address + description + (uint64_t)distance;
		}
		at = next;
	}
	return 0;
}

/* Returns the record that an ELF image mapped at `base` leads to, or 0. */
static uint64_t find_in_image(const struct target *target, uint64_t base)
{
	Elf64_Ehdr header;
	Elf64_Phdr segments[HEADERS_MAX];
	uint64_t bias = 0, root = 0;
	bool based = false;

	if (!target_read(target, base, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > HEADERS_MAX ||
	    !target_read(target, base + header.e_phoff, segments, header.e_phnum * sizeof(Elf64_Phdr)))
		return 0;
	for (unsigned i = 0; i < header.e_phnum && !based; i++)
		if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0) {
			bias = base - segments[i].p_vaddr;
			based = true;
		}
	for (unsigned i = 0; based && i < header.e_phnum && !root; i++)
		if (segments[i].p_type == PT_NOTE)
			root = find_in_notes(target, bias + segments[i].p_vaddr, segments[i].p_memsz);
	return root;
}

static bool read_root(const struct target *target, uint64_t address, struct root *root)
{
	return target_read(target, address, root, sizeof(*root)) &&
	       memcmp(root->magic, ROOT_MAGIC, sizeof(ROOT_MAGIC)) == 0;
}

/*
 * Searches every image.  If there are two libraries, one linked and one preloaded, finds the one that the
 * program allocates from.
 */
static enum target_status find_root(struct target *target)
{
	char line[4096 + 128];
	bool any_image = false;
	FILE *maps = open_proc(target->thread, "maps");

	if (!maps) {
		tell_no_memory();
		return errno == EACCES || errno == EPERM ? forbidden(target)
							 : trouble(target, TARGET_GONE, "no such process");
	}
	target->root_address = 0;
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, offset, inode;
		char access[5];
		struct root root;

		if (sscanf(line, "%lx-%*x %4s %lx %*s %lu", &start, access, &offset, &inode) != 4)
			continue;
		any_image = true;
		if (offset != 0 || inode == 0 || access[0] != 'r')
			continue;
		uint64_t address = find_in_image(target, start);

		if (!address || !read_root(target, address, &root))
			continue;
		if (!target->root_address || root.field_count) {
			target->root_address = address;
			target->root = root;
		}
		if (root.field_count)
			break;
	}
	fclose(maps);
	if (!any_image)
		return without_memory(target);
	if (!target->root_address)
		return trouble(target, TARGET_FOREIGN,
			       "it does not run on cpuslab (start it with: cpuslab run -- PROGRAM)");
	return TARGET_READY;
}

/* The table of a root record, with its names. */
struct fields {
	uint32_t count;
	struct root_field field[ROOT_FIELDS_MAX];
	char name[ROOT_FIELDS_MAX][ROOT_FIELD_NAME];
};

/* The mapping may end after a name: reads no further than its page, unless the name continues there. */
static bool read_field_name(const struct target *target, uint64_t address, char name[ROOT_FIELD_NAME])
{
	size_t here = 4096 - address % 4096, first = here < ROOT_FIELD_NAME ? here : ROOT_FIELD_NAME;

	memset(name, 0, ROOT_FIELD_NAME);
	if (!target_read(target, address, name, first))
		return false;
	return first == ROOT_FIELD_NAME || memchr(name, 0, first) ||
	       target_read(target, address + first, name + first, ROOT_FIELD_NAME - first);
}

static bool read_table(const struct target *target, struct fields *fields)
{
	const struct root *root = &target->root;

	fields->count = root->field_count;
	if (fields->count > ROOT_FIELDS_MAX || root->field_bytes != sizeof(fields->field[0]) ||
	    !target_read(target, root->fields, fields->field, fields->count * sizeof(fields->field[0])))
		return false;
	for (uint32_t i = 0; i < fields->count; i++)
		if (!read_field_name(target, target->root_address + (uint64_t)(int64_t)fields->field[i].name,
				     fields->name[i]))
			return false;
	return true;
}

static bool find_field(const struct fields *fields, const char *name, struct root_field *found)
{
	for (uint32_t i = 0; i < fields->count; i++)
		if (strncmp(fields->name[i], name, ROOT_FIELD_NAME) == 0) {
			*found = fields->field[i];
			return true;
		}
	return false;
}

enum { STRUCTURE_MOST = 1 << 20, HANDLE_MOST = 4096 };

static bool lies_inside(const struct root_field *member, uint64_t bytes)
{
	return bytes <= STRUCTURE_MOST && member->size <= bytes && member->value <= bytes - member->size;
}

/* Whether each cache of a bank has its words inside an area: see src/vcpu/vcpu.h. */
static bool areas_make_sense(const struct target_fields *at)
{
	uint64_t caches = at->area_bank_caches.value, row = at->area_row.value, bytes = at->area.size;
	uint64_t row_bytes = at->area_row_bytes.value, group_bytes = at->area_group_bytes.value;

	if (bytes > STRUCTURE_MOST || caches > bytes || row > bytes || row_bytes > bytes ||
	    group_bytes > bytes || !caches || !row)
		return false;
	/* A cache's last word is its third, which counts misses. */
	return (caches - 1) / row * group_bytes + 2 * row_bytes +
		       (row < caches ? row : caches) * sizeof(uint64_t) <=
	       bytes;
}

/* Whether the fields read by these numbers lie inside what is copied. */
static bool makes_sense(const struct target_fields *at)
{
	/* A handle is as long as its name, which follows its other members. */
	const uint64_t handle = at->handle_name.value;
	bool whole = true;

#define FIELD(member, text)
#define MEMBER(structure, member, text) whole &= lies_inside(&at->member, at->structure.size);
#define OPTIONAL_FIELD(member, text)
#include "inspect/fields.def"
#undef FIELD
#undef MEMBER
#undef OPTIONAL_FIELD
	if (at->memory_handles.size)
		whole &= handle <= HANDLE_MOST && lies_inside(&at->handle_size, handle) &&
			 lies_inside(&at->handle_next, handle);
	return whole && areas_make_sense(at) && at->standby_turns_bits.value < 64 &&
	       at->standby_pages_bits.value < 64 && at->headroom_pages_shift.value < 32 &&
	       at->pocket.size >= 3 * sizeof(uint64_t) && at->pocket_each.size % at->pocket.size == 0 &&
	       at->huge_waiting_each.size >= 2 * sizeof(uint64_t);
}

static enum target_status read_fields(struct target *target)
{
	const struct root *root = &target->root;
	struct fields fields;

	if (root->version != ROOT_VERSION)
		return trouble(
			target, TARGET_VERSION,
			"it runs cpuslab %.31s, whose root record has version %u; this tool (%s) reads "
			"version %u: use the cpuslab command that came with that library",
			root->release, root->version, CPUSLAB_VERSION, ROOT_VERSION);
	if (!root->field_count)
		return trouble(target, TARGET_UNSTARTED,
			       "cpuslab is in it, but nothing has been allocated from it yet");
	if (!read_table(target, &fields))
		return trouble(target, TARGET_VERSION, "its root record cannot be read");
#define FIELD(member, text)                                                                                  \
	if (!find_field(&fields, text, &target->at.member))                                                  \
		return trouble(target, TARGET_VERSION,                                                       \
			       "it runs cpuslab %.31s, whose root record does not tell '%s', which this "    \
			       "tool (%s) needs: use the cpuslab command that came with that library",       \
			       root->release, text, CPUSLAB_VERSION);
#define MEMBER(structure, member, text) FIELD(member, text)
#define OPTIONAL_FIELD(member, text)    find_field(&fields, text, &target->at.member);
#include "inspect/fields.def"
#undef FIELD
#undef MEMBER
#undef OPTIONAL_FIELD
	return makes_sense(&target->at)
		       ? TARGET_READY
		       : trouble(target, TARGET_VERSION, "its root record cannot be made sense of");
}

/* Reads one byte of the program's first image to find out whether reading is allowed, and by which method. */
static enum target_status choose_way(struct target *target)
{
	char path[64], byte;

	target->memory = -1;
	/* Nothing is mapped there: EFAULT means that we may read, EPERM that we may not. */
	if (read_at(target, 0, &byte, 1) >= 0 || errno == EFAULT)
		return TARGET_READY;
	if (errno == ESRCH)
		return without_memory(target);
	if (errno == EPERM)
		return forbidden(target);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)target->thread);
	target->memory = open(path, O_RDONLY | O_CLOEXEC);
	return target->memory >= 0 ? TARGET_READY : forbidden(target);
}

enum target_status target_attach(struct target *target, pid_t pid)
{
	*target = (struct target){.pid = pid, .thread = pid, .memory = -1};
	if (!target_start_time(pid, &target->start_time) || !read_name(pid, target->name)) {
		tell_no_memory();
		return trouble(target, TARGET_GONE, "no such process");
	}
	target_clean_name(target->name);
	bounds_look(pid);
	choose_thread(target);
	enum target_status status = choose_way(target);

	if (status == TARGET_READY)
		status = find_root(target);
	if (status == TARGET_READY)
		status = read_fields(target);
	bounds_done();
	if (status != TARGET_READY)
		target_detach(target);
	return status;
}

void target_detach(struct target *target)
{
	if (target->memory >= 0)
		close(target->memory);
	target->memory = -1;
}

enum target_status target_check(struct target *target)
{
	uint64_t start_time;
	struct root root;

	if (!target_start_time(target->pid, &start_time) || start_time != target->start_time)
		return trouble(target, TARGET_GONE, "the process has ended");
	if (target->memory < 0)
		choose_thread(target);
	if (read_root(target, target->root_address, &root) && root.field_count >= target->root.field_count &&
	    root.fields == target->root.fields) {
		if (root.field_count == target->root.field_count)
			return TARGET_READY;
		/* Part of the library came into use meanwhile. */
		target->root = root;
		return read_fields(target);
	}
	/* No memory: the process is ending, and has not been waited for yet. */
	FILE *maps = open_proc(target->thread, "maps");
	bool ended = !maps || fgetc(maps) == EOF;

	if (maps)
		fclose(maps);
	return ended ? trouble(target, TARGET_GONE, "the process has ended")
		     : trouble(target, TARGET_CHANGED, "it executes another program now");
}

/* ---- finding processes --------------------------------------------------------------------------------- */

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

static bool has_name(pid_t pid, const char *wanted)
{
	char name[64], path[64], file[4096];

	if (read_name(pid, name) && strcmp(name, wanted) == 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	ssize_t length = readlink(path, file, sizeof(file) - 1);

	if (length <= 0)
		return false;
	file[length] = '\0';
	const char *base = strrchr(file, '/');

	return base && strcmp(base + 1, wanted) == 0;
}

static int by_pid(const void *one, const void *other)
{
	pid_t a = *(const pid_t *)one, b = *(const pid_t *)other;

	return (a > b) - (a < b);
}

/* Returns the number in a text as a pid, whether such a process exists or not. */
static pid_t pid_of(const char *number)
{
	unsigned long pid = strtoul(number, NULL, 10);

	/* A number too large for a pid must match no process, not the one with its lower half. */
	return pid <= INT_MAX ? (pid_t)pid : INT_MAX;
}

/* Returns false when memory is short. */
static bool append(pid_t **pids, size_t *count, pid_t pid)
{
	enum { AT_ONCE = 1024 };

	if (*count % AT_ONCE == 0) {
		pid_t *larger = reallocarray(*pids, *count + AT_ONCE, sizeof(*larger));

		if (!larger)
			return false;
		*pids = larger;
	}
	(*pids)[(*count)++] = pid;
	return true;
}

bool target_proc_is_ours(const char *command)
{
	char self[32];
	ssize_t length = readlink("/proc/self", self, sizeof(self) - 1);

	self[length > 0 ? length : 0] = '\0';
	if (length > 0 && pid_of(self) == getpid())
		return true;
	fprintf(stderr, "%s: /proc is %s\n", command,
		length < 0 && access("/proc/version", F_OK) != 0
			? "not mounted"
			: "that of another pid namespace: no process can be named (try unshare "
			  "--mount-proc)");
	return false;
}

bool target_find(const char *text, pid_t **pids, size_t *count)
{
	bool whole = true;

	*pids = NULL;
	*count = 0;
	if (text && is_number(text))
		return append(pids, count, pid_of(text));
	DIR *proc = opendir("/proc");

	if (!proc)
		return false;
	for (struct dirent *entry; whole && (entry = readdir(proc));) {
		if (!is_number(entry->d_name))
			continue;
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		errno = 0;
		if (pid != getpid() && (!text || has_name(pid, text)))
			whole = append(pids, count, pid);
		else
			whole = errno != ENOMEM;
	}
	closedir(proc);
	if (*count)
		qsort(*pids, *count, sizeof(**pids), by_pid);
	if (!whole) {
		free(*pids);
		*pids = NULL;
		*count = 0;
	}
	return whole;
}

/* What the messages tell of each process that a name might mean. */
struct candidate {
	enum target_status status;
	char name[sizeof(((struct target *)0)->name)], trouble[sizeof(((struct target *)0)->trouble)];
};

struct candidates {
	const pid_t *pids;
	size_t usable;
	struct {
		pid_t pid;
		struct candidate as;
	} found[16], refused;
};

static size_t look_at_candidate(pid_t pid, void *answer, size_t bytes)
{
	struct candidate *candidate = answer;
	struct target target;

	(void)bytes;
	candidate->status = target_attach(&target, pid);
	memcpy(candidate->name, target.name, sizeof(target.name));
	memcpy(candidate->trouble, target.trouble, sizeof(target.trouble));
	return sizeof(*candidate);
}

static void take_candidate(void *context, size_t index, const void *answer, size_t bytes)
{
	struct candidates *candidates = context;
	const struct candidate *candidate = answer;
	bool usable = candidate->status == TARGET_READY;

	(void)bytes;
	if (usable && candidates->usable++ >= sizeof(candidates->found) / sizeof(candidates->found[0]))
		return;
	if (usable) {
		candidates->found[candidates->usable - 1].pid = candidates->pids[index];
		candidates->found[candidates->usable - 1].as = *candidate;
	} else {
		candidates->refused.pid = candidates->pids[index];
		candidates->refused.as = *candidate;
	}
}

static void say_which(const char *command, const char *text, const struct candidates *candidates)
{
	size_t most = sizeof(candidates->found) / sizeof(candidates->found[0]);

	fprintf(stderr, "%s: %zu processes%s%s run on cpuslab; name one by its pid:", command,
		candidates->usable, text ? " called " : "", text ? text : "");
	for (size_t i = 0; i < candidates->usable && i < most; i++)
		fprintf(stderr, "%s %d (%s)", i ? "," : "", (int)candidates->found[i].pid,
			candidates->found[i].as.name);
	fputs(candidates->usable > most ? ", ...\n" : "\n", stderr);
}

static bool say_refused(const char *command, pid_t pid, const char *name, const char *trouble_text)
{
	fprintf(stderr, "%s: process %d%s%s%s: %s\n", command, (int)pid, name[0] ? " (" : "", name,
		name[0] ? ")" : "", trouble_text);
	return false;
}

static bool attach_or_say(struct target *target, const char *command, pid_t pid)
{
	return target_attach(target, pid) == TARGET_READY ||
	       say_refused(command, pid, target->name, target->trouble);
}

bool target_open(struct target *target, const char *command, const char *text)
{
	struct candidates candidates = {.usable = 0};
	pid_t *pids;
	size_t count;

	if (!target_proc_is_ours(command))
		return false;
	if (text && is_number(text))
		return attach_or_say(target, command, pid_of(text));
	if (!target_find(text, &pids, &count)) {
		fprintf(stderr, "%s: /proc: %s\n", command, strerror(errno));
		return false;
	}
	candidates.pids = pids;
	bool looked = bounds_survey(&(struct bounds_survey){.command = command,
							    .look = look_at_candidate,
							    .take = take_candidate,
							    .context = &candidates,
							    .answer_bytes = sizeof(struct candidate)},
				    pids, count);
	pid_t only = candidates.found[0].pid;

	free(pids);
	if (!looked) {
		fprintf(stderr, "%s: %s\n", command, strerror(errno));
		return false;
	}
	if (candidates.usable == 1)
		return attach_or_say(target, command, only);
	if (candidates.usable > 1)
		say_which(command, text, &candidates);
	else if (text && candidates.refused.pid)
		say_refused(command, candidates.refused.pid, candidates.refused.as.name,
			    candidates.refused.as.trouble);
	else if (text)
		fprintf(stderr, "%s: no process is called '%s'\n", command, text);
	else
		fprintf(stderr, "%s: no process that may be read runs on cpuslab\n", command);
	return false;
}
