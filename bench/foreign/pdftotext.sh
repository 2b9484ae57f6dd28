# the text of a long PDF, by Poppler
# needs: pdftotext
# run: pdftotext -layout work.pdf -
gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=pdfwrite -sOutputFile=work.pdf - <<'END'
%!PS
/Times-Roman findfont 9 scalefont setfont
1 1 120 { /page exch def
	0 1 62 { /line exch def 20 770 line 12 mul sub moveto
		0 1 15 { /w exch def page line mul w 7919 mul add 20 string cvs show ( word ) show } for } for
	showpage } for
END
