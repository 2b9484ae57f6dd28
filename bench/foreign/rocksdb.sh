# a store with several threads of its own, each with an arena
# needs: c++
# run: ./work
# several CPUs
cat >work.cc <<'END'
#include <rocksdb/db.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>
int main()
{
	std::system("rm -rf store");
	rocksdb::DB *opened;
	rocksdb::Options options;
	options.create_if_missing = true;
	options.write_buffer_size = 2 << 20;
	options.compression = rocksdb::kNoCompression;
	if (!rocksdb::DB::Open(options, "store", &opened).ok())
		return 1;
	std::unique_ptr<rocksdb::DB> db(opened);
	rocksdb::WriteOptions quick;
	quick.disableWAL = true;
	auto work = [&](int thread) {
		std::string value;
		char key[32];
		for (int i = 0; i < 60000; i++) {
			std::snprintf(key, sizeof key, "key%d%08d", thread, i * 7919 % 50021);
			db->Put(quick, key, std::string(20 + i * 31 % 200, 'a' + i % 26));
			if (i % 3 == 0)
				db->Get({}, key, &value);
		}
	};
	std::vector<std::thread> threads;
	for (int i = 0; i < 2; i++)
		threads.emplace_back(work, i);
	for (auto &t : threads)
		t.join();
	unsigned long sum = 0;
	std::unique_ptr<rocksdb::Iterator> at(db->NewIterator({}));
	for (at->SeekToFirst(); at->Valid(); at->Next())
		sum += at->key().size() + at->value().size();
	std::printf("%lu\n", sum);
}
END
c++ -O2 -std=c++17 work.cc -lrocksdb -lpthread -o work
