# tables, closures and strings of a small interpreter
# needs: lua5.4
# run: lua5.4 work.lua
cat >work.lua <<'END'
local function tree(d) if d == 0 then return {} end return {tree(d - 1), tree(d - 1)} end
local function size(t) local s = 1 for _, c in ipairs(t) do s = s + size(c) end return s end
local total, count = 0, {}
for _ = 1, 14 do total = total + size(tree(13)) end
for i = 0, 299999 do
	local w = "w" .. (i * 7919 % 20011)
	count[w] = count[w] or {}
	count[w][#count[w] + 1] = i
end
local lines = {}
for w, l in pairs(count) do lines[#lines + 1] = w .. ":" .. table.concat(l, ",") end
table.sort(lines)
local text = table.concat(lines, "\n")
local changed = text:gsub("w(%d)", function(d) return "v" .. d:rep(3) end)
print(total, #lines, #text, #changed)
END
