# a compressor with tables of megabytes
# needs: zstd
# run: zstd -q -c -12 --single-thread work.txt
awk 'BEGIN { for (i = 0; i < 120000; i++) printf "line %d word%d and %d more %d\n", i, i * 7919 % 5003, i * 31 % 997, i * 104729 % 65537 }' >work.txt
