/* SPDX-License-Identifier: MIT */
/*
 * CPUSLAB_DEBUG is understood as the kernel understands slab_debug (Documentation/admin-guide/mm/slab.rst and
 * setup_slub_debug in mm/slub.c).
 */
#include "check.h"

#include "check/request.h"
#include "options/options.h"

enum {
	F = CHECK_CONSISTENCY,
	Z = CHECK_RED_ZONE,
	P = CHECK_POISON,
	U = CHECK_OWNER,
	T = CHECK_TRACE,
	A = CHECK_FAIL,
};

static void expect(const char *string, const char *name, unsigned flags)
{
	check_request_parse(string);
	unsigned found = check_request_flags(name, 0);

	CHECK(found == flags, "'%s' gives %s %#x, not %#x", string, name, found, flags);
}

static void test_flags(void)
{
	expect("", "dentry", 0);
	expect("-", "dentry", 0);
	expect("F", "dentry", F);
	expect("fzput", "dentry", F | Z | P | U | T);
	expect("A", "dentry", A);
	/* Flags before a dash are forgotten. */
	expect("FZ-P", "dentry", P);
	expect("FZP-", "dentry", 0);
	/* Flags that a cache was created with stay. */
	check_request_parse("P");
	CHECK(check_request_flags("dentry", F) == (F | P));
	check_request_parse("-,dentry");
	CHECK(check_request_flags("dentry", F) == F);
}

static void test_order(void)
{
	check_request_parse("FZ");
	CHECK(!check_request_keeps_order());
	check_request_parse("O");
	CHECK(check_request_keeps_order() && check_request_flags("dentry", 0) == 0);
	/* Applies to every cache, whichever block contains it. */
	check_request_parse("FZ;oP,dentry");
	CHECK(check_request_keeps_order());
	check_request_parse("oP,dentry;FZ");
	CHECK(check_request_keeps_order());
}

static void test_names(void)
{
	/* The kernel's documented examples. */
	expect("P,dentry", "dentry", P);
	expect("P,dentry", "dentry2", 0);
	expect("P,dentry", "dentr", 0);
	expect(",dentry", "dentry", CHECK_DEFAULT);
	expect(",dentry", "inode", 0);
	expect("P,kmalloc-*,dentry", "kmalloc-64", P);
	expect("P,kmalloc-*,dentry", "dentry", P);
	expect("P,kmalloc-*,dentry", "kmalloc", 0);
	expect("Z,dentry;U,kmalloc-*", "dentry", Z);
	expect("Z,dentry;U,kmalloc-*", "kmalloc-8", U);
	expect("FZ;-,zs_handle,zspage", "zs_handle", 0);
	expect("FZ;-,zs_handle,zspage", "zspage", 0);
	expect("FZ;-,zs_handle,zspage", "dentry", F | Z);
}

static void test_blocks(void)
{
	/* The first block that names a cache decides. */
	expect("P,dentry;Z,dentry", "dentry", P);
	expect("P,d*;Z,dentry", "dentry", P);
	expect("Z,dentry;P,d*", "dentry", Z);
	/* Of blocks without names the last counts, wherever it stands. */
	expect("P;Z", "dentry", Z);
	expect("U,inode;P", "dentry", P);
	expect("P;U,inode", "inode", U);
	expect("P;U,inode;Z", "dentry", Z);
	/* Empty blocks are ignored. */
	expect(";;P,dentry;;", "dentry", P);
	expect(";;P,dentry;;", "inode", 0);
	expect(";", "dentry", 0);
	/* Only the part before a star counts. */
	expect("P,*", "anything", P);
	expect("P,de*ry", "dense", P);
	expect("P,,dentry", "dentry", P);
}

static void parse_wrong(void *argument)
{
	check_request_parse(argument);
	CHECK(check_request_flags("dentry", 0) == (F | Z));
}

static void parse_wrong_strictly(void *argument)
{
	options.abort_conf = true;
	check_request_parse(argument);
}

static void test_unknown(void)
{
	char text[512];
	int status = check_child(parse_wrong, "FQ Zxx,dentry;q%,inode", text, sizeof text);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "said: %s", text);
	CHECK(strcmp(text, "cpuslab: CPUSLAB_DEBUG: no flag is called 'Q?xq%' (there are F Z P U T A O -); "
			   "skipped\n") == 0,
	      "said: %s", text);
	check_stopped(parse_wrong_strictly, "FX", "abort_conf");
}

int main(void)
{
	check_watchdog(60);
	test_flags();
	test_order();
	test_names();
	test_blocks();
	test_unknown();
	return 0;
}
