/* SPDX-License-Identifier: MIT */
/*
 * arch_abort: a section that the kernel aborts neither loses nor duplicates anything.  More threads than
 * CPUs, all pinned to one CPU, pop, push (on magazines and on lists), replace and add on the words of a
 * hand-made table, while a timer interrupts them with signals whose handler uses the same words, and the main
 * thread aborts whatever section it meets with fences.  Both can hit at any instruction, but rarely do; so
 * every now and then a call is single-stepped until its section has been aborted a few times at its first
 * instruction.  The test ends when each section has been aborted often enough: a million times in `make
 * soak`.
 */
#include "check.h"

#include <sys/ucontext.h>
#include <time.h>

#include "arch/arch.h"
#include "os/os.h"
#include "single_step.h"
#include "vcpu/vcpu.h"

enum { THREADS = 4, CAPACITY = 8, EACH = 8, ABORTS = 500, HELD = 4 };
enum { ABORTS_EACH = 100, SOAK_ABORTS_EACH = 1000000, STEPS = 100, STEPPED_EVERY = 20 };
/*
 * Aborts after which stepping ends.  A longer burst would include aborts of other threads, and then not count
 * at all.
 */
enum { BURST = 4 };

enum section { POP, PUSH, LIST_POP, LIST_PUSH, REPLACE, ADD, SECTIONS };
static uint64_t aborted[SECTIONS], wanted;

/* The words of a vCPU. */
enum { STACK, SPARE, COUNTER, LIST, WORDS };

struct vcpu {
	uintptr_t word[WORDS];
	void *slot[CAPACITY + 2];
} __attribute__((aligned(64)));

/* A vCPU's slab and its objects, each linked through its first word. */
enum { SLAB_OBJECTS = 8, SLAB_STRIDE = 64, SLAB_BYTES = SLAB_OBJECTS * SLAB_STRIDE };
struct linked {
	uint64_t link;
	uint32_t taken;
	bool found; /* set by the final count */
} __attribute__((aligned(SLAB_STRIDE)));
static const struct arch_list list = {
	.secret = 0x5bd1e9955bd1e995,
	.slab_mask = SLAB_BYTES - 1,
	.reciprocal = UINT64_MAX / SLAB_STRIDE + 1,
};
static struct linked *linked;
static size_t linked_count;

struct object {
	uint32_t taken;
	bool found; /* set by the final count */
} __attribute__((aligned(16)));

static struct {
	uintptr_t table[ARCH_VCPUS];
	uint16_t map[4];
} front;

static struct vcpu *vcpus;
static struct object *objects;
static size_t object_count;
static bool stop;

/* What a thread holds.  Its signal handler, which may interrupt it anywhere, has a holder of its own. */
struct holder {
	struct object *held[HELD];
	unsigned count;
	struct linked *linked_held[HELD];
	unsigned linked_count;
	uint64_t adds, pops, pushes, swaps, full, list_pops, list_pushes;
};
static struct {
	struct holder own, handler;
} holders[THREADS];
static __thread struct holder *in_handler;

/*
 * Each caller records itself as the runner.  If it still is after the call, no other thread ran meanwhile,
 * and the aborts counted in between are those of its own section.
 */
static struct holder *runner;
static __thread int steps_left, calls_unstepped;
static __thread uint64_t burst_start;

/* Steps cost far more than calls: a section that has been aborted often enough is no longer stepped. */
static bool steps_now(enum section section, const struct holder *holder)
{
	if (holder == in_handler || __atomic_load_n(&aborted[section], __ATOMIC_RELAXED) >= wanted ||
	    ++calls_unstepped < STEPPED_EVERY)
		return false;
	calls_unstepped = 0;
	steps_left = STEPS;
	burst_start = __atomic_load_n(&arch_section_aborts, __ATOMIC_RELAXED);
	return true;
}

static void on_step(int signal_number, siginfo_t *info, void *context)
{
	(void)signal_number, (void)info, (void)context;
	if (--steps_left > 0 && __atomic_load_n(&arch_section_aborts, __ATOMIC_RELAXED) - burst_start < BURST)
		return;
#ifdef __x86_64__
	ucontext_t *interrupted = context;
	interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
#endif
}

#define COUNTED(section, holder, call)                                                                       \
	({                                                                                                   \
		__atomic_store_n(&runner, holder, __ATOMIC_SEQ_CST);                                         \
		uint64_t before = __atomic_load_n(&arch_section_aborts, __ATOMIC_SEQ_CST);                   \
		if (steps_now(section, holder))                                                              \
			step_from_here();                                                                    \
		__auto_type result = (call);                                                                 \
		uint64_t more = __atomic_load_n(&arch_section_aborts, __ATOMIC_SEQ_CST) - before;            \
		if (more && __atomic_load_n(&runner, __ATOMIC_SEQ_CST) == (holder))                          \
			__atomic_fetch_add(&aborted[section], more, __ATOMIC_RELAXED);                       \
		result;                                                                                      \
	})

static const uint16_t stack_offset = STACK * 8, list_offset = LIST * 8;

static void pop_list(struct holder *holder)
{
	struct linked *object =
		holder->linked_count < HELD
			? COUNTED(LIST_POP, holder, arch_list_pop(vcpu_self, front.map, &list_offset, &list))
			: NULL;
	if (!object)
		return;
	CHECK(object >= linked && object < linked + linked_count, "%p is no object", (void *)object);
	CHECK(__atomic_exchange_n(&object->taken, 1, __ATOMIC_RELAXED) == 0, "object %td has two owners",
	      object - linked);
	holder->linked_held[holder->linked_count++] = object;
	holder->list_pops++;
}

/* Succeeds only on the vCPU that owns the object's slab. */
static void push_list(struct holder *holder)
{
	if (!holder->linked_count)
		return;
	struct linked *object = holder->linked_held[--holder->linked_count];
	CHECK(__atomic_exchange_n(&object->taken, 0, __ATOMIC_RELAXED) == 1);
	if (COUNTED(LIST_PUSH, holder, arch_list_push(vcpu_self, front.map, &list_offset, &list, object))) {
		holder->list_pushes++;
	} else {
		CHECK(__atomic_exchange_n(&object->taken, 1, __ATOMIC_RELAXED) == 0);
		holder->linked_held[holder->linked_count++] = object;
	}
}

static void take(struct holder *holder, struct object *object)
{
	CHECK(object >= objects && object < objects + object_count, "%p is no object", (void *)object);
	CHECK(__atomic_exchange_n(&object->taken, 1, __ATOMIC_RELAXED) == 0, "object %td has two owners",
	      object - objects);
	holder->held[holder->count++] = object;
}

static struct object *give(struct holder *holder)
{
	struct object *object = holder->held[--holder->count];
	CHECK(__atomic_exchange_n(&object->taken, 0, __ATOMIC_RELAXED) == 1);
	return object;
}

/* While `giving`, a thread pops nothing, so that magazines run full as well as empty. */
static void one_round(struct holder *holder, uint64_t dice, bool giving)
{
	if (dice % 6 >= 4) {
		(giving ? push_list : dice % 12 < 6 ? pop_list : push_list)(holder);
		return;
	}
	switch (dice % 6 + (giving && dice % 6 == 0)) {
	case 0:
		if (holder->count < HELD) {
			struct object *object =
				COUNTED(POP, holder, arch_pop(vcpu_self, front.map, &stack_offset));
			if (object) {
				take(holder, object);
				holder->pops++;
			}
		}
		break;
	case 1:
		if (holder->count) {
			struct object *object = give(holder);
			if (COUNTED(PUSH, holder, arch_push(vcpu_self, front.map, &stack_offset, object))) {
				holder->pushes++;
			} else {
				take(holder, object);
				holder->full++;
			}
		}
		break;
	case 2: {
		/* Takes or puts back the spare with one replace. */
		uintptr_t spare = arch_peek(vcpu_self, front.map, SPARE * 8);
		if (spare && holder->count < HELD) {
			if (COUNTED(REPLACE, holder,
				    arch_replace(vcpu_self, front.map, SPARE * 8, spare, 0))) {
				take(holder, (struct object *)spare);
				holder->swaps++;
			}
		} else if (holder->count) {
			struct object *object = give(holder);
			if (!COUNTED(REPLACE, holder,
				     arch_replace(vcpu_self, front.map, SPARE * 8, 0, (uintptr_t)object)))
				take(holder, object);
		}
		break;
	}
	default:
		/* The only section that says why it fails: it was aborted too often in a row. */
		if (COUNTED(ADD, holder, arch_add(vcpu_self, front.map, COUNTER * 8, 3)))
			holder->adds++;
		else
			CHECK(arch_is_hindered());
	}
}

static void on_signal(int signal_number)
{
	int saved = errno;
	static uint64_t dice;
	(void)signal_number;
	if (in_handler) {
		uint64_t number = __atomic_fetch_add(&dice, 1, __ATOMIC_RELAXED);
		one_round(in_handler, number, number & 64);
	}
	errno = saved;
}

static void *run(void *argument)
{
	uintptr_t number = (uintptr_t)argument;
	uint64_t random = number + 1;
	check_pin();
	in_handler = &holders[number].handler;
	for (bool giving = false; !__atomic_load_n(&stop, __ATOMIC_RELAXED); giving = !giving)
		for (int i = 0; i < 1000; i++)
			one_round(&holders[number].own, check_random(&random) >> 20, giving);
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	return NULL;
}

static uint64_t least_aborted(void)
{
	uint64_t least = UINT64_MAX;
	for (int section = 0; section < SECTIONS; section++) {
		uint64_t count = __atomic_load_n(&aborted[section], __ATOMIC_RELAXED);
		least = count < least ? count : least;
	}
	return least;
}

/* By now magazines have been full and spares taken. */
static bool met_every_case(void)
{
	bool full = false, swapped = false;
	for (int i = 0; i < THREADS; i++) {
		full |= __atomic_load_n(&holders[i].own.full, __ATOMIC_RELAXED) != 0;
		swapped |= __atomic_load_n(&holders[i].own.swaps, __ATOMIC_RELAXED) != 0;
	}
	return full && swapped;
}

static void find(struct object *object)
{
	CHECK(object >= objects && object < objects + object_count && !object->found,
	      "object %td is in two places", object - objects);
	object->found = true;
}

int main(void)
{
	free(malloc(1));
	if (!check_rseq())
		check_skip("no restartable sequences (%s)", check_mode());
	check_watchdog(100);

	unsigned ids = vcpu_ids();
	object_count = (size_t)ids * (EACH + 1);
	objects = calloc(object_count, sizeof *objects);
	vcpus = aligned_alloc(64, ids * sizeof *vcpus);
	CHECK(objects && vcpus);
	memset(vcpus, 0, ids * sizeof *vcpus);
	for (unsigned id = 0; id < ids; id++) {
		struct vcpu *vcpu = &vcpus[id];
		struct object *first = &objects[(size_t)id * (EACH + 1)];
		front.table[id] = (uintptr_t)vcpu;
		for (unsigned i = 1; i <= EACH; i++)
			vcpu->slot[i] = first + i;
		vcpu->slot[CAPACITY + 1] = (void *)((uintptr_t)vcpu | 1);
		vcpu->word[STACK] = (uintptr_t)&vcpu->slot[EACH];
		vcpu->word[SPARE] = (uintptr_t)first;
	}

	linked_count = (size_t)ids * SLAB_OBJECTS;
	linked = aligned_alloc(SLAB_BYTES, ids * SLAB_BYTES);
	CHECK(linked);
	memset(linked, 0, ids * SLAB_BYTES);
	for (unsigned id = 0; id < ids; id++) {
		uintptr_t next = (uintptr_t)&linked[id * SLAB_OBJECTS] | 1;
		for (unsigned i = 0; i < SLAB_OBJECTS; i++) {
			struct linked *object = &linked[id * SLAB_OBJECTS + i];
			object->link = next ^ (uintptr_t)&object->link ^ list.secret;
			next = (uintptr_t)object;
		}
		vcpus[id].word[LIST] = next;
	}

	/*
	 * The timer's signals go to the process: with the main thread blocking them, they reach the others.
	 */
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
	CHECK(sigaction(SIGTRAP, &step, NULL) == 0);
	uint64_t aborts = arch_section_aborts;
	wanted = check_rounds(ABORTS_EACH, SOAK_ABORTS_EACH, ABORTS_EACH);
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		threads[i] = check_thread(run, (void *)i);
	sigset_t deaf;
	sigemptyset(&deaf);
	sigaddset(&deaf, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &deaf, NULL) == 0);

	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec often = {.it_interval.tv_nsec = 400000, .it_value.tv_nsec = 400000};
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	CHECK(timer_settime(timer, 0, &often, NULL) == 0);
	/*
	 * If no section is ever aborted, the watchdog ends the test.  Without fences the timer's signals
	 * suffice.
	 */
	while (__atomic_load_n(&arch_section_aborts, __ATOMIC_RELAXED) - aborts < ABORTS ||
	       least_aborted() < wanted || !met_every_case())
		if (os_fence_sections() != 0)
			usleep(5000);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	timer_delete(timer);
	for (int i = 0; i < THREADS; i++)
		check_join(threads[i]);

	uint64_t added = 0, expected = 0, pops = 0, pushes = 0, swaps = 0, full = 0;
	uint64_t list_pops = 0, list_pushes = 0;
	for (unsigned id = 0; id < ids; id++) {
		uintptr_t at = vcpus[id].word[LIST];
		for (unsigned steps = 0; !(at & 1); steps++) {
			struct linked *object = (struct linked *)at;
			CHECK(steps < SLAB_OBJECTS && (size_t)(object - linked) / SLAB_OBJECTS == id &&
			      !object->found);
			object->found = true;
			at = object->link ^ (uintptr_t)&object->link ^ list.secret;
		}
		CHECK(at == ((uintptr_t)&linked[id * SLAB_OBJECTS] | 1));
	}
	for (unsigned id = 0; id < ids; id++) {
		struct vcpu *vcpu = &vcpus[id];
		uintptr_t top = vcpu->word[STACK];
		CHECK(top >= (uintptr_t)&vcpu->slot[0] && top <= (uintptr_t)&vcpu->slot[CAPACITY]);
		CHECK(!vcpu->slot[0] && vcpu->slot[CAPACITY + 1] == (void *)((uintptr_t)vcpu | 1));
		for (void **slot = (void **)top; slot > vcpu->slot; slot--)
			find(*slot);
		if (vcpu->word[SPARE])
			find((struct object *)vcpu->word[SPARE]);
		added += vcpu->word[COUNTER];
	}
	for (int i = 0; i < THREADS; i++)
		for (int which = 0; which < 2; which++) {
			struct holder *holder = which ? &holders[i].handler : &holders[i].own;
			while (holder->count)
				find(give(holder));
			while (holder->linked_count) {
				struct linked *object = holder->linked_held[--holder->linked_count];
				CHECK(!object->found, "object %td is in two places", object - linked);
				object->found = true;
			}
			list_pops += holder->list_pops;
			list_pushes += holder->list_pushes;
			expected += 3 * holder->adds;
			pops += holder->pops;
			pushes += holder->pushes;
			swaps += holder->swaps;
			full += holder->full;
		}
	for (size_t i = 0; i < object_count; i++)
		CHECK(objects[i].found, "object %zu is lost", i);
	for (size_t i = 0; i < linked_count; i++)
		CHECK(linked[i].found, "linked object %zu is lost", i);
	CHECK(list_pops && list_pushes);
	CHECK(added == expected, "counted %llu, not %llu", (unsigned long long)added,
	      (unsigned long long)expected);
	CHECK(pops && pushes && swaps && full);
	printf("%s: %llu pops, %llu aborted sections, of each at least %llu\n", check_mode(),
	       (unsigned long long)pops, (unsigned long long)(arch_section_aborts - aborts),
	       (unsigned long long)least_aborted());
	return 0;
}
