# the OCaml compiler, on a long module
# needs: ocamlc
# run: ocamlc -c -o big.cmo big.ml
awk 'BEGIN {
	print "type t = Leaf | Node of t * int * t"
	for (i = 0; i < 900; i++) {
		printf "let rec f%d t n = match t with Leaf -> n | Node (l, v, r) when v > %d -> f%d l (n + v * %d)\n", i, i % 7, i, i
		printf "  | Node (l, v, r) -> let g x y = (x * %d, [y; n; v], fun z -> z + x) in let (a, b, h) = g v n in\n", i % 13
		printf "    List.fold_left (fun s e -> s + h e) a b + %s\n", i ? "f" (i - 1) " r n" : "0"
	}
}' >big.ml
