// SPDX-License-Identifier: MIT
// What tests/link_modes.sh links in every way.  Each form of allocation comes to the library and does what
// the standards say, in threads and in a forked child too.  Prints the vCPU mode.
#include <cpuslab/cpuslab.h>

#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#define CHECK(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "program.cc:%d: CHECK(%s) failed\n", __LINE__, #condition);          \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static volatile std::size_t hopeless = SIZE_MAX / 4;

static bool is_ours(void *object)
{
	// A compiler that knows malloc may leave out what is only allocated and freed.
	asm volatile("" : "+r"(object));
	return object && cpuslab_object_of(object) == object;
}

struct alignas(64) wide {
	char bytes[192];
};

static void allocate_in_c()
{
	void *object = malloc(100);

	CHECK(is_ours(object));
	memset(object, 1, 100);
	CHECK(is_ours(object = realloc(object, 1000)) && static_cast<char *>(object)[99] == 1);
	free(object);
	CHECK(is_ours(object = calloc(10, 30)) && static_cast<char *>(object)[299] == 0);
	free(object);
	CHECK(is_ours(object = aligned_alloc(256, 512)));
	free(object);
	CHECK(is_ours(object = memalign(64, 100)));
	free(object);
	CHECK(posix_memalign(&object, 128, 100) == 0 && is_ours(object) && malloc_usable_size(object) >= 100);
	free(object);
	CHECK(is_ours(object = strdup("of libc's own")));
	free(object);
}

static void allocate_in_cxx()
{
	auto one = std::make_unique<int>(7);
	auto aligned = std::make_unique<wide[]>(3);
	std::vector<std::string> texts(50, std::string(100, 'x'));

	CHECK(is_ours(one.get()) && is_ours(aligned.get()) && is_ours(texts.data()));
	void *object = ::operator new(50, std::nothrow);

	CHECK(is_ours(object));
	::operator delete(object, std::nothrow);
	CHECK(!is_ours(::operator new(hopeless, std::nothrow)));
	try {
		CHECK(!is_ours(::operator new(hopeless)));
		CHECK(!"no exception");
	} catch (const std::bad_alloc &) {
	}
}

static void throw_from_handler()
{
	throw std::bad_alloc();
}

static void allocate()
{
	allocate_in_c();
	allocate_in_cxx();
}

static void *run(void *)
{
	for (int i = 0; i < 50; i++)
		allocate();
	return nullptr;
}

static void run_threads()
{
	pthread_t threads[4];

	for (auto &thread : threads)
		CHECK(pthread_create(&thread, nullptr, run, nullptr) == 0);
	for (auto &thread : threads)
		CHECK(pthread_join(thread, nullptr) == 0);
}

int main()
{
	int status = -1;

	allocate();
	std::set_new_handler(throw_from_handler);
	allocate_in_cxx();
	std::set_new_handler(nullptr);
	run_threads();
	pid_t child = fork();

	if (child == 0) {
		allocate();
		run_threads();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	puts(cpuslab_vcpu_mode_name());
	return 0;
}
