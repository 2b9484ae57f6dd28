# JSON parsed, grouped and written
# needs: jq
# run: jq -c -f work.jq work.json
awk 'BEGIN { print "["; for (i = 0; i < 40000; i++) printf "%s{\"id\":%d,\"name\":\"w%d\",\"tags\":[\"a%d\",\"b%d\"],\"n\":%d.5}\n", i ? "," : "", i, i * 7919 % 5003, i % 7, i % 11, i % 997; print "]" }' >work.json
echo 'group_by(.name) | map({name: .[0].name, n: (map(.n) | add), tags: (map(.tags[]) | unique)}) | sort_by(.n) | .[]' >work.jq
