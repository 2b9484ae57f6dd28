/* SPDX-License-Identifier: MIT */
/*
 * results: everything that was measured, as flat series of samples.
 *
 * A series is one metric of one allocator in one test.  The samples of all allocators in a test are taken in
 * turn, round by round, so that sample i of two series saw the same moments of the machine: ratios are taken
 * pair by pair.
 */
#ifndef CPUSLAB_BENCH_RESULTS_H
#define CPUSLAB_BENCH_RESULTS_H

#include <stdbool.h>
#include <stdio.h>

enum { RESULTS_NAME = 40 };

/*
 * What the samples are.  FLOOR: empty functions called the same way.  PUBLISHED: a figure from a seed.
 * EXACT: follows from a rule, and is the same in every run.
 */
enum role { ROLE_MEASURED, ROLE_FLOOR, ROLE_PUBLISHED, ROLE_EXACT, ROLES };
extern const char *const role_names[ROLES];
enum better { BETTER_LOWER, BETTER_HIGHER };

/* A cell of a table: everything that identifies a series but the allocator. */
struct cell {
	const char *group, *test, *parameter, *metric, *unit;
	enum better better;
};

struct series {
	char group[RESULTS_NAME], test[RESULTS_NAME], parameter[RESULTS_NAME], metric[RESULTS_NAME],
		unit[RESULTS_NAME], peer[RESULTS_NAME];
	enum better better;
	enum role role;
	unsigned count, capacity;
	double *samples;
	unsigned next; /* next series of the same table; 0: the last */
};

/* The series of one group, test and metric: indexes into the array of series, in the order of measuring. */
struct chain {
	unsigned first, last;
};

/* A pair of texts about the machine or an allocator, shown at the top of every report. */
struct fact {
	char name[RESULTS_NAME], text[200];
};

/* The notes that the verdict knows by name (aims.def). */
#define NOTE_NO_DEMOTE "CLDEMOTE"

struct results {
	struct series *series;
	unsigned count, capacity;
	struct chain *chains; /* one per table */
	unsigned chain_count, chain_capacity;
	struct fact machine[24], peers[24]; /* peers: the name, and version and path */
	unsigned machine_count, peer_count;
	struct fact notes[64]; /* warnings and skipped peers */
	unsigned note_count;
	struct fact times[16]; /* by group: seconds taken, over all the runs that it was resumed in */
	unsigned time_count;
};

void results_add(struct results *results, const struct cell *cell, const char *peer, enum role role,
		 double sample);
const struct series *results_find(const struct results *results, const struct cell *cell, const char *peer);

/*
 * Returns whether `peer` has at least `rounds` samples in some metric of this test, so that a resumed run
 * need not repeat it.
 */
bool results_have(const struct results *results, const char *group, const char *test, const char *parameter,
		  const char *peer, unsigned rounds);

/* Removes the samples of a row, in all metrics of its test: everybody's, or one allocator's. */
void results_drop(struct results *results, const char *group, const char *test, const char *parameter);
void results_drop_one(struct results *results, const char *group, const char *test, const char *parameter,
		      const char *peer);
void results_fact(struct fact *facts, unsigned *count, unsigned limit, const char *name, const char *text);
void results_note(struct results *results, const char *name, const char *text);
/* Return the time that a group has taken, and add to it. */
double results_seconds(const struct results *results, const char *group);
void results_add_seconds(struct results *results, const char *group, double seconds);
void results_free(struct results *results);

/* The tables of a report: one for each group, test and metric, in the order of measuring. */
struct table {
	struct cell cell; /* parameter unset */
	const char *parameters[64], *columns[32];
	enum role roles[32];
	unsigned parameter_count, column_count;
};
bool results_table(const struct results *results, unsigned index, struct table *table);
bool results_table_named(const struct results *results, const char *group, const char *test,
			 const char *metric, struct table *table);

/* Returns the index of a column; table.column_count if the table has no such column. */
unsigned table_column(const struct table *table, const char *name);

/* Return the columns of this library and of the system: allocators' or locks'. */
unsigned table_ours(const struct table *table);
unsigned table_system(const struct table *table);
const struct series *table_at(const struct results *results, const struct table *table, unsigned row,
			      unsigned column);

/* ---- the formats: one file each ---- */
void output_table(const struct results *results, FILE *to);
void output_csv(const struct results *results, FILE *to);
void output_json(const struct results *results, FILE *to);
void output_html(const struct results *results, FILE *to);

/* Reads what output_json wrote.  Returns false, with a line on stderr, if it cannot. */
bool results_load(struct results *results, const char *path);

#endif
