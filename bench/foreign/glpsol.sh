# a linear programme of integers
# needs: glpsol
# run: glpsol --math work.mod --tmlim 60 -w work.sol >/dev/null
cat >work.mod <<'END'
param n := 90;
set I := 1..n;
var x{I, I}, binary;
minimize cost: sum{i in I, j in I} ((i * 7919 + j * 104729) mod 97 + 1) * x[i, j];
row{i in I}: sum{j in I} x[i, j] = 1;
col{j in I}: sum{i in I} x[i, j] = 1;
far{i in I}: sum{j in I} j * x[i, j] >= if i > n / 2 then 5 else 1;
solve;
display cost;
end;
END
