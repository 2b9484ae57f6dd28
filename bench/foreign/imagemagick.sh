# images of megabytes, filtered one after another
# needs: convert
# run: convert -limit thread 1 -seed 1 -size 900x700 plasma:fractal -blur 0x2 -rotate 15 -resize 60% '(' +clone -negate -emboss 1 ')' -append -depth 8 rgb:-
:
