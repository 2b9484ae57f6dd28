/* SPDX-License-Identifier: MIT */
/* cpuslab options: the table of src/options/options.def, with the present values from CPUSLAB_OPTIONS. */
#include "commands.h"
#include "options/options.h"

#include <stdio.h>
#include <string.h>

int command_options(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	options_init();
	puts("CPUSLAB_OPTIONS=key:value,key:value   sizes take K, M and G\n");
	struct option_description option;
	for (unsigned i = 0; options_describe(i, &option); i++) {
		printf("%s:%s  (%s%s)\n", option.name, option.initial, option.kind,
		       option.changes ? "; can change while a program runs" : "");
		printf("    %s\n", option.text);
		if (strcmp(option.initial, option.value) != 0)
			printf("    now %s, from the environment\n", option.value);
	}
	puts("\nCPUSLAB_DEBUG=[FZPUTAO-][,name[*]...][;...]   debugging of caches and of malloc's classes\n"
	     "    F checks at each call, Z red zones, P poison, U owners, T trace, A failing allocations,\n"
	     "    O none where an object would need more pages for it, - none; see docs/debugging.md");
	return 0;
}
