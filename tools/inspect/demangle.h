/* SPDX-License-Identifier: MIT */
/* inspect/demangle: the names of C++ and Rust functions (both of Rust's manglings) as in their sources. */
#ifndef CPUSLAB_TOOLS_DEMANGLE_H
#define CPUSLAB_TOOLS_DEMANGLE_H

/* Returns the name in memory from malloc: demangled where it is mangled, and this command can. */
char *demangle(const char *name);
/* What this command lacks for it, or NULL. */
const char *demangle_lacks(void);

#endif
