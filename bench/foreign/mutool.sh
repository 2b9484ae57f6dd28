# pages of a PDF drawn by MuPDF
# needs: mutool
# run: mutool draw -q -F pnm -r 60 -o - work.pdf 1-25
gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=pdfwrite -sOutputFile=work.pdf - <<'END'
%!PS
/Times-Roman findfont 9 scalefont setfont
1 1 25 { /page exch def
	0 1 62 { /line exch def 20 770 line 12 mul sub moveto
		0 1 15 { /w exch def page line mul w 7919 mul add 20 string cvs show ( word ) show } for } for
	1 1 80 { /i exch def newpath i 37 mul 600 mod i 53 mul 780 mod moveto i 11 mul 600 mod i 91 mul 780 mod i 17 mul 600 mod
		i 29 mul 780 mod i 71 mul 600 mod i 13 mul 780 mod curveto stroke } for
	showpage } for
END
