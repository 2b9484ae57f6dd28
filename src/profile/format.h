/* SPDX-License-Identifier: MIT */
/*
 * profile/format: writes samples in the formats of other tools.  Shared with the cpuslab command, which has
 * the samples of another process; and safe in a signal handler: no allocation, no lock, no stdio.
 */
#ifndef CPUSLAB_PROFILE_FORMAT_H
#define CPUSLAB_PROFILE_FORMAT_H

#include "profile/profile.h"

enum { PROFILE_MAPPINGS = 512, PROFILE_PATH = 256 };

/* An executable part of a file mapped into the process. */
struct profile_mapping {
	uint64_t start, limit, offset;
	char file[PROFILE_PATH];
	char build_id[2 * 20 + 1]; /* hexadecimal digits; empty where there is none */
};

/* A site's counts as of one moment for all sites: `freed` never exceeds `allocated`. */
struct profile_counts {
	uint64_t allocated, freed;
};

struct profile_dump {
	const struct profile_site *sites;    /* for their stacks only: in a running process counts change */
	const struct profile_counts *counts; /* one per site */
	size_t site_count;
	uint64_t interval;
	int64_t when, duration; /* nanoseconds: since 1970, and of the profile; 0: unknown */
	const char *maps;       /* the text of /proc/PID/maps */
	size_t maps_length;
	/* Reads memory of the process; false where there is none. */
	bool (*read)(void *process, uint64_t address, void *buffer, size_t bytes);
	void *process;
	/* Returns the name of the function at an address, in `text` or in memory that stays. */
	const char *(*name)(void *names, uint64_t address, char *text, size_t bytes);
	void *names;
	void (*put)(void *to, const void *bytes, size_t length);
	void *to;
	/* Room for every frame of every site, and for PROFILE_MAPPINGS. */
	uint64_t *addresses;
	struct profile_mapping *mappings;
};

/* Returns the probability with which objects of a size were watched. */
double profile_probability(uint64_t size, uint64_t interval);
/* Finds the executable mappings in the text of /proc/PID/maps; returns how many. */
size_t profile_find_mappings(const struct profile_dump *dump);

/*
 * Writes pprof's profile.proto, uncompressed.  Counts are those of all objects, not of the samples.
 * Functions have names, for readers that do not open the program's files; mappings do not say so, so that
 * readers that do open them find lines and inlined functions too.
 */
void profile_write_proto(const struct profile_dump *dump);
/* Writes gperftools' text format "heap_v2".  Counts are those of the samples, as its readers expect. */
void profile_write_text(const struct profile_dump *dump);

#endif
