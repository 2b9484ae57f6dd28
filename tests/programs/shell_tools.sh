#!/bin/bash
# bash, perl, awk, the coreutils, xz and gdb: small programs by the hundred, pipelines, and each one's own way of allocating.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs perl xz sort

cat >"$scratch/shell.sh" <<'SHELL'
set -eu
declare -A words
for i in $(seq 3000); do
	words["key $((i * 7919 % 1009))"]+="$i,"
done
for key in "${!words[@]}"; do
	printf '%s=%s\n' "$key" "${words[$key]}"
done | sort | cksum
for i in $(seq 60); do
	(echo "$i" | cat | tr 0-9 a-j)
done | paste -sd, -
seq 200000 | sort --parallel=4 -S 4M -R --random-source=<(yes) | sort -n --parallel=4 -S 4M | cksum
seq 200000 | awk '{ seen[$1 % 5003] = seen[$1 % 5003] " " $1 } END { for (i = 0; i < 5003; i++) print i, seen[i] }' | cksum
seq 300000 | xz -T2 --block-size=256KiB -3 -c | xz -dc | cksum
seq 100000 | gzip -9 | gzip -dc | cksum
mkdir -p tree/{a,b,c}/{d,e,f}
seq 1000 | split -l 10 - tree/a/d/part.
find tree -type f | sort | xargs -P 2 -n 20 cat | wc -l
tar -cf - --sort=name --mtime=@0 --owner=0 --group=0 tree | cksum
du -a tree | wc -l
seq 5000 | sed -E 's/([0-9])([0-9])/\2\1/g; /77/d' | grep -cE '(12|34)+'
diff <(seq 10000) <(seq 10000 | sed 's/5$/five/') | wc -l || true
date -d @0 +%F
SHELL

cat >"$scratch/work.pl" <<'PERL'
use strict; use warnings;
my (%count, @list);
for my $i (1 .. 60000) {
	my $word = join '', map { chr(97 + ($i * $_ * 31) % 26) } 1 .. 1 + $i % 9;
	$count{$word}++;
	push @{$list[$i % 500]}, { word => $word, at => $i };
}
my $text = join ' ', map { "$_:$count{$_}" } sort keys %count;
(my $changed = $text) =~ s/(\w+):(\d+)/$2-$1/g;
print length($text), ' ', unpack('%32C*', $changed), "\n";
my @order = sort { $a->{word} cmp $b->{word} || $a->{at} <=> $b->{at} } map { @$_ } grep { defined } @list;
print scalar(@order), ' ', $order[0]{word}, ' ', $order[-1]{at}, "\n";
for my $child (1 .. 8) {
	my $pid = open(my $pipe, '-|') // die;
	if (!$pid) { my @copy = map { { %$_ } } @order[0 .. 5000]; print scalar(@copy) + $child, "\n"; exit 0 }
	print while <$pipe>;
	close $pipe or die "child $child: $?";
}
PERL

prove_bound bash -c 'ls / | sort | cat'
prove_bound perl -e 'print "x" x 10'
in_both shell bash "$scratch/shell.sh"
in_both perl perl "$scratch/work.pl"
