/* SPDX-License-Identifier: MIT */
/* cpuslab profile: which calls of a running process allocated what is in use, by sampling. */
#include "commands.h"
#include "inspect/bounds.h"
#include "inspect/symbols.h"
#include "inspect/target.h"
#include "inspect/wait.h"
#include "numbers.h"
#include "output.h"
#include "profile/format.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum format { PROTO, HEAP, FOLDED, TOP };

static const struct option options[] = {
	{"interval", required_argument, NULL, 'i'},
	{"seconds", required_argument, NULL, 's'},
	{"output", required_argument, NULL, 'o'},
	{"format", required_argument, NULL, 'f'},
	{"total", no_argument, NULL, 't'},
	{"keep", no_argument, NULL, 'k'},
	{"end", no_argument, NULL, 'e'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab profile [OPTIONS] PID|NAME\n"
	      "Samples what the process allocates from now on, and writes what of it is in use in the end.\n"
	      "A profile that runs already is only read.\n\n"
	      "  -s, --seconds=N       how long (30)\n"
	      "  -i, --interval=BYTES  mean bytes between samples (512K)\n"
	      "  -o, --output=FILE     where to (-, standard output)\n"
	      "  -f, --format=FORMAT   pb: profile.proto, for go tool pprof and speedscope (the default for\n"
	      "                        FILE.pb); heap: heap_v2, for jeprof (FILE.heap); folded: for flame\n"
	      "                        graphs (FILE.folded); top: a table (the default for the terminal)\n"
	      "  -t, --total           folded and top: all that was allocated, not what is in use\n"
	      "  -k, --keep            let the profile run on\n"
	      "  -e, --end             end a profile that runs already, once it is read\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* ---- the other process --------------------------------------------------------------------------------- */

struct sampled {
	struct target *target;
	struct profile_dump dump;
	struct profile_site *sites;
	struct profile_counts *counts;
	uint64_t lost, moved; /* samples: without room; that came or went while being read */
};

static bool read_process(void *process, uint64_t address, void *buffer, size_t bytes)
{
	return target_read(process, address, buffer, bytes);
}

static bool read_member(const struct target *target, const struct root_field *field, uint64_t *value)
{
	return target_read(target, target->at.profile.value + field->value, value, sizeof(*value));
}

/* Writes the word that the process's slow paths read. */
static bool wish(const struct target *target, uint64_t interval)
{
	uint64_t address = target->at.profile.value + target->at.profile_wanted.value;
	struct iovec local = {&interval, sizeof(interval)};
	struct iovec remote = {(void *)(uintptr_t)address, sizeof(interval)};

	return process_vm_writev(target->thread, &local, 1, &remote, 1, 0) == sizeof(interval);
}

/*
 * Lets a profile run for `seconds` from its start, when the process first reaches a slow path: within
 * milliseconds if it is busy, whenever it gets there on a busy machine.  Returns false with a message if the
 * process is gone or was replaced.  `started`: when it started, or 0 if it did not.
 */
static bool wait_for(struct target *target, uint64_t interval, double seconds, double *started)
{
	static const double patience = 5;
	double begin = wait_now(), end = begin + (seconds > patience ? seconds : patience);
	uint64_t running = 0;

	*started = 0;
	for (;;) {
		bounds_look(target->pid);
		enum target_status status = target_check(target);

		if (status != TARGET_READY) {
			fprintf(stderr, "cpuslab profile: process %d: %s\n", (int)target->pid,
				target->trouble);
			return false;
		}
		if (*started <= 0 && read_member(target, &target->at.profile_interval, &running) &&
		    running == interval) {
			*started = wait_now();
			end = *started + seconds;
		}
		bounds_done();
		if (wait_interrupted || wait_now() >= end)
			return true;
		usleep(seconds < 1 ? 10000 : 50000);
	}
}

static char *read_maps(pid_t pid, size_t *length)
{
	char path[64], *text = NULL;
	size_t capacity = 0, got;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *file = fopen(path, "re");

	*length = 0;
	if (!file)
		return NULL;
	do {
		if (capacity - *length < 65536) {
			char *larger = realloc(text, capacity += 262144);

			if (!larger)
				free(text);
			text = larger;
		}
		got = text ? fread(text + *length, 1, capacity - *length, file) : 0;
		*length += got;
	} while (got);
	fclose(file);
	return text;
}

/* The counts of the known sites, read twice. */
struct reading {
	size_t count;
	size_t *numbers; /* of the sites */
	struct profile_counts *first, *second;
	struct target_piece *pieces;
	uint64_t samples, lost;
	uint64_t unknown; /* samples of other sites */
};

/* Reads the stacks, and which sites there are. */
static bool read_table(struct sampled *sampled, uint64_t tables, struct reading *reading)
{
	if (!target_read(sampled->target, tables, sampled->sites,
			 sampled->dump.site_count * sizeof(*sampled->sites)))
		return false;
	reading->count = 0;
	for (size_t i = 0; i < sampled->dump.site_count; i++)
		if (sampled->sites[i].hash && sampled->sites[i].ready &&
		    sampled->sites[i].frame_count <= PROFILE_FRAMES)
			reading->numbers[reading->count++] = i;
		else
			sampled->sites[i] = (struct profile_site){.size = 0};
	return true;
}

/*
 * Counts the samples that came or went between the two readings of each count, and those of sites not yet
 * known.  Counts only grow: if nothing came or went, all were true at the moment in between.
 */
static bool read_counts(const struct sampled *sampled, uint64_t tables, struct reading *reading,
			uint64_t *moved)
{
	const struct target_fields *at = &sampled->target->at;
	struct target_piece *pieces = reading->pieces;
	uint64_t known = 0;
	size_t asked = 0;

	for (unsigned time = 0; time < 2; time++) {
		pieces[asked++] = (struct target_piece){at->profile.value + at->profile_samples.value,
							&reading->samples, sizeof(reading->samples), false};
		pieces[asked++] = (struct target_piece){at->profile.value + at->profile_lost.value,
							&reading->lost, sizeof(reading->lost), false};
		for (size_t i = 0; i < reading->count; i++)
			pieces[asked++] =
				(struct target_piece){tables + reading->numbers[i] * sizeof(*sampled->sites) +
							      offsetof(struct profile_site, allocated),
						      &(time ? reading->second : reading->first)[i],
						      sizeof(*reading->first), false};
	}
	target_gather(sampled->target, pieces, asked);
	*moved = 0;
	for (size_t i = 0; i < asked; i++)
		if (!pieces[i].read)
			return false;
	for (size_t i = 0; i < reading->count; i++) {
		const struct profile_counts *first = &reading->first[i], *second = &reading->second[i];

		*moved += second->allocated - first->allocated + second->freed - first->freed;
		known += second->allocated;
	}
	reading->unknown =
		reading->samples > reading->lost + known ? reading->samples - reading->lost - known : 0;
	*moved += reading->unknown;
	return true;
}

/* Keeps this reading, the best so far. */
static void keep_counts(struct sampled *sampled, const struct reading *reading, uint64_t moved)
{
	memset(sampled->counts, 0, sampled->dump.site_count * sizeof(*sampled->counts));
	for (size_t i = 0; i < reading->count; i++) {
		struct profile_counts *counts = &sampled->counts[reading->numbers[i]];

		*counts = reading->second[i];
		/* The process may have counted on between these two. */
		if (counts->freed > counts->allocated)
			counts->freed = counts->allocated;
	}
	sampled->lost = reading->lost;
	sampled->moved = moved;
}

/*
 * The process runs on, and this one may be preempted at any time: a block freed in one place and allocated in
 * another meanwhile would count twice or not at all.  So the counts, which one system call or a few read
 * together, are read until nothing happens in between; if the process is too busy for that, the best reading
 * is kept.
 */
static bool settle_counts(struct sampled *sampled, uint64_t tables)
{
	enum { ATTEMPTS = 8 };
	const size_t count = sampled->dump.site_count;
	struct reading reading = {.numbers = calloc(count, sizeof(*reading.numbers)),
				  .first = calloc(count, sizeof(*reading.first)),
				  .second = calloc(count, sizeof(*reading.second)),
				  .pieces = calloc(2 * count + 4, sizeof(*reading.pieces))};
	bool read = reading.numbers && reading.first && reading.second && reading.pieces;
	uint64_t moved = 1;

	for (unsigned attempt = 0; read && moved && attempt < ATTEMPTS; attempt++) {
		read = ((attempt && !reading.unknown) || read_table(sampled, tables, &reading)) &&
		       read_counts(sampled, tables, &reading, &moved);
		if (read && (!attempt || moved < sampled->moved))
			keep_counts(sampled, &reading, moved);
	}
	free(reading.numbers);
	free(reading.first);
	free(reading.second);
	free(reading.pieces);
	return read;
}

/* Says why the samples could not be read. */
static bool no_samples(struct target *target)
{
	fprintf(stderr, "cpuslab profile: process %d: %s\n", (int)target->pid,
		target_check(target) == TARGET_READY ? "its samples cannot be read" : target->trouble);
	return false;
}

/* `seen`: the process has noticed that a profile was requested; if not, it has no samples. */
static bool read_sites(struct sampled *sampled, bool seen)
{
	const struct target *target = sampled->target;
	enum { SITES_MOST = 1 << 18 }; /* for any library that this command reads */
	size_t count = seen ? target->at.profile_sites.value : 0;
	uint64_t tables = 0;

	if (target->at.profile_site.size != sizeof(struct profile_site)) {
		fprintf(stderr,
			"cpuslab profile: process %d: its samples are not those of cpuslab " CPUSLAB_VERSION
			": use the cpuslab command that came with its library\n",
			(int)target->pid);
		return false;
	}
	if (count > SITES_MOST)
		return no_samples(sampled->target);
	if (seen && (!read_member(target, &target->at.profile_tables, &tables) || !tables))
		return no_samples(sampled->target);
	sampled->sites = calloc(count + 1, sizeof(*sampled->sites));
	sampled->counts = calloc(count + 1, sizeof(*sampled->counts));
	sampled->dump.sites = sampled->sites;
	sampled->dump.counts = sampled->counts;
	sampled->dump.site_count = count;
	if (!sampled->sites || !sampled->counts || (seen && !settle_counts(sampled, tables)))
		return no_samples(sampled->target);
	size_t maps_length;

	sampled->dump.maps = read_maps(target->thread, &maps_length);
	sampled->dump.maps_length = maps_length;
	sampled->dump.addresses = calloc(count * PROFILE_FRAMES + 1, sizeof(uint64_t));
	sampled->dump.mappings = calloc(PROFILE_MAPPINGS, sizeof(struct profile_mapping));
	return (sampled->dump.maps && sampled->dump.addresses && sampled->dump.mappings) ||
	       no_samples(sampled->target);
}

/* ---- for people ---------------------------------------------------------------------------------------- */

/* Returns the bytes that a site's samples stand for. */
static double value_of(const struct sampled *sampled, size_t number, bool total)
{
	const struct profile_site *site = &sampled->sites[number];
	const struct profile_counts *counts = &sampled->counts[number];
	uint64_t samples = total ? counts->allocated : counts->allocated - counts->freed;

	return samples ? (double)(samples * site->size) / profile_probability(site->size, site->interval) : 0;
}

static void print_folded(const struct sampled *sampled, struct symbols *symbols, FILE *to, bool total)
{
	for (size_t i = 0; i < sampled->dump.site_count; i++) {
		const struct profile_site *site = &sampled->sites[i];
		double value = value_of(sampled, i, total);

		if (value < 0.5)
			continue;
		unsigned last = symbols_own_frames(symbols, site->frames, site->frame_count);

		if (!site->frame_count)
			fputs("(no_stack)", to);
		/* From the outermost frame in; the separator must not occur in a name. */
		for (unsigned f = site->frame_count; f-- > last;) {
			char *const *texts;

			for (size_t t = symbols_texts(symbols, site->frames[f] - 1, &texts); t-- > 0;) {
				for (const char *c = texts[t]; *c; c++)
					fputc(*c == ';' ? ':' : *c, to);
				fputs(f > last || t ? ";" : "", to);
			}
		}
		fprintf(to, " %.0f\n", value);
	}
}

struct function {
	const char *name;
	double own, with_callees;
	size_t last_site;
};

static int by_own(const void *one, const void *other)
{
	const struct function *a = one, *b = other;

	return a->own != b->own ? (a->own < b->own) - (a->own > b->own)
	       : a->with_callees != b->with_callees
		       ? (a->with_callees < b->with_callees) - (a->with_callees > b->with_callees)
		       : strcmp(a->name, b->name);
}

struct table {
	struct function functions[4096];
	size_t count;
};

/* Counts a site's value for a function of its stack; `own`: it is the innermost. */
static void add_value(struct table *table, const char *name, size_t site, double value, bool own)
{
	struct function *functions = table->functions;
	size_t n = 0;

	while (n < table->count && strcmp(functions[n].name, name) != 0)
		n++;
	if (n == sizeof(table->functions) / sizeof(functions[0]))
		return;
	if (n == table->count)
		functions[table->count++].name = name;
	functions[n].own += own ? value : 0;
	if (functions[n].last_site != site + 1)
		functions[n].with_callees += value;
	functions[n].last_site = site + 1;
}

static void add_site(struct table *table, const struct profile_site *site, size_t number, double value,
		     struct symbols *symbols)
{
	unsigned first = symbols_own_frames(symbols, site->frames, site->frame_count);

	if (!site->frame_count)
		add_value(table, "(no stack)", number, value, true);
	for (unsigned f = first; f < site->frame_count; f++) {
		char *const *texts;
		size_t count = symbols_texts(symbols, site->frames[f] - 1, &texts);

		for (size_t t = 0; t < count; t++)
			add_value(table, texts[t], number, value, f == first && !t);
	}
}

static void print_top(const struct sampled *sampled, struct symbols *symbols, FILE *to, bool total)
{
	struct table *table = calloc(1, sizeof(*table));
	uint64_t widest = 0;
	double sum = 0;

	for (size_t i = 0; table && i < sampled->dump.site_count; i++) {
		const struct profile_site *site = &sampled->sites[i];
		double value = value_of(sampled, i, total);

		if (site->ready && site->interval > widest)
			widest = site->interval;
		sum += value;
		if (value > 0)
			add_site(table, site, i, value, symbols);
	}
	if (table)
		qsort(table->functions, table->count, sizeof(table->functions[0]), by_own);
	fprintf(to, "%s: %.1f KiB, a sample every %lu ", total ? "Allocated" : "In use", sum / 1024,
		sampled->dump.interval);
	if (widest > sampled->dump.interval)
		fprintf(to, "to %lu ", widest);
	fprintf(to, "bytes%s", sampled->lost ? ", and samples lost" : "");
	if (sampled->moved)
		fprintf(to, "; %lu samples came or went while it was read", sampled->moved);
	fprintf(to, "\n      flat  flat%%       cum   cum%%\n");
	for (size_t n = 0; table && n < table->count && n < 30; n++) {
		const struct function *function = &table->functions[n];

		fprintf(to, "%9.1fK %5.1f%% %8.1fK %5.1f%%  %s\n", function->own / 1024,
			sum > 0 ? 100 * function->own / sum : 0, function->with_callees / 1024,
			sum > 0 ? 100 * function->with_callees / sum : 0, function->name);
	}
	free(table);
}

/* ---- the command --------------------------------------------------------------------------------------- */

static void put(void *to, const void *bytes, size_t length)
{
	fwrite(bytes, 1, length, to);
}

static const char *name_function(void *names, uint64_t address, char *text, size_t bytes)
{
	return symbols_name(names, address, text, bytes);
}

static bool find_format(const char *text, enum format *format)
{
	static const char *const names[] = {"pb", "heap", "folded", "top"};

	for (unsigned i = 0; i < 4; i++)
		if (strcmp(text, names[i]) == 0) {
			*format = (enum format)i;
			return true;
		}
	return false;
}

static bool write_output(struct sampled *sampled, enum format format, const char *file, bool total)
{
	struct output output;

	if (!output_begin(&output, "cpuslab profile", file))
		return false;
	if (format == FOLDED || format == TOP)
		say_lacks("cpuslab profile");
	sampled->dump.put = put;
	sampled->dump.to = output.to;
	struct symbols *symbols = symbols_open(sampled->dump.mappings, profile_find_mappings(&sampled->dump),
					       sampled->target->thread);

	sampled->dump.name = name_function;
	sampled->dump.names = symbols;
	if (format == PROTO)
		profile_write_proto(&sampled->dump);
	else if (format == HEAP)
		profile_write_text(&sampled->dump);
	else if (format == FOLDED)
		print_folded(sampled, symbols, output.to, total);
	else
		print_top(sampled, symbols, output.to, total);
	symbols_close(symbols);
	return output_end(&output, true);
}

/*
 * Waits a little for the process to notice, so that the next profile is a new one.  Writes nothing if another
 * program runs there by now.
 */
static void end_profile(struct target *target)
{
	uint64_t running = 1;

	if (target_check(target) != TARGET_READY || !wish(target, 0))
		return;
	bounds_look(target->pid);
	for (int i = 0; i < 100 && read_member(target, &target->at.profile_interval, &running) && running;
	     i++)
		usleep(10000);
	bounds_done();
}

/*
 * The process with a profile that this command started and has not ended, for a command that ends at its
 * bounds.
 */
static const struct target *started_in;

static void take_wish_back(void)
{
	if (started_in)
		(void)wish(started_in, 0);
}

/* By a signal, or by a debugger. */
static bool is_stopped(pid_t pid)
{
	char state = target_state(pid);

	return state == 'T' || state == 't';
}

static bool take_profile(struct sampled *sampled, double seconds, uint64_t interval, bool keep, bool end)
{
	struct target *target = sampled->target;
	uint64_t running = 0;
	struct timespec clock;
	double started;
	bool whole;

	/* However this command ends, the process must not be left with a profile that nobody reads. */
	wait_catch();
	if (!read_member(target, &target->at.profile_wanted, &running))
		return no_samples(target);
	if (!running && !keep)
		started_in = target;
	if (!running && !wish(target, interval)) {
		fprintf(stderr, "cpuslab profile: process %d: the profile cannot be started: %s\n",
			(int)target->pid, strerror(errno));
		return false;
	}
	whole = wait_for(target, running ? running : interval, running ? 0 : seconds, &started);
	/*
	 * An interrupted wait says nothing about the process.  Otherwise a profile without samples is a
	 * result, not an error.
	 */
	if (whole && started <= 0 && wait_interrupted) {
		fprintf(stderr, "cpuslab profile: process %d had not begun: there is no profile\n",
			(int)target->pid);
		whole = false;
	} else if (whole && started <= 0)
		fprintf(stderr, "cpuslab profile: process %d %s: there are no samples\n", (int)target->pid,
			is_stopped(target->pid)
				? "is stopped"
				: "allocated nothing meanwhile that its magazines did not have");
	clock_gettime(CLOCK_REALTIME, &clock);
	sampled->dump.when = (int64_t)clock.tv_sec * 1000000000 + clock.tv_nsec;
	sampled->dump.duration = running || started <= 0 ? 0 : (int64_t)((wait_now() - started) * 1e9);
	sampled->dump.interval = running ? running : interval;
	bounds_look(target->pid);
	whole = whole && read_sites(sampled, started > 0);
	bounds_done();
	if (running ? end : !keep)
		end_profile(target);
	started_in = NULL;
	return whole;
}

int command_profile(int argc, char **argv)
{
	struct target target;
	struct sampled sampled = {.target = &target, .dump = {.read = read_process, .process = &target}};
	double seconds = 30;
	uint64_t interval = 512 << 10;
	const char *file = NULL;
	enum format format = TOP;
	bool total = false, keep = false, end = false, formatted = false;

	for (int option; (option = getopt_long(argc, argv, "i:s:o:f:tkeh", options, NULL)) != -1;)
		switch (option) {
		case 'i':
			if (!parse_bytes(optarg, &interval) || !interval)
				return wrong_value(argv[0], "--interval", optarg, "bytes, as 512K");
			break;
		case 's':
			if (!parse_seconds(optarg, &seconds, 0, 1e6))
				return wrong_value(argv[0], "--seconds", optarg, "seconds from 0 to 1000000");
			break;
		case 'o':
			file = optarg;
			break;
		case 'f':
			if (!find_format(optarg, &format))
				return wrong_value(argv[0], "--format", optarg, "pb, heap, folded or top");
			formatted = true;
			break;
		case 't':
			total = true;
			break;
		case 'k':
			keep = true;
			break;
		case 'e':
			end = true;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	if (argc - optind != 1)
		return usage(stderr);
	bool terminal = !file || strcmp(file, "-") == 0;
	const char *suffix = terminal ? NULL : strrchr(file, '.');

	if (!formatted && !terminal && !(suffix && find_format(suffix + 1, &format)))
		format = PROTO;
	/* Before the wait, which would be in vain if this failed. */
	if (!output_check(argv[0], file))
		return 1;
	bounds_begin(argv[0], take_wish_back);
	if (!target_open(&target, argv[0], argv[optind]))
		return 1;
	bool done = take_profile(&sampled, seconds, interval, keep, end) &&
		    write_output(&sampled, format, file, total);

	free(sampled.sites);
	free(sampled.counts);
	free(sampled.dump.addresses);
	free(sampled.dump.mappings);
	free((char *)sampled.dump.maps);
	target_detach(&target);
	return done ? 0 : 1;
}
