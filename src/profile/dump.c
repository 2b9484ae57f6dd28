/* SPDX-License-Identifier: MIT */
#include "profile/dump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check/symbol.h"
#include "options/options.h"
#include "os/os.h"
#include "profile/format.h"

enum { MAPS_BYTES = 4 << 20, OUTPUT_BYTES = 16 << 10, PATH_BYTES = 512 };

/*
 * File name from the environment, empty if none.  Read at start, since a signal handler may not call
 * getenv().
 */
static char wished[PATH_BYTES - 64] ARCH_SPARSE;
static bool has_wish;

static const char *prefix(void)
{
	return has_wish ? wished : "cpuslab";
}

/* All temporary memory of a dump, in one mapping. */
struct workspace {
	struct profile_mapping mappings[PROFILE_MAPPINGS];
	char maps[MAPS_BYTES];
	uint64_t addresses[(size_t)PROFILE_SITES * PROFILE_FRAMES];
	struct profile_counts counts[PROFILE_SITES];
	uint16_t numbers[PROFILE_SITES];
	char output[OUTPUT_BYTES];
	size_t used;
	int file, error;
};

static void flush(struct workspace *work)
{
	if (!work->error && work->used)
		work->error = os_write(work->file, work->output, work->used);
	work->used = 0;
}

static void put(void *to, const void *bytes, size_t length)
{
	struct workspace *work = to;

	while (length) {
		size_t room = OUTPUT_BYTES - work->used, part = length < room ? length : room;

		memcpy(work->output + work->used, bytes, part);
		work->used += part;
		bytes = (const char *)bytes + part;
		length -= part;
		if (work->used == OUTPUT_BYTES)
			flush(work);
	}
}

static bool read_own(void *unused, uint64_t address, void *buffer, size_t bytes)
{
	(void)unused;
	return os_read_memory(address, buffer, bytes) == 0;
}

/* Names functions that a file exports; others by file and offset. */
static const char *name_own(void *unused, uint64_t address, char *text, size_t bytes)
{
	static const char digits[] = "0123456789abcdef";
	struct symbol symbol;

	(void)unused;
	symbol_find(address, &symbol);
	if (symbol.function)
		return symbol.function;
	const char *file = symbol.module ? symbol.module : "";
	const char *slash = strrchr(file, '/');
	char number[2 * sizeof(address) + 1], *digit = number + sizeof(number) - 1;
	uint64_t rest = symbol.module ? symbol.module_offset : address;

	*digit = '\0';
	do
		*--digit = digits[rest % 16];
	while (rest /= 16);

	char *end = stpncpy(text, slash ? slash + 1 : file, bytes - sizeof("+0x") - sizeof(number));

	stpcpy(stpcpy(end, symbol.module ? "+0x" : "0x"), number);
	return text;
}

/* Lists the indexes of sites in use; returns how many. */
static size_t list_sites(const struct profile_tables *tables, uint16_t *numbers)
{
	size_t count = 0;

	for (size_t i = 0; i < PROFILE_SITES; i++)
		if (__atomic_load_n(&tables->sites[i].ready, __ATOMIC_ACQUIRE))
			numbers[count++] = (uint16_t)i;
	return count;
}

/* Reads all counts; returns whether they equal those read before.  `known`: samples in all. */
static bool read_counts(const struct profile_tables *tables, struct workspace *work, size_t count,
			uint64_t *known)
{
	bool same = true;

	*known = 0;
	for (size_t i = 0; i < count; i++) {
		const struct profile_site *site = &tables->sites[work->numbers[i]];
		struct profile_counts *counts = &work->counts[work->numbers[i]];
		/*
		 * Acquire: an object's allocation is counted before its free, and so is seen wherever the
		 * free is.
		 */
		const uint64_t freed = __atomic_load_n(&site->freed, __ATOMIC_ACQUIRE);
		const uint64_t allocated = __atomic_load_n(&site->allocated, __ATOMIC_RELAXED);

		same &= allocated == counts->allocated && freed == counts->freed;
		*counts = (struct profile_counts){allocated, freed};
		*known += allocated;
	}
	return same;
}

/*
 * Reads until two passes agree.  Other threads go on, and what moves between sites during a pass would be
 * counted twice, or not at all.  Counts only grow, so counts that two passes read alike were all true at the
 * moment between them.
 */
static void settle_counts(const struct profile_tables *tables, struct workspace *work)
{
	enum { ATTEMPTS = 8 };
	uint64_t known = 0;
	size_t count = 0;

	for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
		uint64_t samples = __atomic_load_n(&profile.samples, __ATOMIC_ACQUIRE) -
				   __atomic_load_n(&profile.lost, __ATOMIC_RELAXED);

		/* Samples of sites that did not exist yet. */
		if (known < samples)
			count = list_sites(tables, work->numbers);
		if (read_counts(tables, work, count, &known) && known >= samples)
			return;
	}
}

static int write_tables(const struct profile_tables *tables, int file, bool proto)
{
	struct workspace *work = os_map(NULL, sizeof(struct workspace));

	if (!work)
		return ENOMEM;
	work->file = file;
	settle_counts(tables, work);

	const struct profile_dump dump = {
		.sites = tables->sites,
		.counts = work->counts,
		.site_count = PROFILE_SITES,
		.interval = profile.last_interval,
		.when = os_time_of_day(),
		.maps = work->maps,
		.maps_length = os_read_file("/proc/thread-self/maps", work->maps, MAPS_BYTES),
		.read = read_own,
		.name = name_own,
		.put = put,
		.to = work,
		.addresses = work->addresses,
		.mappings = work->mappings,
	};

	(proto ? profile_write_proto : profile_write_text)(&dump);
	flush(work);
	int error = work->error;

	if (os_unmap(work, sizeof(struct workspace)) != 0)
		(void)os_purge(work, sizeof(struct workspace)); /* names are then addresses alone */
	return error;
}

static int write_dump(int file, bool proto)
{
	struct profile_tables *tables = profile_enter_tables();

	if (!tables)
		return ENODATA;
	int error = write_tables(tables, file, proto);

	profile_leave_tables(tables);
	return error;
}

int profile_dump(int file, bool proto)
{
	static uint32_t busy;
	/* A process id, so that a child forked in the middle of a dump waits for nobody. */
	static uint32_t busy_process;
	uint32_t process = os_process_id();

	if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) &&
	    __atomic_load_n(&busy_process, __ATOMIC_RELAXED) == process)
		return EBUSY;
	__atomic_store_n(&busy_process, process, __ATOMIC_RELAXED);
	int error = write_dump(file, proto);

	__atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
	return error;
}

static char *append_number(char *end, uint64_t number)
{
	char digits[24], *digit = digits + sizeof(digits);

	*--digit = '\0';
	do
		*--digit = (char)('0' + number % 10);
	while (number /= 10);
	return stpcpy(end, digit);
}

int profile_dump_new(void)
{
	static uint64_t dumps;
	char path[PATH_BYTES];
	int file;
	char *end = stpcpy(stpcpy(path, prefix()), ".");

	if (!profile.tables)
		return ENODATA;
	end = stpcpy(append_number(end, os_process_id()), ".");
	end = append_number(end, __atomic_add_fetch(&dumps, 1, __ATOMIC_RELAXED));
	strcpy(end, ".pb");
	int error = os_create_file(path, &file);

	if (error)
		return error;
	error = profile_dump(file, true);
	os_close(file);
	return error;
}

void profile_dump_by_option(void)
{
	static bool told;
	char line[PATH_BYTES + 64];
	int error = profile_dump_new();

	if (!error || error == EBUSY || __atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	char *end = stpcpy(line, "cpuslab: no heap profile ");

	if (error == ENODATA)
		end = stpcpy(end, "runs that could be written: the option profile starts one\n");
	else
		end = stpcpy(append_number(stpcpy(stpcpy(stpcpy(end, "was written to "), prefix()),
						  ".*.pb: errno "),
					   (uint64_t)error),
			     "\n");
	os_write_error(line, (size_t)(end - line));
}

/* ---- when ---------------------------------------------------------------------------------------------- */

static void on_signal(int number)
{
	(void)number;
	if (profile.last_interval)
		profile_dump_by_option();
	else
		__atomic_store_n(&profile.wanted, options.profile ? options.profile : PROFILE_INTERVAL,
				 __ATOMIC_RELEASE);
}

__attribute__((cold, noinline)) static void take_prefix(const char *wish)
{
	static const char text[] =
		"cpuslab: CPUSLAB_PROFILE is too long: heap profiles are called cpuslab.*.pb\n";

	if (strlen(wish) < sizeof(wished)) {
		strcpy(wished, wish);
		has_wish = true;
	} else {
		os_write_error(text, sizeof(text) - 1);
	}
}

void profile_begin(void)
{
	const char *wish = os_environment("CPUSLAB_PROFILE");

	if (wish && *wish)
		take_prefix(wish);
	if (options.profile)
		__atomic_store_n(&profile.wanted, options.profile, __ATOMIC_RELEASE);
	if (options.profile_signal)
		os_on_signal((int)options.profile_signal, on_signal);
}

void profile_look(void)
{
	static uint64_t highest, last;
	uint64_t now = __atomic_load_n(&profile.tables->bytes_in_use, __ATOMIC_RELAXED);
	uint64_t before = __atomic_load_n(&last, __ATOMIC_RELAXED);
	uint64_t high = __atomic_load_n(&highest, __ATOMIC_RELAXED);
	/* Not at each sample: a new high is a sixteenth more than the last one. */
	bool grown = options.profile_growth && now > before && now - before >= options.profile_growth;
	bool higher = options.profile_high && now > high + high / 16 + profile.last_interval;

	if (!grown && !higher)
		return;
	if (grown &&
	    !__atomic_compare_exchange_n(&last, &before, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	if (higher &&
	    !__atomic_compare_exchange_n(&highest, &high, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	profile_dump_by_option();
}
