#!/bin/bash
# ruby: a heap of pages from posix_memalign that is scanned, compacted and given back; threads, fibers, and children forked by a
# virtual machine that has timer threads of its own.
# shellcheck source=preload.sh
. "$(dirname "$0")/preload.sh"
needs ruby

cat >"$scratch/work.rb" <<'RUBY'
require 'digest'
require 'json'
require 'zlib'

words = (1..20000).map { |i| (0..i % 9).map { |j| (97 + (i * j * 31) % 26).chr }.join }
puts Digest::SHA256.hexdigest(words.tally.sort.map { |word, count| "#{word}:#{count}" }.join(' '))
text = +''
30000.times { |i| text << "line #{i} of text\n" }
puts Digest::MD5.hexdigest(text.gsub(/(\d+) of/) { "<#{$1}>" })
json = JSON.generate((1..3000).map { |i| { id: i, name: "n#{i}", tags: (0..i % 8).map { |tag| "t#{tag}" } } })
5.times { raise unless JSON.generate(JSON.parse(json)) == json }
puts Zlib::Inflate.inflate(Zlib::Deflate.deflate(text)) == text

puts (0...16).map { |k| Thread.new { (1..2000).sum { |i| ("#{k}-#{i}" * (i % 7)).size } } }.map(&:value).inspect
fibers = (1..200).map { |i| Fiber.new { Fiber.yield i; i * 2 } }
puts fibers.sum(&:resume) + fibers.sum(&:resume)

# Pages whose objects die together, and such as keep a few, before each child and compaction.
kept = []
4.times do |round|
  100_000.times { |i| kept[i % 1000] = 'x' * (i % 300) }
  reader, writer = IO.pipe
  child = fork do
    reader.close
    writer.puts words.map(&:upcase).join.size + round
    GC.start
    writer.close
    exit!(0)
  end
  writer.close
  puts reader.read
  Process.wait(child)
  raise unless $?.success?
  GC.start
  GC.compact if GC.respond_to?(:compact)
  puts kept.sum(&:size)
end
puts (3**20000).to_s.size, `echo child`
RUBY

prove_bound ruby -e 'puts 1'
in_both work ruby "$scratch/work.rb"
RUBY_GC_HEAP_GROWTH_FACTOR=1.05
export RUBY_GC_HEAP_GROWTH_FACTOR RUBYOPT=-W0
in_both slow_growth ruby "$scratch/work.rb"
