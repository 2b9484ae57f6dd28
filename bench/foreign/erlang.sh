# processes and messages, with Erlang's own allocators off
# needs: erl
# run: erl +Mea min +S 1:1 -noshell -pa . -s work start -s erlang halt
# several CPUs
cat >work.erl <<'END'
-module(work).
-export([start/0]).
tree(0) -> leaf;
tree(D) -> {tree(D - 1), tree(D - 1)}.
count(leaf) -> 1;
count({L, R}) -> 1 + count(L) + count(R).
worker(Parent, I) ->
	M = maps:from_list([{N * 7919 rem 5003, integer_to_binary(N * I)} || N <- lists:seq(1, 3000)]),
	Parent ! {I, maps:size(M) + count(tree(10)), iolist_to_binary([maps:values(M)])}.
start() ->
	Self = self(),
	Sums = [begin
		[spawn(fun() -> worker(Self, I) end) || I <- lists:seq(1, 40)],
		lists:sum([receive {I, S, B} -> S + byte_size(B) end || I <- lists:seq(1, 40)])
	end || _ <- lists:seq(1, 5)],
	io:format("~w~n", [Sums]).
END
erlc work.erl
