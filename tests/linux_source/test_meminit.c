/* SPDX-License-Identifier: MIT */
/* Runs lib/test_meminit.c of a kernel: whatever is allocated reads as zero, as with init_on_alloc there. */
int run_test_meminit(void);

int main(void)
{
	return run_test_meminit();
}
