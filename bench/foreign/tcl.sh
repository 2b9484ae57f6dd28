# lists, dictionaries and strings of Tcl
# needs: tclsh
# run: tclsh work.tcl
cat >work.tcl <<'END'
proc tree {d} { if {$d == 0} { return {} }; incr d -1; return [list [tree $d] [tree $d]] }
proc size {t} { set s 1; foreach c $t { incr s [size $c] }; return $s }
set total 0
for {set i 0} {$i < 4} {incr i} { incr total [size [tree 13]] }
for {set i 0} {$i < 150000} {incr i} { dict lappend count w[expr {$i * 7919 % 20011}] $i }
set text {}
foreach w [lsort [dict keys $count]] { append text $w: [join [dict get $count $w] ,] \n }
puts "$total [dict size $count] [string length $text] [llength [split $text ,]] [regsub -all {w(\d)} $text {v\1\1} other]"
END
