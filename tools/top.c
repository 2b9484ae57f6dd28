/* SPDX-License-Identifier: MIT */
/* cpuslab top: the caches of a running process, live, in the manner of slabtop(1). */
#include "commands.h"
#include "inspect/bounds.h"
#include "inspect/wait.h"
#include "numbers.h"
#include "top/screen.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#ifdef CPUSLAB_HAS_CURSES
#include <curses.h>
#endif

static const struct option options[] = {
	{"delay", required_argument, NULL, 'd'}, {"sort", required_argument, NULL, 's'},
	{"once", no_argument, NULL, 'o'},        {"no-colour", no_argument, NULL, 'n'},
	{"no-color", no_argument, NULL, 'n'},    {"empty", no_argument, NULL, 'e'},
	{"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0},
};

/* slabtop's keys, and some more. */
static const struct {
	char key;
	enum sorting sorting;
	const char *text;
} sortings[] = {
	{'a', SORT_ACTIVE, "active objects"},
	{'b', SORT_PER_SLAB, "objects per slab"},
	{'c', SORT_SIZE, "cache size"},
	{'l', SORT_SLABS, "slabs"},
	{'v', SORT_PARTIAL, "partial slabs"},
	{'n', SORT_NAME, "name"},
	{'o', SORT_OBJECTS, "objects"},
	{'s', SORT_OBJECT_SIZE, "object size"},
	{'u', SORT_USE, "utilization"},
	{'h', SORT_HOARDED, "hoarded objects"},
	{'x', SORT_LOSS, "loss"},
	{'t', SORT_ACTIVITY, "activity"},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab top [OPTIONS] [PID|NAME]\n"
	      "  -d, --delay=SECONDS  between refreshes (1)\n"
	      "  -s, --sort=LETTER    what comes first (o)\n"
	      "  -e, --empty          caches without slabs too\n"
	      "  -o, --once           one screen as text, and no more\n"
	      "      --no-colour\n\n"
	      "Keys, and letters of --sort:\n",
	      to);
	for (unsigned i = 0; i < sizeof(sortings) / sizeof(sortings[0]); i++)
		fprintf(to, "  %c  sort by %s\n", sortings[i].key, sortings[i].text);
	fputs("  i  the other way round\n"
	      "  e  caches without slabs too\n"
	      "  up, down, page up, page down, home, end; Enter: one cache; Esc: back\n"
	      "  p  the processes on cpuslab\n"
	      "  space  refresh now; q  quit\n",
	      to);
	return to == stdout ? 0 : 2;
}

static bool find_sorting(int key, enum sorting *sorting)
{
	for (unsigned i = 0; i < sizeof(sortings) / sizeof(sortings[0]); i++)
		if (sortings[i].key == key) {
			*sorting = sortings[i].sorting;
			return true;
		}
	return false;
}

/* ---- what is watched ----------------------------------------------------------------------------------- */

struct watch {
	struct target target;
	struct census census[2]; /* this one and the previous one, in turn */
	unsigned now, taken;
	struct view view;
	struct rates rates;
	struct history used, live;
	enum sorting sorting;
	bool inverted, empty, once;
	char notice[600];
};

/*
 * Finding what is resident makes the kernel walk the target's page tables.  For a large process this is done
 * so seldom that it takes less than a two-hundredth of the time.
 */
static void watch_residents(struct watch *watch, struct census *census)
{
	static double due;
	const struct census *before = &watch->census[!watch->now];
	double start = wait_seconds(CLOCK_MONOTONIC);

	if (start < due && watch->taken > 1) {
		census->residents_known = before->residents_known;
		census->resident = before->resident;
		census->resident_metadata = before->resident_metadata;
		census->resident_huge = before->resident_huge;
		return;
	}
	double spent = wait_seconds(CLOCK_PROCESS_CPUTIME_ID);

	(void)census_residents(census, &watch->target);
	spent = wait_seconds(CLOCK_PROCESS_CPUTIME_ID) - spent;
	due = start + 200 * spent;
}

static void watch_arrange(struct watch *watch)
{
	const struct census *census = &watch->census[watch->now];

	view_select(&watch->view, census, &watch->target, NULL, 0, watch->empty);
	view_sort(&watch->view, watch->sorting, watch->inverted);
}

/* Takes one more census.  If the process has ended, the last one stays. */
static void watch_refresh(struct watch *watch)
{
	unsigned next = watch->taken ? !watch->now : 0;
	struct census *census = &watch->census[next];
	enum target_status status = census_take(census, &watch->target);

	if (status == TARGET_CHANGED) {
		/* The process runs another program now: start over with it. */
		pid_t pid = watch->target.pid;

		target_detach(&watch->target);
		status = target_attach(&watch->target, pid);
		watch->taken = 0;
		watch->rates.count = 0;
		if (status == TARGET_READY)
			status = census_take(census, &watch->target);
	}
	if (status != TARGET_READY) {
		snprintf(watch->notice, sizeof(watch->notice), "%s%s", watch->target.trouble,
			 watch->once ? "" : " - p: other processes, q: quit");
		return;
	}
	watch->notice[0] = '\0';
	watch->now = next;
	watch->taken++;
	watch_residents(watch, census);
	if (watch->taken > 1)
		rates_compute(&watch->rates, &watch->census[!next], census);
	history_add(&watch->used,
		    census->live_bytes + census->large_pages * CENSUS_PAGE + census->huge_bytes);
	watch_arrange(watch);
}

static void watch_close(struct watch *watch)
{
	census_free(&watch->census[0]);
	census_free(&watch->census[1]);
	free(watch->view.order);
	free(watch->rates.of);
	target_detach(&watch->target);
}

static struct overview overview_of(const struct watch *watch)
{
	return (struct overview){.view = &watch->view,
				 .rates = &watch->rates,
				 .used = &watch->used,
				 .chosen = SIZE_MAX,
				 .notice = watch->notice[0] ? watch->notice : NULL};
}

/* ---- once ---------------------------------------------------------------------------------------------- */

static struct screen screen;

/* Takes two censuses, which rates need, and prints all rows. */
static int print_once(struct watch *watch, double delay)
{
	watch_refresh(watch);
	usleep((useconds_t)(delay * 1e6));
	watch_refresh(watch);
	if (watch->notice[0]) {
		fprintf(stderr, "cpuslab top: process %d: %s\n", (int)watch->target.pid, watch->notice);
		return 1;
	}
	struct overview overview = overview_of(watch);

	screen.columns = 120;
	screen.rows = SCREEN_LINES;
	screen_overview(&screen, &overview);
	for (unsigned i = 0; i < screen.count; i++)
		puts(screen.lines[i].text);
	return 0;
}

/* ---- the terminal -------------------------------------------------------------------------------------- */

#ifdef CPUSLAB_HAS_CURSES

static void watch_forget(struct watch *watch)
{
	watch->taken = 0;
	watch->rates.count = 0;
	watch->used.count = watch->live.count = 0;
}

enum mode { OVERVIEW, CACHE, PICKER };

struct terminal {
	struct watch *watch;
	enum mode mode;
	size_t first, chosen;
	uint32_t cache; /* number of the cache shown in detail */
	struct process processes[256];
	size_t process_count, chosen_process;
};

static attr_t attributes[STYLE_FAINT + 1];

/* For a command that ends at its bounds. */
static void leave_screen(void)
{
	if (stdscr && !isendwin())
		endwin();
}

/* Returns false if the terminal cannot place the cursor, or there is none. */
static bool start_terminal(bool colour)
{
	const char *name = getenv("TERM");
	SCREEN *terminal = newterm(NULL, stdout, stdin);

	if (!terminal || !tigetstr("cup")) {
		if (terminal)
			endwin();
		fprintf(stderr, "cpuslab top: a terminal of type '%s' cannot show it; --once writes text\n",
			name ? name : "");
		return false;
	}
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	set_escdelay(50);
	attributes[STYLE_TITLE] = A_BOLD;
	attributes[STYLE_HEAD] = A_REVERSE;
	attributes[STYLE_CHOSEN] = A_BOLD | A_UNDERLINE;
	attributes[STYLE_WARNING] = A_BOLD;
	if (!colour || !has_colors())
		return true;
	start_color();
	use_default_colors();
	init_pair(1, COLOR_CYAN, -1);
	init_pair(2, COLOR_YELLOW, -1);
	init_pair(3, COLOR_RED, -1);
	init_pair(4, COLOR_BLUE, -1);
	attributes[STYLE_TITLE] |= COLOR_PAIR(1);
	attributes[STYLE_CHOSEN] |= COLOR_PAIR(2);
	attributes[STYLE_WARNING] |= COLOR_PAIR(3);
	attributes[STYLE_FAINT] |= COLOR_PAIR(4);
	return true;
}

/* Cuts a line at the screen's width: curses would continue it in the row below. */
static void show_text(int row, const char *text)
{
	static wchar_t letters[SCREEN_COLUMNS * 4];
	size_t count = mbstowcs(letters, text, sizeof(letters) / sizeof(letters[0]));

	/* Bytes that this locale cannot decode are printed one by one. */
	if (count == (size_t)-1)
		mvaddnstr(row, 0, text, COLS);
	else
		mvaddnwstr(row, 0, letters, (int)count < COLS ? (int)count : COLS);
}

static void show(void)
{
	erase();
	for (unsigned i = 0; i < screen.count && (int)i < LINES; i++) {
		const struct line *line = &screen.lines[i];

		attrset(attributes[line->style]);
		show_text((int)i, line->text);
		if (line->style == STYLE_HEAD)
			for (int x = getcurx(stdscr); getcury(stdscr) == (int)i && x < COLS - 1; x++)
				addch(' ');
	}
	attrset(A_NORMAL);
	refresh();
}

/* Runs in a child. */
static size_t look_at_process(pid_t pid, void *answer, size_t bytes)
{
	struct target target;
	struct census census = {.cache_count = 0};
	size_t told = 0;

	if (target_attach(&target, pid) != TARGET_READY)
		return 0;
	if (census_take(&census, &target) == TARGET_READY) {
		struct process *process = answer;

		*process = (struct process){.pid = pid,
					    .live = census.live_bytes + census.large_pages * CENSUS_PAGE +
						    census.huge_bytes,
					    .mapped = census_mapped(&census),
					    .caches = census.cache_count};
		memcpy(process->name, target.name, sizeof(process->name));
		told = bytes;
	}
	census_free(&census);
	target_detach(&target);
	return told;
}

static void take_process(void *context, size_t index, const void *answer, size_t bytes)
{
	struct terminal *terminal = context;

	(void)index;
	if (terminal->process_count < sizeof(terminal->processes) / sizeof(terminal->processes[0]))
		memcpy(&terminal->processes[terminal->process_count++], answer, bytes);
}

static void find_processes(struct terminal *terminal)
{
	pid_t *pids;
	size_t count;
	pid_t chosen = terminal->process_count ? terminal->processes[terminal->chosen_process].pid : 0;

	terminal->process_count = 0;
	if (target_find(NULL, &pids, &count))
		(void)bounds_survey(&(struct bounds_survey){.look = look_at_process,
							    .take = take_process,
							    .context = terminal,
							    .answer_bytes = sizeof(struct process)},
				    pids, count);
	free(pids);
	/*
	 * Processes come and go; the selection is a process, not a row, or the next process once it is gone.
	 */
	size_t row = 0;

	while (row + 1 < terminal->process_count && terminal->processes[row].pid < chosen)
		row++;
	terminal->chosen_process = row;
}

static void draw(struct terminal *terminal)
{
	struct watch *watch = terminal->watch;
	struct overview overview = overview_of(watch);
	size_t count = watch->view.count, rows;

	screen.columns = COLS > 0 ? (unsigned)COLS : 80;
	screen.rows = LINES > 0 ? (unsigned)LINES : 24;
	rows = screen_overview_rows(&screen);
	if (terminal->chosen >= count)
		terminal->chosen = count ? count - 1 : 0;
	if (terminal->chosen < terminal->first)
		terminal->first = terminal->chosen;
	if (terminal->chosen >= terminal->first + rows)
		terminal->first = terminal->chosen - rows + 1;
	overview.first = terminal->first;
	overview.chosen = terminal->chosen;
	if (terminal->mode == PICKER) {
		screen_picker(&screen, terminal->processes, terminal->process_count,
			      terminal->chosen_process);
	} else if (terminal->mode == CACHE) {
		size_t row = 0;

		while (row < count &&
		       watch->view.census->caches[watch->view.order[row]].number != terminal->cache)
			row++;
		if (row < count)
			screen_cache(&screen, &overview, row, &watch->live);
		else
			terminal->mode = OVERVIEW;
	}
	if (terminal->mode == OVERVIEW)
		screen_overview(&screen, &overview);
	show();
}

static void look(struct terminal *terminal)
{
	struct watch *watch = terminal->watch;

	if (terminal->mode == PICKER) {
		find_processes(terminal);
		return;
	}
	watch_refresh(watch);
	const struct census *census = watch->view.census;

	for (size_t c = 0; terminal->mode == CACHE && census && c < census->cache_count; c++)
		if (census->caches[c].number == terminal->cache)
			history_add(&watch->live, census->caches[c].live);
}

static void enter(struct terminal *terminal)
{
	struct watch *watch = terminal->watch;

	if (terminal->mode == OVERVIEW && watch->view.count) {
		terminal->cache = watch->view.census->caches[watch->view.order[terminal->chosen]].number;
		watch->live.count = 0;
		terminal->mode = CACHE;
	} else if (terminal->mode == PICKER && terminal->process_count) {
		target_detach(&watch->target);
		if (target_attach(&watch->target, terminal->processes[terminal->chosen_process].pid) !=
		    TARGET_READY)
			snprintf(watch->notice, sizeof(watch->notice), "%s", watch->target.trouble);
		watch_forget(watch);
		watch_refresh(watch);
		if (watch->view.census)
			terminal->mode = OVERVIEW;
		terminal->first = terminal->chosen = 0;
	}
	look(terminal);
}

static void move_by(struct terminal *terminal, long distance)
{
	size_t *chosen = terminal->mode == PICKER ? &terminal->chosen_process : &terminal->chosen;
	size_t count = terminal->mode == PICKER ? terminal->process_count : terminal->watch->view.count;

	if (distance < 0)
		*chosen = (size_t)-distance < *chosen ? *chosen - (size_t)-distance : 0;
	else if (count)
		*chosen = (size_t)distance < count - *chosen ? *chosen + (size_t)distance : count - 1;
}

/* Returns false to quit. */
static bool handle(struct terminal *terminal, int key)
{
	struct watch *watch = terminal->watch;
	long page = (long)screen_overview_rows(&screen);

	switch (key) {
	case 'q':
	case 'Q':
		return false;
	case KEY_UP:
		move_by(terminal, -1);
		return true;
	case KEY_DOWN:
		move_by(terminal, 1);
		return true;
	case KEY_PPAGE:
		move_by(terminal, -page);
		return true;
	case KEY_NPAGE:
		move_by(terminal, page);
		return true;
	case KEY_HOME:
		move_by(terminal, -(long)INT32_MAX);
		return true;
	case KEY_END:
		move_by(terminal, INT32_MAX);
		return true;
	case '\n':
	case KEY_ENTER:
		enter(terminal);
		return true;
	case 27:
		/* There may be nothing to go back to yet. */
		if (watch->view.census)
			terminal->mode = OVERVIEW;
		return true;
	case 'p':
		terminal->mode = PICKER;
		look(terminal);
		return true;
	case ' ':
		look(terminal);
		return true;
	case 'i':
		watch->inverted = !watch->inverted;
		break;
	case 'e':
		watch->empty = !watch->empty;
		break;
	default:
		if (!find_sorting(key, &watch->sorting))
			return true;
		terminal->chosen = terminal->first = 0;
	}
	if (watch->taken)
		watch_arrange(watch);
	return true;
}

static int run_terminal(struct watch *watch, double delay, bool colour)
{
	static struct terminal terminal;
	double next = wait_seconds(CLOCK_MONOTONIC);
	int status = 0;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) {
		fputs("cpuslab top: this is no terminal; --once writes text\n", stderr);
		return 1;
	}
	terminal.watch = watch;
	screen.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	if (!watch->target.pid)
		terminal.mode = PICKER;
	if (!start_terminal(colour))
		return 1;
	for (bool going = true; going;) {
		double left = next - wait_seconds(CLOCK_MONOTONIC);

		if (left <= 0) {
			look(&terminal);
			next = wait_seconds(CLOCK_MONOTONIC) + delay;
			left = delay;
		}
		draw(&terminal);
		timeout((int)(left * 1000) + 1);
		int key = getch();

		/* A resize arrives as a key of its own; redrawing is all it needs. */
		if (key != ERR && key != KEY_RESIZE)
			going = handle(&terminal, key);
		/* A closed terminal sends no key, and getch() does not wait for one either. */
		if (key == ERR && tcgetattr(STDIN_FILENO, &(struct termios){0}) != 0) {
			status = 1;
			going = false;
		}
	}
	endwin();
	return status;
}

#else

static void leave_screen(void)
{
}

static int run_terminal(struct watch *watch, double delay, bool colour)
{
	(void)watch;
	(void)delay;
	(void)colour;
	fputs("cpuslab top: this command was built without ncursesw; --once works\n", stderr);
	return 1;
}

#endif

int command_top(int argc, char **argv)
{
	static struct watch watch = {.sorting = SORT_OBJECTS, .target.memory = -1};
	double delay = 1;
	bool colour = !getenv("NO_COLOR");

	setlocale(LC_CTYPE, "");
	for (int option; (option = getopt_long(argc, argv, "d:s:oeh", options, NULL)) != -1;)
		switch (option) {
		case 'd':
			if (!parse_seconds(optarg, &delay, 0.05, 3600))
				return wrong_value(argv[0], "--delay", optarg, "seconds from 0.05 to 3600");
			break;
		case 's':
			if (!find_sorting(optarg[0], &watch.sorting) || optarg[1])
				return wrong_value(argv[0], "--sort", optarg, "one of the letters of --help");
			break;
		case 'o':
			watch.once = true;
			break;
		case 'n':
			colour = false;
			break;
		case 'e':
			watch.empty = true;
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	if (argc - optind > 1)
		return usage(stderr);
	bounds_begin(argv[0], leave_screen);
	/* Without a process name, and not in a script, a picker is shown. */
	if ((optind < argc || watch.once) && !target_open(&watch.target, argv[0], argv[optind]))
		return 1;
	int status = watch.once ? print_once(&watch, delay) : run_terminal(&watch, delay, colour);

	watch_close(&watch);
	return status;
}
