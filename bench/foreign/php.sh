# arrays, strings and regular expressions on malloc instead of PHP's own pools
# needs: php
# run: env USE_ZEND_ALLOC=0 php -n work.php
cat >work.php <<'END'
<?php
$count = [];
for ($i = 0; $i < 500000; $i++) {
	$word = 'w' . ($i * 7919 % 20011);
	$count[$word][] = $i;
}
ksort($count);
function tree($depth) { return $depth ? [tree($depth - 1), tree($depth - 1)] : []; }
function size($node) { $sum = 1; foreach ($node as $child) $sum += size($child); return $sum; }
$total = 0;
for ($i = 0; $i < 24; $i++) $total += size(tree(13));
$text = '';
foreach ($count as $word => $list) $text .= "$word:" . implode(',', $list) . "\n";
$lines = preg_split('/[:,\n]/', $text);
$json = json_encode($count);
$back = json_decode($json, true);
echo count($count), ' ', $total, ' ', count($lines), ' ', strlen($json), ' ', count($back), "\n";
END
