/* SPDX-License-Identifier: MIT */
/*
 * profile/format: samples as others' tools read them.  Shared with the cpuslab command, which has the samples
 * of another process; and safe in a signal handler: no allocation, no lock, no stdio.
 */
#ifndef CPUSLAB_PROFILE_FORMAT_H
#define CPUSLAB_PROFILE_FORMAT_H

#include "profile/profile.h"

enum { PROFILE_MAPPINGS = 512, PROFILE_PATH = 256 };

/* An executable part of a file in the process. */
struct profile_mapping {
	uint64_t start, limit, offset;
	char file[PROFILE_PATH];
	char build_id[2 * 20 + 1]; /* in hexadecimal digits; empty where there is none */
};

/* What a site's counts were when all were read: `freed` is no more than `allocated`. */
struct profile_counts {
	uint64_t allocated, freed;
};

struct profile_dump {
	const struct profile_site *sites;    /* for their stacks: in a process that runs, counts change */
	const struct profile_counts *counts; /* one for each site */
	size_t site_count;
	uint64_t interval;
	int64_t when, duration; /* nanoseconds, since 1970 and of the profile; 0: not known */
	const char *maps;       /* the text of /proc/PID/maps */
	size_t maps_length;
	/* Reads memory of the process; false where there is none. */
	bool (*read)(void *process, uint64_t address, void *buffer, size_t bytes);
	void *process;
	/* The name of the function at an address, in `text` or where it stays. */
	const char *(*name)(void *names, uint64_t address, char *text, size_t bytes);
	void *names;
	void (*put)(void *to, const void *bytes, size_t length);
	void *to;
	/* Room for every frame of every site, and for PROFILE_MAPPINGS. */
	uint64_t *addresses;
	struct profile_mapping *mappings;
};

/* The probability with which objects of a size were watched. */
double profile_probability(uint64_t size, uint64_t interval);
/* Finds the executable mappings, from the text of /proc/PID/maps; returns how many. */
size_t profile_find_mappings(const struct profile_dump *dump);

/*
 * pprof's profile.proto, not compressed.  Counts are those of all objects, not of the samples.  Functions
 * have names, for readers that do not look into a program's files; and mappings do not say so, so that those
 * that do find lines and inlined functions too.
 */
void profile_write_proto(const struct profile_dump *dump);
/* The text of gperftools, "heap_v2".  Counts are those of the samples, as its readers expect. */
void profile_write_text(const struct profile_dump *dump);

#endif
