/* SPDX-License-Identifier: MIT */
#ifndef CPUSLAB_BENCH_PAGE_STYLE_H
#define CPUSLAB_BENCH_PAGE_STYLE_H

/* page.css, converted to a C string when the build is configured. */
extern const char page_style[];

#endif
