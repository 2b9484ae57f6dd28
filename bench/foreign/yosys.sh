# a hardware design, parsed and mapped
# needs: yosys
# run: yosys -q -Q -T work.ys
awk 'BEGIN {
	for (i = 0; i < 8; i++) {
		printf "module m%d(input clk, input [15:0] a, b, output reg [15:0] q);\n", i
		printf "always @(posedge clk) case (a[3:0]) 0: q <= a + b; 1: q <= a * %d; 2: q <= a ^ (b << %d); default: q <= q - b; endcase\nendmodule\n", i + 3, i % 5 + 1
	}
	print "module top(input clk, input [15:0] a, b, output [15:0] q);"
	for (i = 0; i <= 8; i++) printf "wire [15:0] w%d;\n", i
	print "assign w0 = a; assign q = w8;"
	for (i = 0; i < 8; i++) printf "m%d i%d(clk, w%d, b, w%d);\n", i, i, i, i + 1
	print "endmodule"
}' >work.v
echo 'read_verilog work.v; hierarchy -top top; proc; flatten; opt; techmap; opt; tee -o work.txt stat' >work.ys
