# style sheets with loops and maps
# needs: sassc
# run: sassc work.scss
cat >work.scss <<'END'
@function depth($n) { @if $n == 0 { @return 1; } @return depth($n - 1) + depth(max($n - 2, 0)); }
@mixin box($i) { .box-#{$i} { width: percentage($i / 500); color: mix(red, blue, $i % 100); &:hover { margin: #{$i}px auto; .in & { top: depth(4) * 1px; } } } }
@for $i from 1 through 1500 { @include box($i); }
@each $k, $v in (a: 1, b: 2, c: 3) { @for $j from 1 through 200 { .#{$k}-#{$j} { @extend .box-#{$v}; padding: $j * $v + px; } } }
END
