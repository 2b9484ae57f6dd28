/* SPDX-License-Identifier: MIT */
/* cpuslab info: the caches of a running process, also in the formats of the kernel's slabinfo tool. */
#include "commands.h"
#include "inspect/bounds.h"
#include "inspect/settings.h"
#include "inspect/view.h"
#include "numbers.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum form { TABLE, ACTIVITY, ALIASES, TOTALS, REPORT, NUMA, SLABINFO, JSON, PROMETHEUS, OPTIONS };

static const struct option options[] = {
	{"aliases", no_argument, NULL, 'a'},     {"activity", no_argument, NULL, 'A'},
	{"bytes", no_argument, NULL, 'B'},       {"display-activity", no_argument, NULL, 'D'},
	{"empty", no_argument, NULL, 'e'},       {"help", no_argument, NULL, 'h'},
	{"inverted", no_argument, NULL, 'i'},    {"Loss", no_argument, NULL, 'L'},
	{"loss", no_argument, NULL, 'L'},        {"numa", no_argument, NULL, 'n'},
	{"lines", required_argument, NULL, 'N'}, {"options", no_argument, NULL, 'o'},
	{"partial", no_argument, NULL, 'P'},     {"report", no_argument, NULL, 'r'},
	{"Size", no_argument, NULL, 'S'},        {"size", no_argument, NULL, 'S'},
	{"Totals", no_argument, NULL, 'T'},      {"totals", no_argument, NULL, 'T'},
	{"json", no_argument, NULL, 'j'},        {"prometheus", no_argument, NULL, 'p'},
	{"slabinfo", no_argument, NULL, 's'},    {NULL, 0, NULL, 0},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab info [OPTIONS] [PID|NAME [PATTERN...]]\n"
	      "Without PID or NAME: the only process of the machine that runs on cpuslab.\n"
	      "PATTERN: names of caches, with * and ?\n\n"
	      "  -a, --aliases           caches that share their memory\n"
	      "  -A, --activity          most active first\n"
	      "  -B, --bytes             sizes in bytes\n"
	      "  -D, --display-activity  misses, refills, drains\n"
	      "  -e, --empty             caches without slabs too\n"
	      "  -i, --inverted          the other way round\n"
	      "  -L, --loss              most memory lost first\n"
	      "  -n, --numa              resident pages by node\n"
	      "  -N, --lines=K           the first K lines\n"
	      "  -o, --options           the options in force, and which of them cpuslab set can change\n"
	      "  -P, --partial           most partial slabs first\n"
	      "  -r, --report            all about each cache\n"
	      "  -S, --size              most memory first\n"
	      "  -T, --totals            sums, and what is mapped and resident\n"
	      "      --json              for programs\n"
	      "      --prometheus        the text exposition format\n"
	      "      --slabinfo          the format of /proc/slabinfo, version 2.1\n",
	      to);
	return to == stdout ? 0 : 2;
}

static bool print(const struct view *view, enum form form, size_t lines, bool bytes)
{
	struct settings settings;

	switch (form) {
	case TABLE:
		view_print_table(stdout, view, lines, bytes);
		return true;
	case ACTIVITY:
		view_print_activity(stdout, view, lines);
		return true;
	case ALIASES:
		view_print_aliases(stdout, view);
		return true;
	case TOTALS:
		view_print_totals(stdout, view);
		return true;
	case REPORT:
		view_print_report(stdout, view);
		return true;
	case NUMA:
		if (view_print_numa(stdout, view, lines))
			return true;
		perror("cpuslab info: the system does not tell where pages are");
		return false;
	case SLABINFO:
		view_print_slabinfo(stdout, view);
		return true;
	case JSON:
		view_print_json(stdout, view);
		return true;
	case OPTIONS:
		if (!settings_read(view->target, &settings)) {
			fprintf(stderr, "cpuslab info: the options of process %d cannot be read\n",
				(int)view->target->pid);
			return false;
		}
		settings_print(stdout, &settings);
		return true;
	case PROMETHEUS:
		view_print_prometheus(stdout, view, 1);
		return true;
	}
	return false;
}

int command_info(int argc, char **argv)
{
	enum form form = TABLE;
	enum sorting sorting = SORT_NAME;
	bool inverted = false, empty = false, bytes = false;
	uint64_t lines = 0;
	char *end;
	struct target target;
	struct census census;
	struct view view = {.order = NULL};

	for (int option; (option = getopt_long(argc, argv, "aABDehiLnN:oPrST", options, NULL)) != -1;)
		switch (option) {
		case 'a':
			form = ALIASES;
			break;
		case 'A':
			sorting = SORT_ACTIVITY;
			break;
		case 'B':
			bytes = true;
			break;
		case 'D':
			form = ACTIVITY;
			break;
		case 'e':
			empty = true;
			break;
		case 'h':
			return usage(stdout);
		case 'i':
			inverted = true;
			break;
		case 'j':
			form = JSON;
			break;
		case 'L':
			sorting = SORT_LOSS;
			break;
		case 'n':
			form = NUMA;
			break;
		case 'N':
			if (!parse_count(optarg, &lines, &end) || *end)
				return wrong_value(argv[0], "--lines", optarg, "a whole number");
			break;
		case 'o':
			form = OPTIONS;
			break;
		case 'p':
			form = PROMETHEUS;
			break;
		case 'P':
			sorting = SORT_PARTIAL;
			break;
		case 'r':
			form = REPORT;
			break;
		case 's':
			form = SLABINFO;
			sorting = SORT_NONE;
			empty = true;
			break;
		case 'S':
			sorting = SORT_SIZE;
			break;
		case 'T':
			form = TOTALS;
			break;
		default:
			return usage(stderr);
		}
	bounds_begin(argv[0], NULL);
	if (!census_open(&census, &target, argv[0], optind < argc ? argv[optind] : NULL))
		return 1;
	size_t patterns = optind < argc ? (size_t)(argc - optind - 1) : 0;
	bool done;

	(void)census_residents(&census, &target);
	view_select(&view, &census, &target, argv + optind + 1, patterns, empty);
	view_sort(&view, sorting, inverted);
	if (patterns && !view.count) {
		fprintf(stderr, "cpuslab info: no cache of that name%s\n",
			empty ? "" : " has slabs (-e for those without)");
		done = false;
	} else {
		done = print(&view, form, lines, bytes);
	}
	free(view.order);
	census_free(&census);
	target_detach(&target);
	return done ? 0 : 1;
}
