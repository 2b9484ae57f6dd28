/* SPDX-License-Identifier: MIT */
#include "results.h"

#include <stdlib.h>
#include <string.h>

const char *const role_names[ROLES] = {"measured", "floor", "published", "exact"};

static void copy_name(char to[static RESULTS_NAME], const char *from)
{
	snprintf(to, RESULTS_NAME, "%s", from);
}

static bool same_table(const struct series *s, const struct cell *cell)
{
	return strcmp(s->metric, cell->metric) == 0 && strcmp(s->test, cell->test) == 0 &&
	       strcmp(s->group, cell->group) == 0;
}

static struct chain *chain_of(const struct results *results, const struct cell *cell)
{
	for (unsigned i = 0; i < results->chain_count; i++)
		if (same_table(&results->series[results->chains[i].first], cell))
			return &results->chains[i];
	return NULL;
}

static struct series *next_in_table(const struct results *results, const struct series *s)
{
	return s->next ? &results->series[s->next] : NULL;
}

static struct series *find(const struct results *results, const struct cell *cell, const char *peer)
{
	const struct chain *chain = chain_of(results, cell);
	struct series *s = chain ? &results->series[chain->first] : NULL;
	while (s && (strcmp(s->parameter, cell->parameter) != 0 || strcmp(s->peer, peer) != 0))
		s = next_in_table(results, s);
	return s;
}

const struct series *results_find(const struct results *results, const struct cell *cell, const char *peer)
{
	return find(results, cell, peer);
}

static void *grow(void *array, unsigned *capacity, size_t element)
{
	*capacity = *capacity ? 2 * *capacity : 16;
	array = realloc(array, *capacity * element);
	if (!array) {
		perror("cpuslab bench");
		exit(1);
	}
	return array;
}

/* Links a series, the last of the array so far, to the end of its table's chain. */
static void link_up(struct results *results, unsigned place)
{
	struct series *s = &results->series[place];
	struct cell cell = {.group = s->group, .test = s->test, .metric = s->metric};
	struct chain *chain = chain_of(results, &cell);
	s->next = 0;
	if (chain) {
		results->series[chain->last].next = place;
		chain->last = place;
		return;
	}
	if (results->chain_count == results->chain_capacity)
		results->chains = grow(results->chains, &results->chain_capacity, sizeof(*results->chains));
	results->chains[results->chain_count++] = (struct chain){place, place};
}

static struct series *append(struct results *results, const struct cell *cell, const char *peer,
			     enum role role)
{
	if (results->count == results->capacity)
		results->series = grow(results->series, &results->capacity, sizeof(*results->series));
	struct series *s = &results->series[results->count++];
	*s = (struct series){.better = cell->better, .role = role};
	copy_name(s->group, cell->group);
	copy_name(s->test, cell->test);
	copy_name(s->parameter, cell->parameter);
	copy_name(s->metric, cell->metric);
	copy_name(s->unit, cell->unit);
	copy_name(s->peer, peer);
	link_up(results, results->count - 1);
	return s;
}

void results_add(struct results *results, const struct cell *cell, const char *peer, enum role role,
		 double sample)
{
	struct series *s = find(results, cell, peer);
	if (!s)
		s = append(results, cell, peer, role);
	if (s->count == s->capacity)
		s->samples = grow(s->samples, &s->capacity, sizeof(*s->samples));
	s->samples[s->count++] = sample;
}

static bool in_test(const struct series *s, const char *group, const char *test, const char *parameter)
{
	return strcmp(s->group, group) == 0 && strcmp(s->test, test) == 0 &&
	       strcmp(s->parameter, parameter) == 0;
}

bool results_have(const struct results *results, const char *group, const char *test, const char *parameter,
		  const char *peer, unsigned rounds)
{
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		if (s->count >= rounds && strcmp(s->peer, peer) == 0 && in_test(s, group, test, parameter))
			return true;
	}
	return false;
}

void results_drop(struct results *results, const char *group, const char *test, const char *parameter)
{
	results_drop_one(results, group, test, parameter, NULL);
}

void results_drop_one(struct results *results, const char *group, const char *test, const char *parameter,
		      const char *peer)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		if (in_test(s, group, test, parameter) && (!peer || strcmp(s->peer, peer) == 0))
			free(s->samples);
		else
			results->series[kept++] = results->series[i];
	}
	results->count = kept;
	results->chain_count = 0;
	for (unsigned i = 0; i < kept; i++)
		link_up(results, i);
}

void results_fact(struct fact *facts, unsigned *count, unsigned limit, const char *name, const char *text)
{
	unsigned i = 0;
	while (i < *count && strcmp(facts[i].name, name) != 0)
		i++;
	if (i == limit)
		return;
	if (i == *count)
		++*count;
	copy_name(facts[i].name, name);
	snprintf(facts[i].text, sizeof(facts[i].text), "%s", text);
}

void results_note(struct results *results, const char *name, const char *text)
{
	results_fact(results->notes, &results->note_count, sizeof(results->notes) / sizeof(results->notes[0]),
		     name, text);
}

double results_seconds(const struct results *results, const char *group)
{
	for (unsigned i = 0; i < results->time_count; i++)
		if (strcmp(results->times[i].name, group) == 0)
			return strtod(results->times[i].text, NULL);
	return 0;
}

void results_add_seconds(struct results *results, const char *group, double seconds)
{
	char text[32];
	snprintf(text, sizeof(text), "%.1f", results_seconds(results, group) + seconds);
	results_fact(results->times, &results->time_count, sizeof(results->times) / sizeof(results->times[0]),
		     group, text);
}

void results_free(struct results *results)
{
	for (unsigned i = 0; i < results->count; i++)
		free(results->series[i].samples);
	free(results->series);
	free(results->chains);
	*results = (struct results){0};
}

static void add_once(const char **names, unsigned *count, unsigned limit, const char *name)
{
	for (unsigned i = 0; i < *count; i++)
		if (strcmp(names[i], name) == 0)
			return;
	if (*count < limit)
		names[(*count)++] = name;
}

bool results_table(const struct results *results, unsigned index, struct table *table)
{
	if (index >= results->chain_count)
		return false;
	const struct series *s = &results->series[results->chains[index].first];
	*table = (struct table){.cell = {s->group, s->test, "", s->metric, s->unit, s->better}};
	for (; s; s = next_in_table(results, s)) {
		add_once(table->parameters, &table->parameter_count, 64, s->parameter);
		unsigned columns = table->column_count;
		add_once(table->columns, &table->column_count, 32, s->peer);
		if (table->column_count > columns)
			table->roles[columns] = s->role;
	}
	return true;
}

bool results_table_named(const struct results *results, const char *group, const char *test,
			 const char *metric, struct table *table)
{
	for (unsigned i = 0; results_table(results, i, table); i++)
		if (strcmp(table->cell.group, group) == 0 && strcmp(table->cell.test, test) == 0 &&
		    strcmp(table->cell.metric, metric) == 0)
			return true;
	return false;
}

unsigned table_column(const struct table *table, const char *name)
{
	unsigned column = 0;
	while (column < table->column_count && strcmp(table->columns[column], name) != 0)
		column++;
	return column;
}

static unsigned first_column(const struct table *table, const char *const names[static 3])
{
	for (unsigned i = 0; i < 3; i++)
		if (table_column(table, names[i]) < table->column_count)
			return table_column(table, names[i]);
	return table->column_count;
}

unsigned table_ours(const struct table *table)
{
	return first_column(table, (const char *const[]){"cpuslab", "pagelock", "spinlock", "rseq", "after"});
}

unsigned table_system(const struct table *table)
{
	return first_column(table, (const char *const[]){"glibc", "pthread_mutex", "pthread_spin"});
}

const struct series *table_at(const struct results *results, const struct table *table, unsigned row,
			      unsigned column)
{
	struct cell cell = table->cell;
	cell.parameter = table->parameters[row];
	return results_find(results, &cell, table->columns[column]);
}
