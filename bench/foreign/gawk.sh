# arrays of strings of an interpreter with its own pools for nodes
# needs: gawk
# run: gawk -f work.awk
cat >work.awk <<'END'
BEGIN {
	for (i = 0; i < 600000; i++) {
		word = "w" (i * 7919 % 20011)
		count[word] = count[word] "," i
	}
	n = asorti(count, sorted)
	for (i = 1; i <= n; i++) {
		text = text sorted[i] count[sorted[i]] "\n"
		m += split(count[sorted[i]], parts, ",")
	}
	gsub(/w[0-9]/, "v&", text)
	print n, m, length(text)
}
END
