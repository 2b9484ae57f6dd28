# hashes of arrays, sorting, joining and substitution
# needs: perl
# run: env PERL_HASH_SEED=0 perl work.pl
cat >work.pl <<'END'
use strict; use warnings;
my %count;
push @{$count{'w' . ($_ * 7919 % 20011)}}, $_ for 0 .. 499999;
sub tree { my $d = shift; return $d ? [tree($d - 1), tree($d - 1)] : [] }
sub size { my $s = 1; $s += size($_) for @{$_[0]}; return $s }
my $total = 0;
$total += size(tree(13)) for 1 .. 15;
my $text = join "\n", map { "$_:" . join ',', @{$count{$_}} } sort keys %count;
my @parts = split /[:,\n]/, $text;
(my $other = $text) =~ s/w(\d)/"v" . $1 x 3/ge;
print scalar(keys %count), " $total ", scalar(@parts), " ", length($other), "\n";
END
