/* SPDX-License-Identifier: MIT */
/* The results for spreadsheets: one line a series, RFC 4180. */
#include "results.h"

#include "statistics.h"

#include <string.h>

static void print_field(FILE *to, const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, to);
		return;
	}
	fputc('"', to);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', to);
		fputc(*text, to);
	}
	fputc('"', to);
}

void output_csv(const struct results *results, FILE *to)
{
	fputs("group,test,parameter,metric,unit,better,allocator,role,rounds,median,minimum,spread\n", to);
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		const char *const fields[] = {s->group,     s->test,
					      s->parameter, s->metric,
					      s->unit,      s->better == BETTER_LOWER ? "lower" : "higher",
					      s->peer};
		for (unsigned f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
			print_field(to, fields[f]);
			fputc(',', to);
		}
		fprintf(to, "%s,%u,%.9g,%.9g,%.4f\n", role_names[s->role], s->count,
			median_of(s->samples, s->count), minimum_of(s->samples, s->count),
			spread_of(s->samples, s->count));
	}
}
