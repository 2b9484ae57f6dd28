# a linker: many objects with many symbols
# needs: ld.lld
# run: ld.lld -shared --threads=1 --gc-sections -o /dev/null @objects
awk 'BEGIN { for (i = 0; i < 6000; i++) printf "int symbol_%d_of_file_FILE(int n) { return n * %d; }\nint *data_%d_of_file_FILE[] = {(int *)symbol_%d_of_file_FILE, 0};\n", i, i, i, i }' >template.c
for i in 1 2 3 4 5 6 7 8; do
	sed "s/FILE/$i/g" template.c >file.c
	cc -fPIC -w -ffunction-sections -fdata-sections -c file.c -o "file$i.o"
	echo "file$i.o" >>objects
done
