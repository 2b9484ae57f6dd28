/* SPDX-License-Identifier: MIT */
/*
 * replay: feeds the given files, and all files in given folders, to the fuzz target, where there is no
 * libFuzzer.
 */
#include <ftw.h>

#include "check.h"
#include "environment.h"

static unsigned inputs;

static int replay(const char *path, const struct stat *status, int kind, struct FTW *position)
{
	static uint8_t data[1 << 16];

	(void)status, (void)position;
	if (kind != FTW_F)
		return 0;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, data, sizeof data);

	CHECK(length >= 0, "%s", path);
	close(file);
	/* Tells which input it was. */
	if (getenv("FUZZ_VERBOSE"))
		fprintf(stderr, "%s\n", path);
	LLVMFuzzerTestOneInput(data, (size_t)length);
	inputs++;
	return 0;
}

int main(int argc, char **argv)
{
	check_watchdog(100);
	for (int i = 1; i < argc; i++)
		CHECK(nftw(argv[i], replay, 8, FTW_PHYS) == 0, "%s", argv[i]);
	CHECK(inputs > 0, "no input");
	printf("%u inputs\n", inputs);
	return 0;
}
