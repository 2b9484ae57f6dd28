/* SPDX-License-Identifier: MIT */
/*
 * vcpu_drain: the words of several vCPUs are emptied after one fence, and no word before the first wanted one
 * is asked about a second time: looking at a word may change the answer of the next look.
 */
#include "two_vcpus.h"

enum { WORDS = 4, WANTED = 2, IDS = 64 };

static unsigned first_number, asked[IDS][WORDS], emptied[IDS][WORDS];

static unsigned id_of(unsigned number, const uintptr_t *word)
{
	unsigned id = 0;
	while (id < IDS && vcpu_word(id, number) != word)
		id++;
	CHECK(id < IDS);
	return id;
}

/* Once it is emptied nobody wants it. */
static bool wants(unsigned number, uintptr_t *word)
{
	unsigned id = id_of(number, word);
	asked[id][number - first_number]++;
	return number - first_number == WANTED && !emptied[id][WANTED];
}

static void empty(unsigned number, uintptr_t *word)
{
	emptied[id_of(number, word)][number - first_number]++;
}

int main(void)
{
	check_watchdog(60);
	free(malloc(1));
	CHECK(vcpu_take_numbers(WORDS, &first_number));
	two_vcpus();
	unsigned areas = 0;
	for (unsigned id = 0; id < IDS; id++)
		areas += vcpu_word(id, first_number) != NULL;
	if (areas < 2)
		check_skip("one vCPU");

	uint64_t fences = vcpu_fences();
	vcpu_drain(first_number, first_number + WORDS, wants, empty);
	fences = vcpu_fences() - fences;
	unsigned drained = 0;
	for (unsigned id = 0; id < IDS; id++) {
		drained += emptied[id][WANTED];
		for (unsigned word = 0; word < WORDS; word++)
			CHECK(emptied[id][word] == (word == WANTED && asked[id][word] > 1));
		for (unsigned word = 0; word < WANTED; word++)
			CHECK(asked[id][word] <= 1, "word %u of %u was asked %u times", word, id,
			      asked[id][word]);
	}
	printf("%u areas, %u drained, %llu fences\n", areas, drained, (unsigned long long)fences);
	CHECK(drained >= 2 || vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT);
	CHECK(fences == (vcpu_mode() == CPUSLAB_VCPU_THREAD_SLOT ? 0 : (areas + 7) / 8));
	return 0;
}
