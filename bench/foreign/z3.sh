# a solver: many small terms and clauses
# needs: z3
# run: z3 -T:60 work.smt2
awk 'BEGIN {
	n = 14
	print "(set-logic QF_LIA)"
	for (i = 1; i <= n; i++) printf "(declare-const q%d Int)(assert (and (>= q%d 1) (<= q%d %d)))\n", i, i, i, n
	for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
		printf "(assert (and (distinct q%d q%d) (distinct (- q%d q%d) %d) (distinct (- q%d q%d) (- %d))))\n", i, j, i, j, j - i, i, j, j - i
	print "(check-sat)"
	print "(reset)(set-logic QF_BV)"
	for (i = 0; i < 16; i++) printf "(declare-const b%d (_ BitVec 16))\n", i
	for (i = 0; i < 15; i++) printf "(assert (= (bvadd (bvmul b%d b%d) #x%04x) (bvxor b%d b%d)))\n", i, (i + 3) % 16, i * 7919 % 65536, i + 1, (i + 5) % 16
	print "(check-sat)"
}' >work.smt2
