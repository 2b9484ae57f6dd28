# a shell that forks for each command
# needs: dash
# run: dash work.sh
cat >work.sh <<'END'
i=0 sum=0
while [ $i -lt 3000 ]; do
	word=$(echo "w$i")
	sum=$((sum + ${#word}))
	i=$((i + 1))
done
echo $sum
END
