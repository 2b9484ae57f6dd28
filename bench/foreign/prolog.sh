# backtracking, an indexed database and atoms, by SWI-Prolog
# needs: swipl
# run: swipl -q -f work.pl -t halt
cat >work.pl <<'END'
queens(N, Q) :- numlist(1, N, L), select_all(L, [], Q).
select_all([], Q, Q).
select_all(L, P, Q) :- select(X, L, R), safe(X, 1, P), select_all(R, [X|P], Q).
safe(_, _, []).
safe(X, D, [Y|T]) :- abs(X - Y) =\= D, D1 is D + 1, safe(X, D1, T).
:- dynamic fact/3.
fill :- forall(between(1, 60000, I), (J is I * 7919 mod 5003, atom_concat(w, J, A), assertz(fact(A, I, [J, I])))).
:- initialization((findall(Q, queens(8, Q), L), length(L, N), fill, aggregate_all(count, fact(w17, _, _), C),
	retractall(fact(_, _, [_|[_]])), findall(S, (between(1, 30000, I), format(atom(S), "t~w", [I])), T), msort(T, U),
	length(U, M), format("~w ~w ~w~n", [N, C, M]))).
END
