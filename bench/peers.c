/* SPDX-License-Identifier: MIT */
#include "peers.h"

#include "launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct known {
	const char *name, *library, *environment, *text;
	bool bound;
};

static const struct known known[] = {
#define PEER(name, library, environment, text) {#name, library, environment, text, false},
#define HARDENED(name, library, environment, text)
#define BOUND(name, library, environment, text) {#name, library, environment, text, true},
#include "peers.def"
#undef BOUND
#undef HARDENED
#undef PEER
};

static const struct known hardened[] = {
#define PEER(name, library, environment, text)
#define HARDENED(name, library, environment, text) {name, library, environment, text, false},
#define BOUND(name, library, environment, text)
#include "peers.def"
#undef BOUND
#undef HARDENED
#undef PEER
};

enum { KNOWN_COUNT = sizeof(known) / sizeof(known[0]) };

/* ---- in the worker: who serves malloc here? ---- */

static const char *file_of(const void *address)
{
	Dl_info info;
	return address && dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/* Finds a symbol of the library that serves malloc, and of no other that is loaded. */
static void *own_symbol(const char *file, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);
	return symbol && strcmp(file_of(symbol), file) == 0 ? symbol : NULL;
}

static void describe_version(const char *file, char *text, size_t size)
{
	const char *built_in = own_symbol(file, "bench_peer_version");
	const char *(*cpuslab)(void) = (const char *(*)(void))own_symbol(file, "cpuslab_version");
	int (*mimalloc)(void) = (int (*)(void))own_symbol(file, "mi_version");
	int (*jemalloc)(const char *, void *, size_t *, void *, size_t) =
		(int (*)(const char *, void *, size_t *, void *, size_t))own_symbol(file, "mallctl");
	const char *(*gperftools)(int *, int *, const char **) =
		(const char *(*)(int *, int *, const char **))own_symbol(file, "tc_version");
	const char *(*libc)(void) = (const char *(*)(void))own_symbol(file, "gnu_get_libc_version");
	snprintf(text, size, "version unknown");
	if (cpuslab) {
		snprintf(text, size, "%s", cpuslab());
	} else if (mimalloc) {
		/* 209 is 2.0.9; since 3.2 each part has two digits. */
		int v = mimalloc(), base = v >= 10000 ? 100 : 10;
		snprintf(text, size, "%d.%d.%d", v / base / base, v / base % base, v % base);
	} else if (jemalloc) {
		const char *version = NULL;
		size_t length = sizeof(version);
		if (jemalloc("version", &version, &length, NULL, 0) == 0 && version)
			snprintf(text, size, "%.*s", (int)strcspn(version, "-"), version);
	} else if (gperftools) {
		int major = 0, minor = 0;
		const char *patch = NULL;
		gperftools(&major, &minor, &patch);
		snprintf(text, size, "%d.%d%s", major, minor, patch ? patch : "");
	} else if (built_in) {
		snprintf(text, size, "%s", built_in);
	} else if (libc) {
		snprintf(text, size, "%s", libc());
	}
}

int worker_identify(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	char version[64];
	void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
	const char *file = file_of((const void *)allocate);
	free(allocate(1));
	describe_version(file, version, sizeof(version));
	printf("%s\n%s\n", file, version);
	return 0;
}

/* ---- in the command ---- */

/* Returns false if the library did not become the malloc of its process. */
static bool identify(struct peer *peer, char version[static 64])
{
	int answer[2];
	char *argv[] = {launch_program, "bench", "worker", "identify", NULL};
	char text[PATH_MAX + 128] = "", *end;
	if (pipe2(answer, O_CLOEXEC) != 0)
		return false;
	struct launch launch = {.argv = argv, .peer = peer, .cpu = -1, .quiet = true, .output_fd = answer[1]};
	pid_t child = launch_start(&launch);
	close(answer[1]);
	size_t length = 0;
	for (ssize_t n; length < sizeof(text) - 1 &&
			(n = read(answer[0], text + length, sizeof(text) - 1 - length)) > 0;)
		length += (size_t)n;
	close(answer[0]);
	struct usage usage;
	if (child < 0 || !launch_wait(child, &usage) || !(end = strchr(text, '\n')))
		return false;
	*end = '\0';
	snprintf(version, 64, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
	const char *wanted = strrchr(peer->library, '/') ? strrchr(peer->library, '/') + 1 : peer->library;
	if (*wanted) {
		char asked[PATH_MAX], got[PATH_MAX];
		/* The dynamic linker may have reported another name of the same file. */
		if (!strstr(text, wanted) &&
		    (!realpath(peer->library, asked) || !realpath(text, got) || strcmp(asked, got) != 0))
			return false;
		size_t answered = strlen(text);
		if (answered >= sizeof(peer->library))
			return false;
		memcpy(peer->library, text, answered + 1);
	}
	return true;
}

static bool add(struct peers *peers, struct results *results, const char *name, const char *library,
		const char *environment)
{
	if (peers->count == sizeof(peers->list) / sizeof(peers->list[0]))
		return false;
	struct peer *peer = &peers->list[peers->count];
	snprintf(peer->name, sizeof(peer->name), "%s", name);
	snprintf(peer->library, sizeof(peer->library), "%s", library);
	peer->environment = environment;
	peer->bound = false;
	char version[64], text[200];
	if (!identify(peer, version))
		return false;
	peers->count++;
	const char *slash = strrchr(peer->library, '/');
	snprintf(text, sizeof(text), "%s, %s", version,
		 slash            ? slash + 1
		 : *peer->library ? peer->library
				  : "no preload");
	results_fact(results->peers, &results->peer_count, sizeof(results->peers) / sizeof(results->peers[0]),
		     name, text);
	return true;
}

/* What was built with this command takes precedence over what is installed. */
static bool find_beside(const char *library, char beside[static PATH_MAX])
{
	static const char *const folders[] = {"", "peers/", "../lib/"};
	const char *self = launch_self(), *slash = strrchr(self, '/');
	bool found = false;

	for (unsigned i = 0; *library && !found && i < sizeof(folders) / sizeof(folders[0]); i++)
		found = snprintf(beside, PATH_MAX, "%.*s/%s%s", slash ? (int)(slash - self) : 0, self,
				 folders[i], library) < PATH_MAX &&
			access(beside, R_OK) == 0;
	return found || (*library && launch_beside(library, beside));
}

static bool add_known(struct peers *peers, struct results *results, const struct known *peer)
{
	char names[PATH_MAX], beside[PATH_MAX], *rest = names;
	bool added = false;

	snprintf(names, sizeof(names), "%s", peer->library);
	for (char *library; !added && (library = strsep(&rest, "|"));)
		added = add(peers, results, peer->name, find_beside(library, beside) ? beside : library,
			    peer->environment);
	if (added)
		peers->list[peers->count - 1].bound = peer->bound;
	return added;
}

static const struct known *known_named(const char *name)
{
	for (unsigned i = 0; i < KNOWN_COUNT; i++)
		if (strcmp(known[i].name, name) == 0)
			return &known[i];
	return NULL;
}

static bool add_listed(struct peers *peers, struct results *results, char *item)
{
	char *library = strchr(item, '=');
	const struct known *peer;
	bool found;
	if (library) {
		*library++ = '\0';
		found = add(peers, results, item, library, NULL);
	} else if ((peer = known_named(item))) {
		found = add_known(peers, results, peer);
	} else {
		fprintf(stderr, "cpuslab bench: no allocator '%s' is known; name=FILE adds one\n", item);
		return false;
	}
	if (!found)
		fprintf(stderr, "cpuslab bench: %s cannot be preloaded here\n", item);
	return found;
}

bool peers_find(struct peers *peers, const char *selection, struct results *results)
{
	peers->count = 0;
	if (strcmp(selection, "auto") == 0 || strcmp(selection, "none") == 0) {
		char missing[200] = "";
		unsigned few = strcmp(selection, "none") == 0 ? 2 : KNOWN_COUNT;
		for (unsigned i = 0; i < few; i++)
			if (!known[i].bound && !add_known(peers, results, &known[i])) {
				size_t length = strlen(missing);
				snprintf(missing + length, sizeof(missing) - length, "%s%s",
					 length ? ", " : "", known[i].name);
			}
		if (*missing)
			results_note(results, "not found, skipped", missing);
		return peers->count > 0;
	}
	char *list = strdup(selection), *rest = list;
	bool well = list != NULL;
	for (char *item; well && (item = strsep(&rest, ",")) != NULL;)
		well = !*item || add_listed(peers, results, item);
	free(list);
	return well && peers->count > 0;
}

void peers_add_hardened(struct peers *peers, struct results *results)
{
	for (unsigned i = 0; i < sizeof(hardened) / sizeof(hardened[0]); i++)
		if (!add_known(peers, results, &hardened[i]))
			results_note(results, hardened[i].name, "not found, skipped");
}

const struct peer *peers_named(const struct peers *peers, const char *name)
{
	for (unsigned i = 0; i < peers->count; i++)
		if (strcmp(peers->list[i].name, name) == 0)
			return &peers->list[i];
	return NULL;
}
