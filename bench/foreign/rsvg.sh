# a vector image drawn by librsvg and cairo
# needs: rsvg-convert
# run: rsvg-convert -w 500 work.svg
awk 'BEGIN { print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"500\" height=\"500\">"
	for (i = 0; i < 1500; i++) printf "<g transform=\"rotate(%d 250 250)\"><path d=\"M%d %d C %d %d %d %d %d %d z\" fill=\"#%06x\" stroke=\"black\" opacity=\"0.5\"/></g>\n", i % 360, i * 37 % 500, i * 53 % 500, i * 11 % 500, i * 91 % 500, i * 17 % 500, i * 29 % 500, i * 71 % 500, i * 13 % 500, i * 7919 % 16777216
	print "</svg>" }' >work.svg
