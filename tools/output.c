/* SPDX-License-Identifier: MIT */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_standard(const char *name)
{
	return !name || strcmp(name, "-") == 0;
}

static bool trouble(const char *command, const char *name, int error)
{
	fprintf(stderr, "%s: %s: %s\n", command, name, strerror(error ? error : EIO));
	return false;
}

static bool may_write(const char *path)
{
	return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
}

bool output_check(const char *command, const char *name)
{
	struct stat file;
	char folder[PATH_MAX];
	const char *slash;

	if (is_standard(name))
		return true;
	if (strlen(name) >= PATH_MAX)
		return trouble(command, name, ENAMETOOLONG);
	if (stat(name, &file) == 0) {
		if (S_ISDIR(file.st_mode))
			return trouble(command, name, EISDIR);
		return may_write(name) || trouble(command, name, errno);
	}
	if (errno != ENOENT)
		return trouble(command, name, errno);
	slash = strrchr(name, '/');
	if (slash && !slash[1])
		return trouble(command, name, EISDIR);
	snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - name + 1) : 1, slash ? name : ".");
	return may_write(folder) || trouble(command, name, errno);
}

/* Opens a temporary file beside `output->file`; returns NULL where that is impossible. */
static FILE *open_beside(struct output *output, mode_t mode)
{
	int length = snprintf(output->temporary, PATH_MAX, "%s.XXXXXX", output->file);
	int descriptor = length < PATH_MAX ? mkostemp(output->temporary, O_CLOEXEC) : -1;
	FILE *to = descriptor < 0 ? NULL : fdopen(descriptor, "w");

	if (to && fchmod(descriptor, mode) == 0)
		return to;
	if (descriptor >= 0)
		unlink(output->temporary);
	if (to)
		fclose(to);
	else if (descriptor >= 0)
		close(descriptor);
	return NULL;
}

/* Opens the file under another name, if a rename can put it in place; else leaves output->to NULL. */
static void begin_beside(struct output *output)
{
	struct stat file;
	sigset_t ends;
	mode_t mask = umask(0);

	umask(mask);
	if (lstat(output->name, &file) == 0) {
		/* In place of what a symbolic link leads to, not of the link. */
		if (!realpath(output->name, output->file) || stat(output->file, &file) != 0 ||
		    !S_ISREG(file.st_mode) || file.st_nlink > 1 || file.st_uid != geteuid() ||
		    !may_write(output->file))
			return;
	} else {
		file.st_mode = 0666 & ~mask;
		snprintf(output->file, PATH_MAX, "%s", output->name);
	}
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ends, &output->before);
	output->to = open_beside(output, file.st_mode & 07777);
	if (!output->to)
		pthread_sigmask(SIG_SETMASK, &output->before, NULL);
}

bool output_begin(struct output *output, const char *command, const char *name)
{
	*output = (struct output){.command = command, .name = name};
	if (is_standard(name)) {
		output->to = stdout;
		return true;
	}
	begin_beside(output);
	if (!output->to) {
		*output->temporary = '\0';
		output->to = fopen(name, "we");
	}
	return output->to || trouble(command, name, errno);
}

bool output_end(struct output *output, bool whole)
{
	/* The command flushes it at its end, and says whether all of it could be written. */
	if (is_standard(output->name))
		return whole;
	bool written = fflush(output->to) == 0 && !ferror(output->to);
	int error = errno;

	if (fclose(output->to) != 0 && written) {
		written = false;
		error = errno;
	}
	if (*output->temporary) {
		if (written && whole && rename(output->temporary, output->file) != 0) {
			written = false;
			error = errno;
		}
		if (!written || !whole)
			unlink(output->temporary);
		pthread_sigmask(SIG_SETMASK, &output->before, NULL);
	}
	if (whole && !written)
		return trouble(output->command, output->name, error);
	return whole;
}
