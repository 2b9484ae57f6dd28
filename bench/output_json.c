/* SPDX-License-Identifier: MIT */
/* The complete results, with every sample: `compare` and resumed runs read them back. */
#include "json_string.h"
#include "results.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void print_facts(FILE *to, const char *name, const struct fact *facts, unsigned count)
{
	fprintf(to, "\"%s\": {", name);
	for (unsigned i = 0; i < count; i++) {
		fputs(i ? ", " : "", to);
		json_print_string(to, facts[i].name);
		fputs(": ", to);
		json_print_string(to, facts[i].text);
	}
	fputs("},\n", to);
}

void output_json(const struct results *results, FILE *to)
{
	fputs("{\"format\": \"cpuslab-bench-1\",\n", to);
	print_facts(to, "machine", results->machine, results->machine_count);
	print_facts(to, "allocators", results->peers, results->peer_count);
	print_facts(to, "notes", results->notes, results->note_count);
	print_facts(to, "seconds", results->times, results->time_count);
	fputs("\"series\": [", to);
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		const char *const fields[][2] = {{"group", s->group},
						 {"test", s->test},
						 {"parameter", s->parameter},
						 {"metric", s->metric},
						 {"unit", s->unit},
						 {"allocator", s->peer},
						 {"role", role_names[s->role]},
						 {"better", s->better == BETTER_LOWER ? "lower" : "higher"}};
		fputs(i ? ",\n{" : "\n{", to);
		for (unsigned f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
			fprintf(to, "\"%s\": ", fields[f][0]);
			json_print_string(to, fields[f][1]);
			fputs(", ", to);
		}
		fputs("\"samples\": [", to);
		for (unsigned n = 0; n < s->count; n++)
			fprintf(to, "%s%.9g", n ? ", " : "", isfinite(s->samples[n]) ? s->samples[n] : 0);
		fputs("]}", to);
	}
	fputs("\n]}\n", to);
}

/* ---- reading: a parser of whole JSON, and of it only what we write is kept ---- */

struct reader {
	const char *at;
	bool bad;
};

static char peek(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
	return *r->at;
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c)
		return false;
	r->at++;
	return true;
}

static void expect(struct reader *r, char c)
{
	r->bad |= !take(r, c);
}

/* Cuts longer text to `size`; \u escapes above ASCII become '?', as we write none. */
static void read_string(struct reader *r, char *text, size_t size)
{
	size_t length = 0;
	expect(r, '"');
	while (!r->bad && *r->at != '"') {
		char c = *r->at++;
		if (c == '\0') {
			r->bad = true;
			return;
		}
		if (c == '\\') {
			char digits[5] = "";
			switch (c = *r->at++) {
			case 'n':
				c = '\n';
				break;
			case 't':
				c = '\t';
				break;
			case 'r':
				c = '\r';
				break;
			case 'u':
				for (int i = 0; i < 4 && isxdigit((unsigned char)*r->at); i++)
					digits[i] = *r->at++;
				unsigned long code = strtoul(digits, NULL, 16);
				c = code > 0 && code < 128 ? (char)code : '?';
				break;
			case '\0':
				r->bad = true;
				return;
			default:
				break;
			}
		}
		if (length + 1 < size)
			text[length++] = c;
	}
	if (size > 0)
		text[length] = '\0';
	expect(r, '"');
}

static double read_number(struct reader *r)
{
	char *end;
	peek(r);
	double number = strtod(r->at, &end);
	r->bad |= end == r->at;
	r->at = end;
	return number;
}

/* Skips something that a later version may have added. */
static void skip_value(struct reader *r, unsigned depth)
{
	if (depth > 32 || r->bad) {
		r->bad = true;
		return;
	}
	char open = peek(r), close = open == '{' ? '}' : ']';
	if (open == '"') {
		read_string(r, NULL, 0);
	} else if (open == '{' || open == '[') {
		expect(r, open);
		while (!r->bad && !take(r, close)) {
			if (open == '{') {
				read_string(r, NULL, 0);
				expect(r, ':');
			}
			skip_value(r, depth + 1);
			if (peek(r) != close)
				expect(r, ',');
		}
	} else if (isalpha((unsigned char)open)) {
		while (isalpha((unsigned char)*r->at))
			r->at++;
	} else {
		read_number(r);
	}
}

static void read_facts(struct reader *r, struct fact *facts, unsigned *count, unsigned limit)
{
	expect(r, '{');
	while (!r->bad && !take(r, '}')) {
		struct fact fact;
		read_string(r, fact.name, sizeof(fact.name));
		expect(r, ':');
		read_string(r, fact.text, sizeof(fact.text));
		if (!r->bad)
			results_fact(facts, count, limit, fact.name, fact.text);
		if (peek(r) != '}')
			expect(r, ',');
	}
}

static void read_series(struct reader *r, struct results *results)
{
	struct series s = {0};
	char role[RESULTS_NAME] = "measured", better[RESULTS_NAME] = "lower", key[RESULTS_NAME];
	const struct {
		const char *name;
		char *text;
	} fields[] = {{"group", s.group},   {"test", s.test},  {"parameter", s.parameter},
		      {"metric", s.metric}, {"unit", s.unit},  {"allocator", s.peer},
		      {"role", role},       {"better", better}};
	expect(r, '{');
	while (!r->bad && !take(r, '}')) {
		unsigned f = 0;
		read_string(r, key, sizeof(key));
		expect(r, ':');
		while (f < sizeof(fields) / sizeof(fields[0]) && strcmp(fields[f].name, key) != 0)
			f++;
		if (f < sizeof(fields) / sizeof(fields[0])) {
			read_string(r, fields[f].text, RESULTS_NAME);
		} else if (strcmp(key, "samples") == 0) {
			/* Samples are written last, when everything that names the series is known. */
			enum role which = ROLES - 1;
			while (which > ROLE_MEASURED && strcmp(role, role_names[which]) != 0)
				which--;
			struct cell cell = {
				s.group,     s.test,
				s.parameter, s.metric,
				s.unit,      strcmp(better, "higher") == 0 ? BETTER_HIGHER : BETTER_LOWER};
			expect(r, '[');
			while (!r->bad && !take(r, ']')) {
				double sample = read_number(r);
				if (!r->bad)
					results_add(results, &cell, s.peer, which, sample);
				if (peek(r) != ']')
					expect(r, ',');
			}
		} else {
			skip_value(r, 0);
		}
		if (peek(r) != '}')
			expect(r, ',');
	}
}

static void read_results(struct reader *r, struct results *results)
{
	char key[RESULTS_NAME], format[RESULTS_NAME];
	expect(r, '{');
	while (!r->bad && !take(r, '}')) {
		read_string(r, key, sizeof(key));
		expect(r, ':');
#define LIMIT(array) (sizeof(array) / sizeof((array)[0]))
		if (strcmp(key, "format") == 0) {
			read_string(r, format, sizeof(format));
			r->bad |= strcmp(format, "cpuslab-bench-1") != 0;
		} else if (strcmp(key, "machine") == 0) {
			read_facts(r, results->machine, &results->machine_count, LIMIT(results->machine));
		} else if (strcmp(key, "allocators") == 0) {
			read_facts(r, results->peers, &results->peer_count, LIMIT(results->peers));
		} else if (strcmp(key, "notes") == 0) {
			read_facts(r, results->notes, &results->note_count, LIMIT(results->notes));
		} else if (strcmp(key, "seconds") == 0) {
			read_facts(r, results->times, &results->time_count, LIMIT(results->times));
		} else if (strcmp(key, "series") == 0) {
			expect(r, '[');
			while (!r->bad && !take(r, ']')) {
				read_series(r, results);
				if (peek(r) != ']')
					expect(r, ',');
			}
		} else {
			skip_value(r, 0);
		}
#undef LIMIT
		if (peek(r) != '}')
			expect(r, ',');
	}
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t length = 0;
	if (!file)
		return NULL;
	if (getdelim(&text, &length, '\0', file) < 0) {
		free(text);
		text = NULL;
	}
	fclose(file);
	return text;
}

bool results_load(struct results *results, const char *path)
{
	char *text = read_file(path);
	if (!text) {
		fprintf(stderr, "cpuslab bench: %s: %s\n", path, errno ? strerror(errno) : "empty");
		return false;
	}
	struct reader reader = {.at = text};
	read_results(&reader, results);
	if (reader.bad)
		fprintf(stderr, "cpuslab bench: %s: not results of cpuslab bench (stopped at byte %td)\n",
			path, reader.at - text);
	free(text);
	return !reader.bad;
}
