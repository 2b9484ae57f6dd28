# names in sources
# needs: ctags
# run: ctags --options=NONE -f - --sort=yes --fields=+neKS --extras=+q -R work
mkdir work
awk 'BEGIN { for (f = 0; f < 60; f++) for (i = 0; i < 400; i++) printf "struct s%d_%d { int a%d; char *b; };\nstatic int f%d_%d(struct s%d_%d *s, int n) { return s->a%d + n; }\n#define M%d_%d(x) ((x) * %d)\n", f, i, i, f, i, f, i, i, f, i, i > ("work/f" f ".c") }'
