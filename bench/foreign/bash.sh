# a larger shell: arrays, and a fork for each command
# needs: bash
# run: bash work.sh
cat >work.sh <<'END'
declare -A count
for ((i = 0; i < 8000; i++)); do count[w$((i * 7919 % 5003))]+=",$i"; done
for ((i = 0; i < 200; i++)); do last=$(echo "${count[w$i]}"); done
text="${count[*]}"
echo "${#count[@]} ${#text} ${text//[^,]/}" | wc -c
END
