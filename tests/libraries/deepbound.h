/* SPDX-License-Identifier: MIT */
#ifndef CPUSLAB_TESTS_DEEPBOUND_H
#define CPUSLAB_TESTS_DEEPBOUND_H

#include <stddef.h>

/* The plugin's interface, exported as `deepbound`. */
struct deepbound {
	void *(*allocate)(size_t);
	void (*release)(void *);
	void *early; /* allocated by its constructor */
};

/*
 * Opens the plugin by its bare name, from a library whose RUNPATH is the only one that leads to it; NULL if
 * it is not found.
 */
void *deepbound_open(int mode);

#endif
