/* SPDX-License-Identifier: MIT */
#include "page/page.h"

#include "page/layout.h"
#include "page/metadata.h"
#include "page/run.h"

bool page_init(void)
{
	run_init();
	return layout_init();
}

void page_repair(bool orphans)
{
	metadata_repair();
	run_repair(orphans);
	huge_repair();
}
