# stress-ng's random mallocs, reallocs and frees
# needs: stress-ng
# run: stress-ng --malloc 1 --malloc-bytes 8m --malloc-max 20000 --malloc-ops 20000 --seed 1 --quiet
:
