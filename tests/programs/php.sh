#!/bin/bash
# php: its extensions, which it opens with RTLD_DEEPBIND; strings, arrays, regular expressions and zlib with zend's own
# memory and with malloc alone; children.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs php

cat >"$scratch/work.php" <<'PHP'
<?php
$count = [];
for ($i = 0; $i < 60000; $i++) {
	$word = 'w' . ($i * 7919 % 10007);
	$count[$word] = ($count[$word] ?? 0) + 1;
}
ksort($count);
echo md5(json_encode($count)), ' ', md5(serialize(json_decode(json_encode($count)))), "\n";

$text = '';
for ($i = 0; $i < 60000; $i++)
	$text .= "line $i\n";
echo md5(preg_replace('/(\d)(\d)/', '$2$1', $text)), ' ', strlen(gzuncompress(gzcompress($text))), "\n";

class Node { public $left, $right; }
function tree($depth) {
	$node = new Node;
	if ($depth) {
		$node->left = tree($depth - 1);
		$node->right = tree($depth - 1);
	}
	return $node;
}
for ($i = 0; $i < 3; $i++)
	echo strlen(serialize(tree(12))), "\n";

$live = [];
for ($i = 0; $i < 60000; $i++)
	$live[$i % 777] = str_repeat('q', $i * 31 % 5000);
echo array_sum(array_map('strlen', $live)), "\n";

if (extension_loaded('fileinfo'))
	echo (new finfo(FILEINFO_MIME_TYPE))->file(__FILE__), "\n";
if (extension_loaded('iconv'))
	echo md5(iconv('UTF-8', 'UTF-16LE', $text)), "\n";
for ($i = 0; $i < 3; $i++)
	echo shell_exec("echo child $i");
PHP

prove_bound php -r 'echo 1;'
extensions=$(preloaded php -r 'echo file_get_contents("/proc/self/maps");' | grep -c 'r-xp.*/php/.*\.so$' || true)
echo "  opened: $extensions extensions"
in_both zend php -d memory_limit=-1 "$scratch/work.php"
export USE_ZEND_ALLOC=0
in_both malloc php -d memory_limit=-1 "$scratch/work.php"
