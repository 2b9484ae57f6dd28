# a graph laid out
# needs: dot
# run: dot -Tplain work.dot
awk 'BEGIN { print "digraph g {"; for (i = 1; i < 130; i++) { printf "n%d -> n%d; n%d -> n%d;\n", int(i / 2), i, i * 7919 % 97, i } print "}" }' >work.dot
