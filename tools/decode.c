/* SPDX-License-Identifier: MIT */
/* cpuslab decode: a report of the library with functions, files and lines in place of offsets in files. */
#include "commands.h"
#include "inspect/demangle.h"
#include "inspect/image.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct option options[] = {
	{"path", required_argument, NULL, 'p'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int usage(FILE *to)
{
	fputs("usage: cpuslab decode [--path=FILE|FOLDER]... [REPORT]\n"
	      "Prints a report of the library (a debug, guard or hardened one, or one of leaks; standard "
	      "input\n"
	      "where no file is named) with the function, file and line of each place in the code.\n"
	      "  -p, --path=FILE|FOLDER  the program or a library, or where they are; else they are looked "
	      "for\n"
	      "                          here, in $PATH, and where the dynamic linker finds libraries\n",
	      to);
	return to == stdout ? 0 : 2;
}

/* ---- where modules are --------------------------------------------------------------------------------- */

enum { PATHS = 256 };

static char *paths[PATHS]; /* in the order in which they are tried */
static size_t path_count;

static void add_path(const char *path)
{
	if (path_count < PATHS && *path)
		paths[path_count++] = strdup(path);
}

static void add_default_paths(void)
{
	char *copy = strdup(getenv("PATH") ? getenv("PATH") : ""), *rest = copy;

	add_path(".");
	for (char *folder; (folder = strsep(&rest, ":"));)
		add_path(folder);
	free(copy);
#ifdef RTLD_DI_SERINFO /* musl does not tell where its loader looks */
	void *self = dlopen(NULL, RTLD_LAZY);
	Dl_serinfo size, *found;

	if (!self || dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0 || !(found = malloc(size.dls_size)))
		return;
	if (dlinfo(self, RTLD_DI_SERINFOSIZE, found) == 0 && dlinfo(self, RTLD_DI_SERINFO, found) == 0)
		for (unsigned i = 0; i < found->dls_cnt; i++)
			add_path(found->dls_serpath[i].dls_name);
	free(found);
#endif
}

/* Opens a path that is the module itself, or the folder that has it. */
static struct image *open_at(const char *path, const char *name)
{
	enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };
	const char *slash = strrchr(path, '/');
	char whole[PATH_MAX];
	struct stat status;

	if (stat(path, &status) != 0)
		return NULL;
	if (S_ISDIR(status.st_mode)) {
		if (snprintf(whole, sizeof(whole), "%s/%s", path, name) >= (int)sizeof(whole))
			return NULL;
	} else if (strcmp(slash ? slash + 1 : path, name) == 0)
		snprintf(whole, sizeof(whole), "%s", path);
	else
		return NULL;
	int file = open(whole, FLAGS);
	struct image *image = file < 0 ? NULL : image_open(file, whole);

	if (file >= 0)
		close(file);
	return image;
}

/* A file with code, by the name that reports have. */
struct module {
	struct module *next;
	struct image *image; /* NULL: not found */
	char name[];
};

static struct module *modules;

static struct module *find_module(const char *name, size_t length)
{
	struct module *module;

	for (module = modules; module; module = module->next)
		if (strncmp(module->name, name, length) == 0 && !module->name[length])
			return module;
	module = calloc(1, sizeof(*module) + length + 1);
	if (!module) {
		perror("cpuslab decode");
		exit(1);
	}
	memcpy(module->name, name, length);
	module->next = modules;
	modules = module;
	for (size_t i = 0; i < path_count && !module->image && !strchr(module->name, '/'); i++)
		module->image = open_at(paths[i], module->name);
	if (!module->image)
		fprintf(stderr, "cpuslab decode: %s: not found; --path says where it is\n", module->name);
	return module;
}

/* ---- lines --------------------------------------------------------------------------------------------- */

/* A place in the code as reports have it: "function+0x12/0x34 (module+0x56)", or without the function. */
struct place {
	const char *start, *end; /* of its text */
	const char *function;    /* NULL if there is none */
	size_t function_length;
	uint64_t function_offset;
	const char *module;
	size_t module_length;
	uint64_t offset; /* of the return address */
};

/* Reads "+0x12" that ends before `end`; returns where it begins, or NULL. */
static const char *find_offset(const char *start, const char *end, uint64_t *offset)
{
	const char *at = end;
	char *stop;

	while (at > start && strchr("0123456789abcdef", at[-1]))
		at--;
	if (at == end || at - start < 3 || strncmp(at - 3, "+0x", 3) != 0)
		return NULL;
	*offset = strtoull(at, &stop, 16);
	return at - 3;
}

/* The word before the module, if it is a function. */
static void find_function(const char *line, struct place *place)
{
	const char *end = place->start - 1, *word = end, *slash, *plus;

	if (place->start == line || *end != ' ')
		return;
	while (word > line && word[-1] != ' ')
		word--;
	for (slash = end; slash > word && *slash != '/';)
		slash--;
	plus = slash > word ? find_offset(word, slash, &place->function_offset) : NULL;
	if (!plus || plus == word || strncmp(slash, "/0x", 3) != 0)
		return;
	place->function = place->start = word;
	place->function_length = (size_t)(plus - word);
}

static bool find_place(const char *line, struct place *place)
{
	for (const char *open = line; (open = strchr(open, '(')); open++) {
		const char *close = strchr(open, ')'), *plus;

		*place = (struct place){.start = open, .end = close ? close + 1 : NULL, .module = open + 1};
		if (!close)
			return false;
		plus = find_offset(open + 1, close, &place->offset);
		if (!plus || plus == open + 1 || !place->offset)
			continue;
		place->module_length = (size_t)(plus - place->module);
		find_function(line, place);
		return true;
	}
	return false;
}

static void print_frame(const struct lines_frame *frame)
{
	char *name = demangle(frame->function ? frame->function : "??");

	fputs(name, stdout);
	if (frame->file)
		printf(" at %s:%d", frame->file, frame->line);
	free(name);
}

/* Whether the file has another function there than the report says: it is of another build. */
static bool is_other(const struct image *image, const struct place *place)
{
	uint64_t offset;
	const char *name = image_function(image, place->offset - 1, &offset);

	return place->function && (!name || (offset + 1 != place->function_offset &&
					     (strlen(name) != place->function_length ||
					      strncmp(name, place->function, place->function_length) != 0)));
}

/* What the report itself says of the function, demangled. */
static void print_undecoded(const struct place *place)
{
	const char *after = place->start;

	if (place->function) {
		char *raw = strndup(place->function, place->function_length);
		char *name = demangle(raw ? raw : "??");

		fputs(name, stdout);
		free(name);
		free(raw);
		after += place->function_length;
	}
	fwrite(after, 1, (size_t)(place->end - after), stdout);
}

/* Each inlined function gets a line of its own where the place has one. */
static void print_decoded(const char *line, const struct place *place, const struct lines_frame *frames,
			  size_t count)
{
	size_t indent = (size_t)(place->start - line), blanks = strspn(line, " \t");
	bool alone = blanks == indent && (!*place->end || *place->end == '\n');

	for (size_t i = 0; alone && i + 1 < count; i++) {
		print_frame(&frames[i]);
		printf(" (inlined)\n%.*s", (int)indent, line);
	}
	print_frame(alone ? &frames[count - 1] : &frames[0]);
	printf(" (%.*s+0x%lx)", (int)place->module_length, place->module, place->offset);
}

static void decode(const char *line, size_t length)
{
	struct lines_frame frames[LINES_FRAMES];
	const char *end = line + length;
	struct place place;
	size_t count = 0;

	if (!find_place(line, &place)) {
		fwrite(line, 1, length, stdout);
		return;
	}
	struct module *module = find_module(place.module, place.module_length);

	fwrite(line, 1, (size_t)(place.start - line), stdout);
	/* The call, which comes before the return address. */
	if (module->image && !is_other(module->image, &place))
		count = image_frames(module->image, place.offset - 1, frames);
	if (count)
		print_decoded(line, &place, frames, count);
	else
		print_undecoded(&place);
	fwrite(place.end, 1, (size_t)(end - place.end), stdout);
}

static int decode_all(FILE *from, const char *name)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;

	/* A program may still be writing the report. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((length = getline(&line, &room, from)) > 0)
		decode(line, (size_t)length);
	free(line);
	if (!ferror(from))
		return 0;
	fprintf(stderr, "cpuslab decode: %s: %s\n", name, strerror(errno));
	return 1;
}

int command_decode(int argc, char **argv)
{
	for (int option; (option = getopt_long(argc, argv, "p:h", options, NULL)) != -1;)
		switch (option) {
		case 'p':
			add_path(optarg);
			break;
		case 'h':
			return usage(stdout);
		default:
			return usage(stderr);
		}
	if (argc - optind > 1)
		return usage(stderr);
	bool standard = optind == argc || strcmp(argv[optind], "-") == 0;
	FILE *from = standard ? stdin : fopen(argv[optind], "re");

	if (!from) {
		fprintf(stderr, "%s: %s: %s\n", argv[0], argv[optind], strerror(errno));
		return 1;
	}
	add_default_paths();
	say_lacks(argv[0]);
	int status = decode_all(from, standard ? "standard input" : argv[optind]);

	if (!standard)
		fclose(from);
	return status;
}
