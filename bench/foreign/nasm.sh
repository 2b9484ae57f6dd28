# an assembler: macros, symbols and long lists
# needs: nasm
# run: nasm -f bin -o work.bin work.asm
awk 'BEGIN { print "bits 64\n%macro step 2\nlabel_%1: mov rax, [rel label_%1 + %2]\nadd rax, %2\njmp label_%1\n%endmacro"; for (i = 0; i < 25000; i++) printf "step %d, %d\n", i, i % 127; for (i = 0; i < 25000; i++) printf "dq label_%d\n", i * 7919 % 25000 }' >work.asm
