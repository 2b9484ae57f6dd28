/* SPDX-License-Identifier: MIT */
#include "inspect/settings.h"

#include "options/options.h"

#include <string.h>

/* Values lie anywhere below the last offset that one byte can tell, and have a word at most. */
enum { VALUES = UINT8_MAX + 1 + sizeof(uint64_t) };

_Static_assert((int)OPTION_NAME < SETTING_NAME && (int)OPTION_TEXT == SETTING_VALUE, "names and values fit");

bool settings_read(const struct target *target, struct settings *settings)
{
	const struct target_fields *at = &target->at;
	struct option_entry entries[SETTINGS_MOST];
	size_t count = at->options_table.size / sizeof(entries[0]);
	char values[VALUES] = {0};

	if (!count || count > SETTINGS_MOST || at->options_table.size % sizeof(entries[0]) ||
	    at->options.size > UINT8_MAX ||
	    !target_read(target, at->options_table.value, entries, count * sizeof(entries[0])) ||
	    !target_read(target, at->options.value, values, at->options.size))
		return false;
	settings->count = count;
	for (size_t i = 0; i < count; i++) {
		struct setting *setting = &settings->each[i];

		memcpy(setting->name, entries[i].name, OPTION_NAME);
		setting->name[OPTION_NAME] = '\0';
		target_clean_name(setting->name);
		options_print(setting->value, &entries[i], values);
		setting->changes = entries[i].changes;
	}
	return true;
}

void settings_print(FILE *to, const struct settings *settings)
{
	for (size_t i = 0; i < settings->count; i++)
		fprintf(to, "%s:%s%s\n", settings->each[i].name, settings->each[i].value,
			settings->each[i].changes ? "" : "  (fixed at start)");
}
