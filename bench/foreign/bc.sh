# numbers of thousands of digits
# needs: bc
# run: bc -lq work.bc
cat >work.bc <<'END'
scale = 400
define f(n) { auto r; r = 1; while (n > 1) { r = r * n; n = n - 1 }; return (r) }
a(1) * 4
e(1)
x = f(1200)
s = 0
for (i = 1; i < 400; i++) s = s + x / (i * i + 1) - sqrt(i)
s
quit
END
