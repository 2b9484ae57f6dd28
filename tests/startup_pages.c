/* SPDX-License-Identifier: MIT */
/* startup_pages: on a kernel whose pages are larger than the library's, the first call says so and stops. */
#include "check.h"

#include <dlfcn.h>
#include <sys/auxv.h>

static unsigned long page_bytes;
static bool asked;

unsigned long getauxval(unsigned long type)
{
	asked = true;
	if (type == AT_PAGESZ && page_bytes)
		return page_bytes;
	return ((unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval"))(type);
}

static void use(void *unused)
{
	(void)unused;
	free(malloc(100));
}

static int first_call(unsigned long bytes, char *text, size_t text_size)
{
	page_bytes = bytes;
	return check_child(use, NULL, text, text_size);
}

int main(void)
{
	char text[256];
	if (asked || !check_cpuslab())
		check_skip("the library has started before main, or another malloc serves");
	int status = first_call(65536, text, sizeof text);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "wait status %#x", (unsigned)status);
	CHECK(strstr(text, "pages of 4 KiB"), "%s", text);
	CHECK(WIFEXITED(first_call(4096, text, sizeof text)) && !*text, "%s", text);
	return 0;
}
