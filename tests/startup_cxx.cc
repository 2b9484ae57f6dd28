/* SPDX-License-Identifier: MIT */
/*
 * startup_cxx: C++ objects whose constructors and destructors allocate where the language runs them: statics
 * before and after main, thread_local objects at thread exit, exceptions in flight.
 */
#include "check.h"

#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<unsigned long> constructed, destroyed;

/* Allocates when it is made, used and destroyed. */
class hoard
{
	std::vector<std::string> strings;
	std::map<int, std::unique_ptr<int[]>> blocks;

      public:
	hoard()
	{
		constructed++;
		for (int i = 0; i < 50; i++)
			add(i);
	}

	void add(int i)
	{
		strings.push_back(
			std::string(static_cast<std::size_t>(i % 300) + 10, static_cast<char>('a' + i % 26)));
		blocks[i] = std::make_unique<int[]>(static_cast<std::size_t>(i) * 7 + 1);
		blocks[i][0] = i;
	}

	void verify() const
	{
		for (std::size_t i = 0; i < strings.size(); i++)
			CHECK(strings[i].find_first_not_of(strings[i][0]) == std::string::npos);
		for (const auto &block : blocks)
			CHECK(block.second[0] == block.first);
	}

	~hoard()
	{
		verify();
		std::vector<std::string> reversed(strings.rbegin(), strings.rend());
		add(1000);
		CHECK(reversed.size() + 1 == strings.size());
		destroyed++;
	}
};

static hoard before_main;
static thread_local hoard of_thread;
static thread_local std::unique_ptr<hoard> of_thread_later;

static void work(int number)
{
	of_thread.add(number);
	of_thread_later = std::make_unique<hoard>();
	try {
		if (number % 3 == 0)
			throw std::runtime_error(std::string(200, 'x'));
		of_thread_later->add(number);
	} catch (const std::exception &exception) {
		CHECK(std::string(exception.what()) == std::string(200, 'x'));
	}
	of_thread.verify();
}

int main()
{
	check_watchdog(60);
	CHECK(constructed == 1);
	before_main.add(5);
	for (unsigned long round = check_rounds(200, 5000, 5); round; round--) {
		std::vector<std::thread> threads;
		for (int i = 0; i < 6; i++)
			threads.emplace_back(work, i);
		for (auto &thread : threads)
			thread.join();
	}
	CHECK(constructed == destroyed + 1, "%lu constructed, %lu destroyed", constructed.load(),
	      destroyed.load());
	work(1); /* destroyed after main, with the statics */
	printf("%s: done\n", check_mode());
	return 0;
}
