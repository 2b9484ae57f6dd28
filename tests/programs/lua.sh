#!/bin/bash
# lua: every block, from the first to the last, comes from realloc, and goes back by free; trees, tables that grow one by one,
# strings, coroutines, and a collector that is made to run all the time.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
lua=$(command -v lua5.4 || command -v lua5.3 || command -v lua || true)
needs "${lua:-lua}"

cat >"$scratch/work.lua" <<'LUA'
if arg[1] == 'generational' and _VERSION == 'Lua 5.4' then
	collectgarbage('generational')
elseif arg[1] == 'eager' then
	collectgarbage('setpause', 100)
end
local rows = {}
for i = 1, 100000 do
	rows[i % 5000 + 1] = { i, tostring(i), { a = i, b = 'x' .. i } }
end
print(#rows, rows[77][3].b)
local parts = {}
for i = 1, 50000 do
	parts[#parts + 1] = ('%d:%s'):format(i, ('y'):rep(i % 40))
end
local text, sum = table.concat(parts, ','), 0
for digits, ys in text:gmatch('(%d+):(y*)') do
	sum = sum + #digits * #ys
end
print(#text, sum, #text:gsub('y+', 'z'))
local function tree(depth)
	return depth == 0 and {} or { tree(depth - 1), tree(depth - 1) }
end
local function count(node)
	return node[1] and 1 + count(node[1]) + count(node[2]) or 1
end
for _ = 1, 3 do
	print(count(tree(14)))
end
local routines = {}
for i = 1, 5000 do
	routines[i] = coroutine.wrap(function(a) return coroutine.yield(a * 2) + 1 end)
	routines[i](i)
end
local total = 0
for i = 1, 5000 do
	total = total + routines[i](i)
end
print(total)
local keys, distinct = {}, 0
for i = 1, 60000 do
	keys['k' .. i * 7919 % 20011] = i
end
for key in pairs(keys) do
	distinct = distinct + 1
	keys[key] = nil
end
print(distinct, next(keys))
local growing = ''
for i = 1, 3000 do
	growing = growing .. i
end
print(#growing)
LUA

prove_bound "$lua" -e 'print(1)'
for way in usual eager generational; do
	in_both "$way" "$lua" "$scratch/work.lua" "$way"
done
