# hashes, strings and objects that Ruby's collector gives back
# needs: ruby
# run: ruby --disable-gems work.rb
cat >work.rb <<'END'
words = (0...60000).map { |i| "w#{i * 7919 % 5003}" }
count = Hash.new(0)
words.each { |w| count[w] += 1 }
Node = Struct.new(:left, :right)
def tree(depth) = depth.zero? ? Node.new : Node.new(tree(depth - 1), tree(depth - 1))
def size(node) = node ? 1 + size(node.left) + size(node.right) : 0
total = 0
12.times { total += size(tree(13)) }
text = words.each_slice(7).map { |s| s.join(",") }.join("\n")
rows = text.lines.map { |l| l.chomp.split(",").map(&:to_sym) }
parts = (0...200).map { |i| text[i * 300, 20000].gsub(/w(\d)/) { "v" + $1 * 3 } }
puts total, count.size, rows.size, parts.sum(&:size)
END
