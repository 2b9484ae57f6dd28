# tokens and values of C code, checked
# needs: cppcheck
# run: cppcheck -q --enable=all --template={line}:{id} work.c
awk 'BEGIN {
	print "struct s { struct s *next; int v[4]; };"
	for (i = 0; i < 160; i++) {
		printf "static int f%d(struct s *s, int n)\n{\n\tint sum = n, unused%d;\n", i, i
		printf "\tfor (int i = 0; i < n; i++)\n\t\tfor (struct s *p = s; p; p = p->next)\n\t\t\tif (p->v[i & 3] > %d)\n\t\t\t\tsum += p->v[%d] * i;\n\t\t\telse if (sum == n)\n\t\t\t\tsum ^= %d;\n\treturn sum;\n}\n", i, i % 4, i
	}
}' >work.c
