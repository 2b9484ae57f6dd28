# logic minimized
# needs: berkeley-abc
# run: berkeley-abc -f work.abc
awk 'BEGIN {
	print ".model m"; printf ".inputs"; for (i = 0; i < 32; i++) printf " a%d b%d", i, i; print ""; print ".outputs o"
	for (i = 0; i < 32; i++) for (j = 0; j < 32; j++) { printf ".names a%d b%d p%d_%d\n11 1\n", i, j, i, j }
	last = "p0_0"
	for (i = 0; i < 32; i++) for (j = i ? 0 : 1; j < 32; j++) { printf ".names %s p%d_%d x%d_%d\n%s\n", last, i, j, i, j, (i + j) % 3 ? "01 1\n10 1" : "11 1"; last = "x" i "_" j }
	printf ".names %s o\n1 1\n.end\n", last
}' >work.blif
echo 'read_blif work.blif; strash; dch; balance; rewrite; refactor; rewrite -z; resub; fraig; print_stats' >work.abc
