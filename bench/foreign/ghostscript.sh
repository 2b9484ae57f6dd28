# a PostScript interpreter that rasterizes pages
# needs: gs
# run: gs -q -dNOPAUSE -dBATCH -dSAFER -sDEVICE=png16m -r72 -sOutputFile=%stdout work.ps
cat >work.ps <<'END'
%!PS
/Helvetica findfont 9 scalefont setfont
1 1 6 {
	/page exch def
	0 1 60 { /line exch def 20 770 line 12 mul sub moveto
		0 1 12 { /w exch def page line mul w 7919 mul add 20 string cvs show ( ) show } for } for
	1 1 150 { /i exch def newpath i 4 mod 3 div i 7 mod 6 div 0.5 setrgbcolor
		i 37 mul 600 mod i 53 mul 780 mod moveto i 11 mul 600 mod i 91 mul 780 mod i 17 mul 600 mod i 29 mul 780 mod
		i 71 mul 600 mod i 13 mul 780 mod curveto stroke } for
	/d 2000 dict def 0 1 1999 { dup 30 string cvs cvn exch [ 1 2 3 4 ] d 3 1 roll put } for
	showpage
} for
END
