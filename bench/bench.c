/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include "launch.h"
#include "machine.h"
#include "output.h"
#include "ticks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct group {
	const char *name, *text;
	double minutes;
	unsigned options; /* enum group_option */
	bool (*run)(struct bench *bench);
} groups[] = {
#define GROUP(name, minutes, options, text) {#name, text, minutes, options, group_##name},
#include "groups.def"
#undef GROUP
};

static const struct worker {
	const char *name;
	int (*run)(int argc, char **argv);
} workers[] = {
#define WORKER(name) {#name, worker_##name},
#include "workers.def"
#undef WORKER
};

static const struct format {
	const char *name;
	void (*write)(const struct results *results, FILE *to);
} formats[] = {
	{"table", output_table},
	{"csv", output_csv},
	{"json", output_json},
	{"html", output_html},
};

enum {
	GROUP_COUNT = sizeof(groups) / sizeof(groups[0]),
	WORKER_COUNT = sizeof(workers) / sizeof(workers[0]),
	FORMAT_COUNT = sizeof(formats) / sizeof(formats[0]),
};

/* The options that only some groups read; an option that none of the chosen groups reads is refused. */
static const struct option {
	const char *name;
	unsigned reads; /* a group that has any of these reads it */
	const char *arguments, *text;
} options[] = {
	{"--peers", TAKES_PEERS, "auto|none|NAME,...", "allocators to measure; NAME=FILE adds one"},
	{"--sizes", TAKES_SIZES, "N,...", "with K and M: object sizes; memory to touch (pft)"},
	{"--threads", TAKES_THREADS | TAKES_ORIGINAL, "N",
	 "threads of the parallel tests (messaging: 2000 alone)"},
	{"--load", TAKES_LOAD, "IN:OUT", "contended locks: work with the lock and without it"},
	{"--seed-lines", TAKES_SEED_LINES, "", "also in the line format of the seeds"},
};

enum { OPTION_COUNT = sizeof(options) / sizeof(options[0]) };

static void print_readers(const struct option *option, FILE *to)
{
	const char *between = "";
	for (unsigned i = 0; i < GROUP_COUNT; i++)
		if (groups[i].options & option->reads) {
			fprintf(to, "%s%s", between, groups[i].name);
			between = ", ";
		}
}

static void print_usage(FILE *to)
{
	fputs("usage: cpuslab bench list | quick | all | GROUP... [OPTIONS]\n"
	      "       cpuslab bench show FILE.json [--format FORMAT]\n"
	      "       cpuslab bench compare A.json B.json\n"
	      "       cpuslab bench repeat A.json B.json...   whether they name the same winners\n"
	      "  --reps N                    rounds over all allocators\n"
	      "  --only TEXT                 tests, programs or caches that have TEXT in their name\n"
	      "  --format table|csv|json|html\n"
	      "  --out DIR                   write every format there; a run that was cut short resumes\n"
	      "Of some groups:\n",
	      to);
	for (unsigned i = 0; i < OPTION_COUNT; i++) {
		const struct option *o = &options[i];
		int width = fprintf(to, "  %s %s", o->name, o->arguments);
		fprintf(to, "%*s%s\n%*s(", width < 30 ? 30 - width : 1, "", o->text, 30, "");
		print_readers(o, to);
		fputs(")\n", to);
	}
}

void bench_progress(struct bench *bench, const char *test, const char *parameter)
{
	if (bench->terminal)
		fprintf(stderr, "\r\033[K%s %s %s", bench->progress_group, test, parameter);
}

static void progress_end(struct bench *bench)
{
	if (bench->terminal)
		fputs("\r\033[K", stderr);
}

unsigned bench_rounds(const struct bench *bench, unsigned usual)
{
	enum { FEW_PEERS = 6, FEWEST = 4 };
	if (bench->settings.rounds)
		return bench->settings.rounds;
	if (bench->peers.count <= FEW_PEERS || usual <= FEWEST)
		return usual;
	unsigned fewer = usual * FEW_PEERS / bench->peers.count;
	return fewer > FEWEST ? fewer : FEWEST;
}

bool bench_asked_for(struct bench *bench, const char *test)
{
	bool asked_for = !bench->settings.only || strstr(test, bench->settings.only);
	bench->selected |= asked_for;
	return asked_for;
}

unsigned bench_threads(struct bench *bench, unsigned most)
{
	char text[80];
	unsigned threads = bench->settings.threads ? bench->settings.threads : machine_cpus();
	if (threads <= most)
		return threads;
	snprintf(text, sizeof(text), "%u threads instead of %u", most, threads);
	results_note(&bench->results, bench->progress_group, text);
	return most;
}

static void path_in(const struct bench *bench, const char *name, char path[static PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s", bench->settings.directory, name);
}

/* Added up at every save, so that the results of an interrupted run include its time. */
static void count_time(struct bench *bench)
{
	double now = seconds_now();
	if (bench->progress_group)
		results_add_seconds(&bench->results, bench->progress_group, now - bench->counted_until);
	bench->counted_until = now;
}

void bench_save(struct bench *bench)
{
	char path[PATH_MAX];
	struct output output;
	count_time(bench);
	if (!bench->settings.directory)
		return;
	path_in(bench, "results.json", path);
	/* A run that is stopped while saving must find the older file. */
	bool saved = output_begin(&output, "cpuslab bench", path);
	if (saved) {
		output_json(&bench->results, output.to);
		saved = output_end(&output, true);
	}
	bench->unwritten |= !saved;
}

/* Lists the allocators of a test, in the order of the list; returns their number. */
static unsigned list_taking_part(const struct bench *bench, unsigned list[static PEERS_MAX])
{
	unsigned count = 0;
	for (unsigned i = 0; i < bench->peers.count; i++)
		if (!bench->without_bounds || !bench->peers.list[i].bound)
			list[count++] = i;
	return count;
}

static bool all_present(const struct bench *bench, const unsigned *peers, unsigned count,
			const struct cell *cell, unsigned rounds)
{
	for (unsigned i = 0; i < count; i++)
		if (!results_have(&bench->results, cell->group, cell->test, cell->parameter,
				  bench->peers.list[peers[i]].name, rounds))
			return false;
	return true;
}

/* Waiting workers hold the memory that their allocators keep: at most this many of them. */
enum { UNDER_WAY_MAX = 4 };

/* The rounds of one test.  `finish` is NULL if `begin` completes a sample. */
struct rounds {
	struct bench *bench;
	const struct cell *cell;
	measure *begin, *finish;
	void *context;
	bool failed[PEERS_MAX];
	struct turn {
		unsigned peer;
		bool warm_up;
	} under_way[UNDER_WAY_MAX]; /* oldest first */
	unsigned under_way_count;
};

/* Adds a row to the note of those that an allocator is left out of. */
static void note_failure(struct results *results, const char *peer, const struct cell *cell)
{
	char name[RESULTS_NAME], row[3 * RESULTS_NAME], rows[sizeof(results->notes[0].text)] = "";
	snprintf(name, sizeof(name), "%.16s failed", peer);
	snprintf(row, sizeof(row), "%s: %s", cell->test, cell->parameter);
	for (unsigned i = 0; i < results->note_count; i++)
		if (strcmp(results->notes[i].name, name) == 0)
			snprintf(rows, sizeof(rows), "%s", results->notes[i].text);
	size_t length = strlen(rows);
	if (!strstr(rows, row))
		snprintf(rows + length, sizeof(rows) - length, "%s%s", length ? "; " : "left out of ", row);
	results_note(results, name, rows);
}

static void judge(struct rounds *rounds, unsigned peer, bool well)
{
	const struct cell *cell = rounds->cell;
	const char *name = rounds->bench->peers.list[peer].name;
	struct results *results = &rounds->bench->results;
	if (well)
		return;
	rounds->failed[peer] = true;
	/* Of an allocator that fails once no sample counts, that of the failure least of all. */
	results_drop_one(results, cell->group, cell->test, cell->parameter, name);
	note_failure(results, name, cell);
}

static void finish_oldest(struct rounds *rounds)
{
	struct turn oldest = rounds->under_way[0];
	memmove(&rounds->under_way[0], &rounds->under_way[1],
		--rounds->under_way_count * sizeof(rounds->under_way[0]));
	judge(rounds, oldest.peer,
	      rounds->finish(rounds->bench, oldest.peer, oldest.warm_up, rounds->context));
}

static bool is_under_way(const struct rounds *rounds, unsigned peer)
{
	for (unsigned i = 0; i < rounds->under_way_count; i++)
		if (rounds->under_way[i].peer == peer)
			return true;
	return false;
}

static void take_turn(struct rounds *rounds, struct turn turn)
{
	while (rounds->under_way_count == UNDER_WAY_MAX || is_under_way(rounds, turn.peer))
		finish_oldest(rounds);
	if (rounds->failed[turn.peer])
		return;
	bool well = rounds->begin(rounds->bench, turn.peer, turn.warm_up, rounds->context);
	judge(rounds, turn.peer, well);
	if (well && rounds->finish)
		rounds->under_way[rounds->under_way_count++] = turn;
}

void bench_rounds_overlapped(struct bench *bench, const struct cell *cell, unsigned rounds, measure *begin,
			     measure *finish, void *context)
{
	unsigned taking_part[PEERS_MAX], count = list_taking_part(bench, taking_part);
	struct rounds all = {
		.bench = bench, .cell = cell, .begin = begin, .finish = finish, .context = context};
	if (all_present(bench, taking_part, count, cell, rounds))
		return;
	/* Rounds of an earlier run must not mix with this one's: pairs must share the same moments. */
	results_drop(&bench->results, cell->group, cell->test, cell->parameter);
	bench_progress(bench, cell->test, cell->parameter);
	for (unsigned round = 0; round <= rounds; round++)
		for (unsigned turn = 0; turn < count; turn++) {
			/* The first counted round begins at 0. */
			unsigned peer = taking_part[(turn + round + count - 1) % count];
			take_turn(&all, (struct turn){.peer = peer, .warm_up = round == 0});
		}
	while (all.under_way_count > 0)
		finish_oldest(&all);
	progress_end(bench);
	bench_save(bench);
}

void bench_rounds_of(struct bench *bench, const struct cell *cell, unsigned rounds, measure *take_sample,
		     void *context)
{
	bench_rounds_overlapped(bench, cell, rounds, take_sample, NULL, context);
}

bool bench_measure_process(struct bench *bench, unsigned peer, bool warm_up, struct cell *cell,
			   const struct launch *launch)
{
	const struct peer *p = &bench->peers.list[peer];
	struct usage usage;
	if (!launch_run(launch, &usage))
		return false;
	if (warm_up)
		return true;
	const struct {
		const char *metric, *unit;
		double value;
	} metrics[] = {
		{"wall", "s", usage.wall},
		{"cpu", "s", usage.cpu},
		{"peak resident", "B", usage.peak_bytes},
		{"page faults", "faults", usage.faults},
	};
	for (unsigned i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		cell->metric = metrics[i].metric;
		cell->unit = metrics[i].unit;
		results_add(&bench->results, cell, p->name, p->bound ? ROLE_FLOOR : ROLE_MEASURED,
			    metrics[i].value);
	}
	return true;
}

static bool parse_size(const char **text, size_t *size)
{
	char *end;
	*size = strtoul(*text, &end, 10);
	if (end == *text || *size == 0)
		return false;
	if (*end == 'K' || *end == 'k')
		*size <<= 10, end++;
	else if (*end == 'M' || *end == 'm')
		*size <<= 20, end++;
	*text = end;
	return true;
}

static bool parse_sizes(struct settings *settings, const char *text)
{
	for (settings->size_count = 0; settings->size_count < SIZES_MAX; text++) {
		if (!parse_size(&text, &settings->sizes[settings->size_count++]))
			return false;
		if (*text != ',')
			return *text == '\0';
	}
	return false;
}

static bool parse_count(unsigned *count, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);
	*count = (unsigned)value;
	return *text && !*end && value > 0 && value < 100000;
}

static bool parse_load(struct settings *settings, const char *text)
{
	char *end;
	unsigned long inside = strtoul(text, &end, 10), outside;
	if (end == text || *end != ':' || inside > LOAD_MAX)
		return false;
	text = end + 1;
	outside = strtoul(text, &end, 10);
	settings->load_given = true;
	settings->inside = (unsigned)inside;
	settings->outside = (unsigned)outside;
	return end != text && *end == '\0' && outside <= LOAD_MAX;
}

static const struct format *format_named(const char *name)
{
	for (unsigned i = 0; i < FORMAT_COUNT; i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	return NULL;
}

static const struct group *group_named(const char *name)
{
	for (unsigned i = 0; i < GROUP_COUNT; i++)
		if (strcmp(groups[i].name, name) == 0)
			return &groups[i];
	return NULL;
}

/* What the command line asks for. */
struct call {
	struct settings settings;
	const char *peers;
	const struct group *groups[GROUP_COUNT];
	unsigned group_count;
	unsigned given; /* enum group_option: those that the call gives a value */
};

static bool parse_option(struct call *call, const char *option, const char *value)
{
	if (strcmp(option, "--peers") == 0) {
		/* Every group takes these two: they name nothing that it could ignore. */
		bool named = strcmp(value, "auto") != 0 && strcmp(value, "none") != 0;
		call->settings.peers_named = named;
		call->given |= named ? TAKES_PEERS : 0;
		return call->peers = value, true;
	}
	if (strcmp(option, "--sizes") == 0)
		return call->given |= TAKES_SIZES, parse_sizes(&call->settings, value);
	if (strcmp(option, "--threads") == 0) {
		bool well = parse_count(&call->settings.threads, value) && call->settings.threads <= 2000;
		call->given |=
			call->settings.threads == 2000 ? TAKES_THREADS | TAKES_ORIGINAL : TAKES_THREADS;
		return well;
	}
	if (strcmp(option, "--load") == 0)
		return call->given |= TAKES_LOAD, parse_load(&call->settings, value);
	if (strcmp(option, "--reps") == 0)
		return parse_count(&call->settings.rounds, value);
	if (strcmp(option, "--format") == 0)
		return call->settings.format = value, format_named(value) != NULL;
	if (strcmp(option, "--only") == 0)
		return call->settings.only = value, true;
	if (strcmp(option, "--out") == 0)
		return call->settings.directory = value, true;
	return false;
}

static bool parse_word(struct call *call, const char *word)
{
	const struct group *group = group_named(word);
	/* "quick" and "all" must come first. */
	if (call->group_count > 0 && (!group || call->group_count == GROUP_COUNT))
		return false;
	if (strcmp(word, "quick") == 0) {
		call->settings.quick = true;
		call->groups[call->group_count++] = group_named("kmalloc");
		call->groups[call->group_count++] = group_named("start");
		call->groups[call->group_count++] = group_named("programs");
		return true;
	}
	if (strcmp(word, "all") == 0) {
		for (unsigned i = 0; i < GROUP_COUNT; i++)
			call->groups[call->group_count++] = &groups[i];
		return true;
	}
	if (group)
		call->groups[call->group_count++] = group;
	return group != NULL;
}

/* Refuses an option that none of the chosen groups reads: it would be ignored. */
static bool options_are_read(const struct call *call)
{
	unsigned read = 0;
	for (unsigned i = 0; i < call->group_count; i++)
		read |= call->groups[i]->options;
	for (unsigned i = 0; i < OPTION_COUNT; i++) {
		unsigned given = call->given & options[i].reads;
		if (!given || (given & read))
			continue;
		fprintf(stderr, "cpuslab bench: %s is an option of other groups: ", options[i].name);
		print_readers(&options[i], stderr);
		fputc('\n', stderr);
		return false;
	}
	return true;
}

static bool parse_call(struct call *call, int argc, char **argv)
{
	*call = (struct call){.settings = {.format = "table"}, .peers = "auto"};
	for (int i = 1; i < argc; i++) {
		const char *option = NULL;
		bool well;
		if (strcmp(argv[i], "--seed-lines") == 0)
			call->given |= TAKES_SEED_LINES, well = call->settings.seed_lines = true;
		else if (strncmp(argv[i], "--", 2) == 0 && i + 1 < argc)
			option = argv[i++], well = parse_option(call, option, argv[i]);
		else
			well = parse_word(call, argv[i]);
		if (!well) {
			fprintf(stderr, "cpuslab bench: cannot use '%s'%s%s\n", argv[i],
				option ? " for " : "", option ? option : "");
			return false;
		}
	}
	return call->group_count > 0;
}

/* Prints each group's time beside what it may take with ten allocators on two CPUs. */
static void print_times(const struct results *results, FILE *to)
{
	enum { MOST = 40 };
	double spent = 0, planned = 0;
	fputs("\nTime, in minutes\n", to);
	for (unsigned i = 0; i < GROUP_COUNT; i++) {
		double minutes = results_seconds(results, groups[i].name) / 60;
		spent += minutes;
		planned += groups[i].minutes;
		fprintf(to, "  %-10s %5.1f of %4.1f%s\n", groups[i].name, minutes, groups[i].minutes,
			minutes > groups[i].minutes ? "  OVER its budget" : "");
	}
	fprintf(to, "  %-10s %5.1f of %4.1f, and at most %d%s\n", "all", spent, planned, MOST,
		spent > MOST ? "  MISSED" : "");
}

/* The tables, then the verdict in words. */
static void write_words(const struct bench *bench, bool all, FILE *to)
{
	verdict_print(&bench->results, to);
	if (all)
		print_times(&bench->results, to);
}

static void write_all_formats(struct bench *bench, bool all)
{
	for (unsigned i = 0; i < FORMAT_COUNT; i++) {
		char name[32], path[PATH_MAX];
		struct output output;
		if (strcmp(formats[i].name, "json") == 0)
			continue; /* results.json exists */
		snprintf(name, sizeof(name), "results.%s",
			 strcmp(formats[i].name, "table") == 0 ? "txt" : formats[i].name);
		path_in(bench, name, path);
		bool written = output_begin(&output, "cpuslab bench", path);
		if (written) {
			formats[i].write(&bench->results, output.to);
			if (formats[i].write == output_table)
				write_words(bench, all, output.to);
			written = output_end(&output, true);
		}
		bench->unwritten |= !written;
	}
}

/*
 * Makes the folder, and loads what an earlier run left there.  Returns false, before anything is measured, if
 * the results could not be saved, or if those of the earlier run cannot be read and would be lost.
 */
static bool load_earlier(struct bench *bench)
{
	char path[PATH_MAX];
	if (mkdir(bench->settings.directory, 0777) != 0 && errno != EEXIST) {
		fprintf(stderr, "cpuslab bench: %s: %s\n", bench->settings.directory, strerror(errno));
		return false;
	}
	path_in(bench, "results.json", path);
	if (!output_check("cpuslab bench", path))
		return false;
	if (access(path, F_OK) == 0 && !results_load(&bench->results, path))
		return false;
	bench->results.note_count = 0; /* this run makes its own */
	return true;
}

static int run_groups(const struct call *call)
{
	static struct bench bench;
	bench = (struct bench){.settings = call->settings, .terminal = isatty(STDERR_FILENO)};
	if (bench.settings.directory && !load_earlier(&bench))
		return 1;
	machine_describe(&bench.results);
	if (!peers_find(&bench.peers, call->peers, &bench.results))
		return 1;
	struct machine_time start = machine_time();
	bool well = true, all = call->group_count == GROUP_COUNT;
	for (unsigned i = 0; i < call->group_count; i++) {
		bench.progress_group = call->groups[i]->name;
		bench.counted_until = seconds_now();
		well &= call->groups[i]->run(&bench);
		count_time(&bench);
	}
	if (!bench.selected && well) {
		fprintf(stderr, "cpuslab bench: nothing that was asked for has '%s' in its name\n",
			call->settings.only);
		results_free(&bench.results);
		return 1;
	}
	machine_judge(&bench.results, start);
	bench_save(&bench);
	if (bench.settings.directory)
		write_all_formats(&bench, all);
	format_named(call->settings.format)->write(&bench.results, stdout);
	if (strcmp(call->settings.format, "table") == 0)
		write_words(&bench, all, stdout);
	results_free(&bench.results);
	return well && !bench.unwritten ? 0 : 1;
}

static int show(int argc, char **argv)
{
	struct results results = {0};
	struct call call = {.settings.format = "table"};
	if (argc != 2 &&
	    (argc != 4 || strcmp(argv[2], "--format") != 0 || !parse_option(&call, argv[2], argv[3]))) {
		print_usage(stderr);
		return 2;
	}
	if (!results_load(&results, argv[1]))
		return 1;
	format_named(call.settings.format)->write(&results, stdout);
	if (strcmp(call.settings.format, "table") == 0)
		verdict_print(&results, stdout);
	results_free(&results);
	return 0;
}

static int run_worker(int argc, char **argv)
{
	for (unsigned i = 0; argc > 1 && i < WORKER_COUNT; i++)
		if (strcmp(argv[1], workers[i].name) == 0)
			return workers[i].run(argc - 1, argv + 1);
	return 2;
}

int command_bench(int argc, char **argv)
{
	struct call call;
	if (argc > 1 && strcmp(argv[1], "worker") == 0)
		return run_worker(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "compare") == 0)
		return bench_compare(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "repeat") == 0)
		return bench_repeat(argc - 1, argv + 1);
	if (argc > 1 && strcmp(argv[1], "show") == 0)
		return show(argc - 1, argv + 1);
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		print_usage(stdout);
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		for (unsigned i = 0; i < GROUP_COUNT; i++)
			printf("%-10s %s\n", groups[i].name, groups[i].text);
		return 0;
	}
	if (!parse_call(&call, argc, argv)) {
		print_usage(stderr);
		return 2;
	}
	return options_are_read(&call) ? run_groups(&call) : 2;
}
