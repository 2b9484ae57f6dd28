# stress-ng's trees of many kinds, node by node
# needs: stress-ng
# run: stress-ng --tree 1 --tree-size 100000 --tree-ops 4 --seed 1 --quiet
:
