# a store of sorted keys: skip lists, blocks and a cache
# needs: c++
# run: ./work
# several CPUs
cat >work.cc <<'END'
#include <leveldb/db.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
int main()
{
	std::system("rm -rf store");
	leveldb::DB *opened;
	leveldb::Options options;
	options.create_if_missing = true;
	if (!leveldb::DB::Open(options, "store", &opened).ok())
		return 1;
	std::unique_ptr<leveldb::DB> db(opened);
	unsigned long sum = 0;
	std::string value;
	char key[32];
	for (int i = 0; i < 150000; i++) {
		std::snprintf(key, sizeof key, "key%08d", i * 7919 % 100003);
		db->Put({}, key, std::string(20 + i * 31 % 200, 'a' + i % 26));
		if (i % 3 == 0 && db->Get({}, key, &value).ok())
			sum += value.size();
	}
	std::unique_ptr<leveldb::Iterator> at(db->NewIterator({}));
	for (at->SeekToFirst(); at->Valid(); at->Next())
		sum += at->key().size() + at->value().size();
	std::printf("%lu\n", sum);
}
END
c++ -O2 work.cc -lleveldb -lpthread -o work
