/* SPDX-License-Identifier: MIT */
#include "vcpu/vcpu.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/rseq.h>
#include <sys/single_threaded.h>

#include "cpuslab/lock.h"
#include "options/options.h"
#include "os/os.h"
#include "page/page.h"

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#define AT_RSEQ_ALIGN        28
#endif

/* Older C libraries define neither this nor __rseq_size; the library then registers threads itself. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));

/*
 * The two special words.  Each points at a slot that holds NULL, with an end mark above it: a pop takes it
 * for an empty magazine, a push for a full one, and free(NULL) for a pointer that is already on top.  Both
 * are odd, as the end of a list is, and not heap addresses, so that both engines miss on them.
 *
 * The linker puts what holds an address among the pages that are written before the program starts: a forked
 * child has these from its parent, where reading a page of the file would cost it a fault.
 */
static const struct special {
	char slots[32];
	const void *address;
} void_slots __attribute__((aligned(32))) = {.slots = {[9] = 1}, .address = &void_slots},
	     closed_slots __attribute__((aligned(32))) = {.slots = {[9] = 1}, .address = &closed_slots};
const uintptr_t vcpu_void = (uintptr_t)&void_slots.slots[1], vcpu_closed = (uintptr_t)&closed_slots.slots[1];

/* The id of threads that have none (yet, or any more); the kernel uses it for the same (see arch.h). */
static const uint32_t NOBODY = UINT32_MAX;

/* Areas closed by one fence.  The last of them stays closed while the others are emptied. */
enum { CLOSED_MOST = 8 };

struct arch_self vcpu_self;
/* The thread's area where libc has none, with room for what later kernels add to it. */
static __thread struct {
	struct arch_rseq rseq;
	uint8_t later[32];
} __attribute__((aligned(64))) own = {{.cpu_id = UINT32_MAX, .mm_cid = UINT32_MAX}, {0}};
static __thread enum { OUTSIDE, ENTERING, INSIDE, ENDED } standing;

static enum cpuslab_vcpu_mode mode;
static int refusal ARCH_SPARSE; /* what the kernel said to a registration of the library's own; errno */
static bool registers_itself;   /* uses restartable sequences without libc's registration */
static unsigned ids;            /* possible ids; in slot mode, slots taken so far */
static unsigned possible_ids;   /* outside slot mode */
static uintptr_t closed_area;
static uintptr_t first_areas[ARCH_VCPUS];
static struct {
	uintptr_t *table; /* by id: the area, or the closed area */
	uintptr_t *areas; /* by id; 0 for none */
} banks[VCPU_BANKS];
static unsigned bank_count, area_count;
static unsigned areas_end; /* no id from here on has an area; most possible ids never get one */
static uint8_t slot_taken[ARCH_VCPUS] ARCH_SPARSE;
static uint32_t slot_generation[ARCH_VCPUS] ARCH_SPARSE; /* `generation` when its thread took it */
static uintptr_t slot_owner[ARCH_VCPUS] ARCH_SPARSE;     /* the address of its thread's `own` */
static uint32_t slot_handed[ARCH_VCPUS] ARCH_SPARSE;     /* 1 while a child of vfork runs in it */
static uintptr_t first_owner ARCH_SPARSE; /* that of slot 0 where one thread alone has taken it so far */
static bool slots_abort ARCH_SPARSE;      /* sections of threads with slots abort, see owner_aborts */
static uint32_t generation, buried;       /* the last one whose dead slots are free */
static __thread uint32_t own_generation;

/*
 * Of a thread that has made tasks which run on its thread pointer beside it (see vcpu_share): its vCPU is set
 * aside until the last of them has ended.  A word of `alive` is 0 or belongs to one task; the kernel clears
 * it as the task ends.
 */
enum { SHARERS = 4 };
static __thread struct {
	uint32_t alive[SHARERS];
	uint32_t slot; /* in slot mode */
	int flags;     /* of the registration, in the other modes */
	bool on, forever;
} sharing;
static unsigned open_words;
/* One bit per number.  The first bank's are apart from the rest, which few programs use. */
static uint64_t first_taken[VCPU_BANK_CACHES / 64];
static uint64_t later_taken[(VCPU_CACHES - VCPU_BANK_CACHES) / 64] ARCH_SPARSE;
static unsigned lowest_free; /* no number below it is free */
static uint64_t fences;
static pthread_key_t end_of_thread;
static bool has_key; /* false when the program has used up all keys: 0 may then be one of its own */
static struct cpuslab_spinlock vcpu_lock = CPUSLAB_SPINLOCK_INITIALIZER;

/* The entry in the first bank, which stands for all banks. */
static uintptr_t *entry(unsigned id)
{
	return &banks[0].table[id];
}

/* The value that an id's entry should have. */
static uintptr_t entry_of(unsigned bank, unsigned id, bool open)
{
	uintptr_t area = open ? banks[bank].areas[id] : 0;

	return area ? area : closed_area;
}

/* Points an id's entries at its areas, or at the closed area. */
static void set_entries(unsigned id, bool open)
{
	for (unsigned bank = 0; bank < bank_count; bank++)
		__atomic_store_n(&banks[bank].table[id], entry_of(bank, id, open), __ATOMIC_SEQ_CST);
}

static intptr_t distance(const void *address)
{
	return (const char *)address - (const char *)__builtin_thread_pointer();
}

/* ---- own vCPU --------------------------------------------------------------------------------------- */

/*
 * How much of `own` to register.  The first version's 32 bytes are all that kernels before 6.3 take, which
 * name no size.  Later ones take any length that has all their fields, and from 7.1 on treat one of 32 bytes
 * as of an old program, with a slower way and without what is new.
 */
static __attribute__((noinline, cold)) uint32_t own_bytes(void)
{
	size_t fields = os_auxiliary(AT_RSEQ_FEATURE_SIZE);
	size_t wanted = fields > sizeof own.rseq ? fields : sizeof own.rseq + 1;
	bool fits = wanted <= sizeof own && os_auxiliary(AT_RSEQ_ALIGN) <= _Alignof(__typeof__(own));

	return fields && fits ? (uint32_t)wanted : sizeof own.rseq;
}

/* libc registers as many bytes as it uses, but no fewer than the structure's first version has. */
static uint32_t rseq_bytes(void)
{
	if (registers_itself)
		return own_bytes();
	return __rseq_size > sizeof own.rseq ? __rseq_size : sizeof own.rseq;
}

/* Bits of slot_taken. */
enum { SLOT_TAKEN = 1, SLOT_CLOSED = 2 };

static void leave(void *unused)
{
	(void)unused;
	cpuslab_spin_lock(&vcpu_lock);
	standing = ENDED;
	if (registers_itself) {
		/* The kernel must forget the area before the thread's memory is reused. */
		os_rseq_unregister(&own, own_bytes(), ARCH_RSEQ_SIGNATURE);
	} else {
		/* The slot's magazines stay for the next owner, or are drained as idle. */
		slot_taken[sharing.on ? sharing.slot : own.rseq.mm_cid] &= SLOT_CLOSED;
	}
	own.rseq.cpu_id = own.rseq.mm_cid = NOBODY;
	cpuslab_spin_unlock(&vcpu_lock);
}

static struct arch_rseq *rseq_in_use(void)
{
	return (struct arch_rseq *)((char *)__builtin_thread_pointer() + vcpu_self.rseq);
}

int vcpu_unregister(void)
{
	struct arch_rseq *rseq = rseq_in_use();
	/* What the kernel shows there if the flag was set at the registration. */
	int flags = rseq->flags & ARCH_RSEQ_SLICES_ON ? ARCH_RSEQ_REGISTER_SLICES : 0;

	if (mode == CPUSLAB_VCPU_THREAD_SLOT ||
	    os_rseq_unregister(rseq, rseq_bytes(), ARCH_RSEQ_SIGNATURE) != 0)
		return VCPU_UNREGISTERED;
	vcpu_forget_id();
	return flags;
}

void vcpu_register(int flags)
{
	if (flags != VCPU_UNREGISTERED)
		(void)os_rseq_register(rseq_in_use(), rseq_bytes(), (uint32_t)flags, ARCH_RSEQ_SIGNATURE);
}

bool vcpu_is_registered_at(const void *area)
{
	return mode != CPUSLAB_VCPU_THREAD_SLOT && area == rseq_in_use();
}

void vcpu_forget_id(void)
{
	__atomic_store_n(&rseq_in_use()->mm_cid, NOBODY, __ATOMIC_RELAXED);
}

/*
 * With concurrency ids the thread has meanwhile used the words of vCPU 0, and nothing aborted its sections.
 * Alone it did so rightly.
 */
__attribute__((cold)) void vcpu_lost(void)
{
	static const char line[] = "cpuslab: a direct system call has unregistered a thread's restartable "
				   "sequences; memory may have "
				   "got two owners. CPUSLAB_OPTIONS=vcpu:slot does without them.\n";
	static bool told ARCH_SPARSE;

	vcpu_forget_id();
	if (mode == CPUSLAB_VCPU_MM_CID && !__libc_single_threaded &&
	    !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		os_write_error(line, sizeof line - 1);
}

/*
 * Returns whether a thread can register itself and be told when it ends.  Leaves it unregistered: setting
 * the key's value may make libc allocate, which is not allowed while the library starts.  The first slow
 * path registers, in vcpu_enter.
 */
static __attribute__((noinline, cold)) bool can_register(void)
{
	refusal = os_rseq_register(&own, own_bytes(), 0, ARCH_RSEQ_SIGNATURE);
	if (refusal)
		return false;
	os_rseq_unregister(&own, own_bytes(), ARCH_RSEQ_SIGNATURE);
	/* The kernel has left an id there that may be another thread's by now. */
	own.rseq.cpu_id = own.rseq.mm_cid = NOBODY;
	has_key = pthread_key_create(&end_of_thread, leave) == 0;
	return has_key;
}

/* Uses the kernel's ids if it offers this process's threads one that is safe to use; false if not. */
static bool choose_restartable(void)
{
	bool adopted = &__rseq_size && __rseq_size > 0;
	intptr_t area = adopted ? (intptr_t)__rseq_offset : distance(&own);

	if (!ARCH_HAS_RSEQ || options.vcpu == OPTION_VCPU_SLOT)
		return false;
	ids = possible_ids;
	if (ids > ARCH_VCPUS)
		return false;

	const struct arch_rseq *rseq =
		(const struct arch_rseq *)((const char *)__builtin_thread_pointer() + area);

	/* Whatever libc says, a negative id means that the kernel does not keep it up to date. */
	if (adopted ? (int32_t)__atomic_load_n(&rseq->cpu_id, __ATOMIC_RELAXED) < 0 : !can_register())
		return false;
	registers_itself = !adopted;
	mode = options.vcpu != OPTION_VCPU_CPU_ID &&
			       os_auxiliary(AT_RSEQ_FEATURE_SIZE) >= offsetof(struct arch_rseq, mm_cid) + 4
		       ? CPUSLAB_VCPU_MM_CID
		       : CPUSLAB_VCPU_CPU_ID;
	vcpu_self.rseq = area;
	vcpu_self.id = area + (intptr_t)(mode == CPUSLAB_VCPU_MM_CID ? offsetof(struct arch_rseq, mm_cid)
								     : offsetof(struct arch_rseq, cpu_id));
	return true;
}

/*
 * Where libc registers threads, sections abort here as in the other modes, so that slots of threads that
 * sleep can be drained from outside.
 */
static __attribute__((noinline, cold)) void choose_slots(void)
{
	mode = CPUSLAB_VCPU_THREAD_SLOT;
	ids = 0;
	slots_abort = ARCH_HAS_RSEQ && &__rseq_size && __rseq_size > 0;
	vcpu_self.rseq = slots_abort ? (intptr_t)__rseq_offset : distance(&own);
	vcpu_self.id = distance(&own.rseq.mm_cid);
}

/*
 * By the first thread that takes a slot, not at the library's start nor with a lock: another library's
 * function in libc's place may allocate.  Without a key slots are never freed; once they run out, threads do
 * without.  A thread that comes while another is at it has a slot without an end, as have those of a child
 * forked then.
 */
static void make_key(void)
{
	static bool asked;

	if (!registers_itself && !__atomic_exchange_n(&asked, true, __ATOMIC_RELAXED) &&
	    pthread_key_create(&end_of_thread, leave) == 0)
		__atomic_store_n(&has_key, true, __ATOMIC_RELEASE);
}

static void add_bank(uintptr_t *table, uintptr_t *areas)
{
	for (int id = -ARCH_NO_VCPUS; id < (int)ids; id++)
		table[id] = closed_area;
	banks[bank_count].table = table;
	banks[bank_count].areas = areas;
	__atomic_store_n(&bank_count, bank_count + 1, __ATOMIC_RELEASE);
}

enum cpuslab_vcpu_mode vcpu_mode(void)
{
	return mode;
}

const char *vcpu_why_slots(void)
{
	if (mode != CPUSLAB_VCPU_THREAD_SLOT)
		return "";
	if (options.vcpu == OPTION_VCPU_SLOT)
		return " (by the option vcpu)";
	/* The kernel's word for another area than the thread has already. */
	if (refusal == EINVAL)
		return " (libc has restartable sequences, but does not say where)";
	return " (no restartable sequences here)";
}

/* ---- ends of threads -------------------------------------------------------------------------------- */

static __thread bool is_counted;
static pthread_key_t end_of_counted;
static int counted;                       /* counted threads that have not ended */
static bool counted_asked, counted_keyed; /* whether its key has been asked for, and made */
static void (*when_alone)(void);

/* The key's values, by address: the destructor has not run yet, or has run once. */
#define FIRST_ROUND  (&counted)
#define SECOND_ROUND (&end_of_counted)

static void end_counted(void *round)
{
	/*
	 * The program's own destructors may run after this one and free what its values held.  Setting the
	 * value again asks for a second round, which follows all destructors of the first; but there is
	 * none if this is already the last (PTHREAD_DESTRUCTOR_ITERATIONS), as for a thread first counted
	 * in a destructor.  So the thread is uncounted in this round already.
	 */
	if (round == FIRST_ROUND) {
		__atomic_sub_fetch(&counted, 1, __ATOMIC_RELAXED);
		if (pthread_setspecific(end_of_counted, SECOND_ROUND) == 0)
			return;
	}
	if (__atomic_load_n(&counted, __ATOMIC_RELAXED) <= 1)
		when_alone();
}

static __attribute__((noinline)) void count_thread(void)
{
	int saved_errno = errno; /* the caller may be free() */

	/* Before all else: setting the value may allocate, which comes back here. */
	is_counted = true;
	/* Without a lock, for the same reason: threads that come while one is at it are not counted. */
	if (!__atomic_exchange_n(&counted_asked, true, __ATOMIC_RELAXED) &&
	    pthread_key_create(&end_of_counted, end_counted) == 0)
		__atomic_store_n(&counted_keyed, true, __ATOMIC_RELEASE);
	if (__atomic_load_n(&counted_keyed, __ATOMIC_ACQUIRE) &&
	    pthread_setspecific(end_of_counted, FIRST_ROUND) == 0)
		__atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
	errno = saved_errno;
}

void vcpu_count_thread(void)
{
	if (__builtin_expect(!is_counted, 0))
		count_thread();
}

void vcpu_when_alone(void (*call)(void))
{
	when_alone = call;
}

/* ---- areas ------------------------------------------------------------------------------------------ */

static void open_words_of(uintptr_t area, unsigned from, unsigned to)
{
	bool closed = area == closed_area;

	for (unsigned cache = from; cache < to; cache++) {
		uintptr_t *word = (uintptr_t *)(area + vcpu_offset(cache));

		word[0] = closed ? vcpu_closed : vcpu_void;
		/* A closed spare is neither a magazine nor room for one. */
		word[VCPU_ROW] = closed ? vcpu_closed : 0;
	}
}

/* With the lock: returns how many of a bank's words are open. */
static unsigned open_in_bank(unsigned bank)
{
	unsigned before = bank * VCPU_BANK_CACHES;

	return open_words <= before                     ? 0
	       : open_words - before < VCPU_BANK_CACHES ? open_words - before
							: VCPU_BANK_CACHES;
}

/*
 * With the lock: makes a bank.  Banks are never freed, so a block allocated without its partner is kept for
 * the next attempt.  The bank takes both only after the static pointers are cleared: a child forked in
 * between would otherwise use the blocks for the next bank too.
 */
static bool make_bank(void)
{
	enum { BEFORE = ARCH_NO_VCPUS * sizeof(uintptr_t) };
	static void *spare_table, *spare_areas;

	if (!spare_table)
		spare_table = metadata_alloc(BEFORE + ARCH_TABLE_BYTES);
	if (!spare_areas)
		spare_areas = metadata_alloc(ARCH_TABLE_BYTES);
	if (!spare_table || !spare_areas)
		return false;
	void *table = (char *)spare_table + BEFORE, *areas = spare_areas;

	__atomic_store_n(&spare_table, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&spare_areas, NULL, __ATOMIC_RELEASE);
	add_bank(table, areas);
	return true;
}

/*
 * Makes the words of all caches below `caches` void in every area, present and future; false when there is
 * no memory.
 */
static bool open_words_below(unsigned caches)
{
	cpuslab_spin_lock(&vcpu_lock);
	while (open_words < caches) {
		unsigned bank = open_words / VCPU_BANK_CACHES, from = open_words % VCPU_BANK_CACHES;
		unsigned end = (bank + 1) * VCPU_BANK_CACHES,
			 count = (caches < end ? caches : end) - open_words;

		if (bank == bank_count && !make_bank())
			break;
		/*
		 * The closed area serves all banks: a second one is made only when the first, and so the
		 * closed area, has all its words.
		 */
		if (bank == 0)
			open_words_of(closed_area, from, from + count);
		for (unsigned id = 0; id < areas_end; id++)
			if (banks[bank].areas[id])
				open_words_of(banks[bank].areas[id], from, from + count);
		open_words += count;
	}
	bool opened = open_words >= caches;

	cpuslab_spin_unlock(&vcpu_lock);
	return opened;
}

/* The word that holds a number's bit. */
static uint64_t *taken_at(unsigned number)
{
	unsigned word = number / 64, first = VCPU_BANK_CACHES / 64;

	return word < first ? &first_taken[word] : &later_taken[word - first];
}

static bool is_taken(unsigned number)
{
	return *taken_at(number) & 1ull << number % 64;
}

/*
 * With the lock: returns the first of the lowest `count` consecutive free numbers from `number` on;
 * VCPU_CACHES for none.
 */
static unsigned find_free(unsigned number, unsigned count)
{
	unsigned found = 0;

	for (; number < VCPU_CACHES && found < count; number++) {
		if (number % VCPU_BANK_CACHES == 0)
			found = 0;
		found = is_taken(number) ? 0 : found + 1;
	}
	return found == count ? number - count : VCPU_CACHES;
}

bool vcpu_take_numbers(unsigned count, unsigned *first)
{
	/* The offsets of the first numbers are page ids that do not stand for caches. */
	enum { FIRST = PAGE_ID_RESERVED / PAGE_ID_STEP };

	cpuslab_spin_lock(&vcpu_lock);
	lowest_free = find_free(lowest_free < FIRST ? FIRST : lowest_free, 1);
	unsigned free = find_free(lowest_free, count);

	if (free != VCPU_CACHES)
		for (unsigned number = free; number < free + count; number++)
			*taken_at(number) |= 1ull << number % 64;
	cpuslab_spin_unlock(&vcpu_lock);
	if (free == VCPU_CACHES)
		return false;
	if (!open_words_below(free + count)) {
		for (unsigned number = free; number < free + count; number++)
			vcpu_give_number(number);
		return false;
	}
	*first = free;
	return true;
}

/*
 * With the lock: clears the counts beside a number's words for its next cache.  No call for the last one is
 * under way, so no vCPU adds to them now, and areas made later begin with zeros.
 */
static void forget_counts(unsigned number)
{
	for (unsigned id = 0; id < areas_end; id++) {
		uintptr_t *word = vcpu_word(id, number);

		/* Does not touch an untouched page only to store zeros. */
		for (unsigned row = 2; word && row < 4; row++)
			if (word[row * VCPU_ROW])
				word[row * VCPU_ROW] = 0;
	}
}

void vcpu_give_number(unsigned number)
{
	cpuslab_spin_lock(&vcpu_lock);
	forget_counts(number);
	*taken_at(number) &= ~(1ull << number % 64);
	if (number < lowest_free)
		lowest_free = number;
	cpuslab_spin_unlock(&vcpu_lock);
}

const void *vcpu_map(unsigned cache)
{
	return (const char *)banks[cache / VCPU_BANK_CACHES].table + ARCH_TABLE_BYTES;
}

static bool has_all_areas(unsigned id)
{
	unsigned count = __atomic_load_n(&bank_count, __ATOMIC_ACQUIRE);

	for (unsigned bank = 0; bank < count; bank++)
		if (!__atomic_load_n(&banks[bank].areas[id], __ATOMIC_ACQUIRE))
			return false;
	return true;
}

/* With the lock: makes the areas that an id lacks, unless its present ones are being drained. */
static bool make_areas(unsigned id)
{
	if (banks[0].areas[id] && *entry(id) == closed_area)
		return false;
	for (unsigned bank = 0; bank < bank_count; bank++) {
		if (banks[bank].areas[id])
			continue;
		uintptr_t area = (uintptr_t)metadata_alloc(VCPU_AREA_BYTES);

		if (!area)
			return false;
		open_words_of(area, 0, open_in_bank(bank));
		if (id >= areas_end)
			__atomic_store_n(&areas_end, id + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&banks[bank].areas[id], area, __ATOMIC_RELEASE);
		__atomic_store_n(&banks[bank].table[id], area, __ATOMIC_RELEASE);
		if (bank == 0)
			__atomic_store_n(&area_count, area_count + 1, __ATOMIC_RELAXED);
	}
	return true;
}

void vcpu_prepare(void)
{
	os_membarrier_begin(options.membarrier);
	if (ARCH_HAS_RSEQ && options.vcpu != OPTION_VCPU_SLOT)
		possible_ids = os_possible_cpus();
}

bool vcpu_init(void)
{
	closed_area = (uintptr_t)metadata_alloc(VCPU_AREA_BYTES);
	if (!closed_area)
		return false;
	if (!choose_restartable())
		choose_slots();
	add_bank((uintptr_t *)((char *)page_front.map - ARCH_TABLE_BYTES), first_areas);
	/*
	 * The area that this thread is about to need.  Made now, it starts at the same offset in its page
	 * as the closed area, so that the rows of malloc's caches share one page.
	 */
	if (mode != CPUSLAB_VCPU_THREAD_SLOT && arch_id(vcpu_self) < ids)
		(void)make_areas(arch_id(vcpu_self));
	return true;
}

/* With the lock: returns the first free slot. */
static unsigned free_slot(void)
{
	unsigned id = 0;

	while (id < ids && slot_taken[id])
		id++;
	return id;
}

/*
 * With the lock: returns the slot of an earlier thread whose thread-local variables lay where this one's do:
 * it has ended, without `leave` if its first slow path was in the last round of its destructors.  libc reuses
 * the memory of threads, so such slots do not gather.
 */
static unsigned slot_left_here(void)
{
	unsigned id = 0;

	while (id < ids && !(slot_taken[id] == 1 && slot_owner[id] == (uintptr_t)&own))
		id++;
	return id;
}

/* With the lock: gives this thread a slot, a used one before a new one. */
static bool take_slot(void)
{
	/* A process with one thread, whose first slot it is, has no need of the table of owners. */
	bool several = ids > 0 || !__libc_single_threaded;
	unsigned id = several ? slot_left_here() : ids;

	if (id == ids)
		id = free_slot();
	if (id == ARCH_VCPUS)
		return false;
	if (id == ids) {
		set_entries(id, false);
		ids++;
	}
	/* A slot that lacks only a later bank's areas still serves most caches. */
	if (!make_areas(id) && !banks[0].areas[id])
		return false;
	__atomic_store_n(&slot_taken[id], 1, __ATOMIC_RELEASE);
	slot_generation[id] = own_generation = generation;
	if (several)
		slot_owner[id] = (uintptr_t)&own;
	else
		first_owner = (uintptr_t)&own;
	own.rseq.cpu_id = id;
	__atomic_store_n(&own.rseq.mm_cid, id, __ATOMIC_RELEASE);
	return true;
}

/* ---- tasks on a thread's pointer ------------------------------------------------------------------------
 */

static void set_aside(void)
{
	if (mode == CPUSLAB_VCPU_THREAD_SLOT) {
		sharing.slot = own.rseq.mm_cid;
		own.rseq.cpu_id = own.rseq.mm_cid = NOBODY;
	} else {
		sharing.flags = vcpu_unregister();
	}
	__atomic_store_n(&sharing.on, true, __ATOMIC_RELEASE);
}

uint32_t *vcpu_share(bool told)
{
	/* From now on two tasks use this memory at once. */
	__libc_single_threaded = 0;
	if (!sharing.on)
		set_aside();
	/* Such a task may make others itself, while its maker does. */
	for (uint32_t *word = sharing.alive; told && word < sharing.alive + SHARERS; word++)
		if (__atomic_exchange_n(word, 1, __ATOMIC_ACQ_REL) == 0)
			return word;
	sharing.forever = true;
	return NULL;
}

/* Takes the vCPU back once no other task is left on this thread's pointer; false while there is one. */
static __attribute__((noinline)) bool end_sharing(void)
{
	bool over = !sharing.forever;

	for (unsigned i = 0; i < SHARERS; i++)
		over &= !__atomic_load_n(&sharing.alive[i], __ATOMIC_ACQUIRE);
	if (!over)
		return false;
	sharing.on = false;
	if (mode != CPUSLAB_VCPU_THREAD_SLOT)
		vcpu_register(sharing.flags);
	else if (own_generation != generation)
		standing = OUTSIDE; /* a forked child, in which the slot may be another thread's */
	else
		own.rseq.cpu_id = own.rseq.mm_cid = sharing.slot;
	return true;
}

bool vcpu_shares(void)
{
	return sharing.on && !end_sharing();
}

void vcpu_begin_thread(void)
{
	is_counted = false;
	standing = OUTSIDE;
	memset(&sharing, 0, sizeof sharing);
	own.rseq.cpu_id = own.rseq.mm_cid = NOBODY;
	own_generation = generation;
	if (registers_itself)
		return;
	rseq_in_use()->cpu_id = NOBODY;
	if (mode == CPUSLAB_VCPU_THREAD_SLOT)
		return;
	vcpu_forget_id();
	vcpu_register(0);
}

void vcpu_begin_apart(void)
{
	is_counted = true;
	standing = ENDED;
	own.rseq.cpu_id = own.rseq.mm_cid = NOBODY;
	rseq_in_use()->cpu_id = NOBODY;
	vcpu_forget_id();
}

__attribute__((noinline)) void vcpu_add(const void *map, uintptr_t offset, uint64_t amount)
{
	/* What a hindered thread misses is not counted. */
	(void)arch_add(vcpu_self, map, offset, amount);
}

bool vcpu_enter(void)
{
	if (arch_is_hindered() || vcpu_shares())
		return false;
	if (mode != CPUSLAB_VCPU_THREAD_SLOT && !registers_itself) {
		unsigned id = arch_id(vcpu_self);

		if (id >= ids || has_all_areas(id))
			return false;
		cpuslab_spin_lock(&vcpu_lock);
		bool made = make_areas(id);

		cpuslab_spin_unlock(&vcpu_lock);
		return made;
	}

	/*
	 * A thread without a place.  One that has left (ENDED) stays without: destructors may allocate
	 * after `leave`.
	 */
	if (standing == OUTSIDE) {
		int saved_errno = errno; /* the caller may be free() */

		/* Before it has a slot, or it would look like a thread begun after the fork. */
		vcpu_bury_dead_slots();
		standing = ENTERING;
		/* Both may allocate; the nested call then finds ENTERING. */
		make_key();
		bool keyed = __atomic_load_n(&has_key, __ATOMIC_ACQUIRE);
		bool noted = !keyed || pthread_setspecific(end_of_thread, &own) == 0;
		bool placed = false, later = !noted;

		if (noted && registers_itself)
			placed = os_rseq_register(&own, own_bytes(), 0, ARCH_RSEQ_SIGNATURE) == 0;
		else if (noted) {
			cpuslab_spin_lock(&vcpu_lock);
			placed = take_slot();
			later = !placed && free_slot() != ARCH_VCPUS;
			cpuslab_spin_unlock(&vcpu_lock);
		}
		if (!placed && noted && keyed)
			pthread_setspecific(end_of_thread, NULL);
		/* A refusal for lack of memory is retried by the next slow path. */
		standing = placed ? INSIDE : later ? OUTSIDE : ENDED;
		errno = saved_errno;
	}
	unsigned id = arch_id(vcpu_self);

	if (standing != INSIDE || id >= ids)
		return false;
	if (!has_all_areas(id)) {
		cpuslab_spin_lock(&vcpu_lock);
		make_areas(id);
		cpuslab_spin_unlock(&vcpu_lock);
	}
	/* Without a later bank's area, whose words stay closed, the caller would retry for ever. */
	return has_all_areas(id) && __atomic_load_n(entry(id), __ATOMIC_RELAXED) != closed_area;
}

/* With the lock. */
static bool is_open_area(unsigned id)
{
	return id < ids && banks[0].areas[id] && *entry(id) == banks[0].areas[id];
}

/* An area to empty, and its first wanted word. */
struct closing {
	unsigned id, number;
};

/*
 * Of a slot that another thread has, after its area was closed: whether sections that this thread had begun
 * before will have been aborted or have ended after a fence.  So it is while the kernel has the thread's
 * area: one that gives it up does so in no section.  A child of vfork has its parent's slot without a
 * registration.
 *
 * The kernel reads the word where it says so, since the thread may be gone, and its memory with it, without
 * having left its slot (slot_left_here): then there are no sections.
 */
static bool owner_aborts(unsigned id)
{
	static const struct timespec at_once;
	uintptr_t owner = slot_owner[id] ? slot_owner[id] : id ? 0 : first_owner;
	/* Of the same thread pointer as the owner's `own`, where the id is. */
	uintptr_t id_at = owner + offsetof(struct arch_rseq, mm_cid);
	struct arch_rseq *rseq =
		(struct arch_rseq *)(id_at - (uintptr_t)vcpu_self.id + (uintptr_t)vcpu_self.rseq);

	if (!slots_abort || !owner || __atomic_load_n(&slot_handed[id], __ATOMIC_SEQ_CST))
		return false;
	for (uint32_t none = NOBODY; none >= NOBODY - 1; none--) {
		int status = os_futex_wait(&rseq->cpu_id, none, &at_once);

		if (status == EFAULT)
			return true;
		if (status != EAGAIN)
			return false;
	}
	return true;
}

uint32_t *vcpu_hand_slot(void)
{
	uint32_t id = own.rseq.mm_cid;

	if (!slots_abort || id >= ids || slot_handed[id])
		return NULL;
	__atomic_store_n(&slot_handed[id], 1, __ATOMIC_SEQ_CST);
	return &slot_handed[id];
}

static void open_slot(unsigned id)
{
	slot_taken[id] &= (uint8_t)~SLOT_CLOSED;
	set_entries(id, true);
}

/* With the lock: closes a slot's area.  *others tells that its thread is another, which takes a fence. */
static bool close_slot(unsigned id, bool *others)
{
	bool foreign = slot_taken[id] & SLOT_TAKEN && id != arch_id(vcpu_self);

	slot_taken[id] |= SLOT_CLOSED;
	set_entries(id, false);
	if (foreign && !owner_aborts(id)) {
		open_slot(id);
		return false;
	}
	*others |= foreign;
	return true;
}

/*
 * Closes areas; with the lock.  A section that read the table before an area's entry changed is aborted by
 * the fence and restarts with the closed area; a section committed before that is visible.  One fence
 * serves several areas.  Returns how many were closed, and moves these to the front.
 *
 * A process that never had a second thread needs no fence: nobody else can be in a section, and a signal
 * handler that has interrupted this thread's has aborted it.  Such processes sandbox themselves, and may be
 * killed for a call that libc's own malloc does not make.  (A child of a process with threads is alone, too,
 * until it makes some; but its libc does not tell.)
 */
static unsigned close_areas(struct closing *closing, unsigned count)
{
	bool slots = mode == CPUSLAB_VCPU_THREAD_SLOT, others = !slots && !__libc_single_threaded;
	unsigned closed = 0;

	for (unsigned i = 0; i < count; i++) {
		unsigned id = closing[i].id;

		if (!is_open_area(id) || (slots && !close_slot(id, &others)))
			continue;
		if (!slots)
			set_entries(id, false);
		closing[closed++] = closing[i];
	}
	if (!closed || !others)
		return closed;
	if (os_fence_sections() == 0) {
		fences++;
		return closed;
	}
	while (closed) {
		unsigned id = closing[--closed].id;

		if (slots)
			open_slot(id);
		else
			set_entries(id, true);
	}
	return 0;
}

bool vcpu_close(unsigned id)
{
	struct closing closing = {.id = id};

	cpuslab_spin_lock(&vcpu_lock);
	unsigned closed = close_areas(&closing, 1);

	cpuslab_spin_unlock(&vcpu_lock);
	return closed;
}

void vcpu_reopen(unsigned id)
{
	cpuslab_spin_lock(&vcpu_lock);
	/* In other modes slot_taken is never written, and its pages take no memory. */
	if (mode == CPUSLAB_VCPU_THREAD_SLOT)
		open_slot(id);
	else
		set_entries(id, true);
	cpuslab_spin_unlock(&vcpu_lock);
}

uintptr_t *vcpu_word(unsigned id, unsigned cache)
{
	unsigned bank = cache / VCPU_BANK_CACHES;

	if (id >= ids || bank >= __atomic_load_n(&bank_count, __ATOMIC_ACQUIRE))
		return NULL;
	uintptr_t area = __atomic_load_n(&banks[bank].areas[id], __ATOMIC_ACQUIRE);

	return area ? (uintptr_t *)(area + vcpu_offset(cache)) : NULL;
}

void vcpu_misses(unsigned cache, uint64_t *allocs, uint64_t *frees)
{
	*allocs = *frees = 0;
	for (unsigned id = 0; id < vcpu_ids(); id++) {
		const uintptr_t *word = vcpu_word(id, cache);
		uint64_t misses = word ? __atomic_load_n(&word[2 * VCPU_ROW], __ATOMIC_RELAXED) : 0;

		*allocs += misses % VCPU_MISSED_FREE;
		*frees += misses / VCPU_MISSED_FREE;
	}
}

static unsigned first_wanted(unsigned id, unsigned first, unsigned end,
			     bool (*wants)(unsigned number, uintptr_t *word))
{
	for (unsigned number = first; number < end; number++) {
		uintptr_t *word = vcpu_word(id, number);

		if (word && wants(number, word))
			return number;
	}
	return end;
}

/* Collects the next areas from *id on that have a wanted word. */
static unsigned next_wanted(unsigned *id, struct closing *closing, unsigned first, unsigned end,
			    bool (*wants)(unsigned number, uintptr_t *word))
{
	unsigned areas = __atomic_load_n(&areas_end, __ATOMIC_ACQUIRE), count = 0;

	for (; *id < areas && count < CLOSED_MOST; ++*id) {
		/* An id without an area cannot be closed. */
		if (!__atomic_load_n(&banks[0].areas[*id], __ATOMIC_ACQUIRE))
			continue;
		unsigned number = first_wanted(*id, first, end, wants);

		if (number < end)
			closing[count++] = (struct closing){*id, number};
	}
	return count;
}

void vcpu_drain(unsigned first, unsigned end, bool (*wants)(unsigned number, uintptr_t *word),
		void (*empty)(unsigned number, uintptr_t *word))
{
	struct closing closing[CLOSED_MOST];
	unsigned count, id = 0;

	while ((count = next_wanted(&id, closing, first, end, wants))) {
		cpuslab_spin_lock(&vcpu_lock);
		count = close_areas(closing, count);
		cpuslab_spin_unlock(&vcpu_lock);
		for (unsigned i = 0; i < count; i++) {
			unsigned number = closing[i].number, area = closing[i].id;

			/* Not from the first word on: asking about a word may change the answer. */
			while ((number = first_wanted(area, number, end, wants)) < end) {
				empty(number, vcpu_word(area, number));
				number++;
			}
			vcpu_reopen(area);
		}
	}
}

unsigned vcpu_ids(void)
{
	return __atomic_load_n(&ids, __ATOMIC_ACQUIRE);
}

unsigned vcpu_areas(void)
{
	return __atomic_load_n(&area_count, __ATOMIC_RELAXED);
}

uint64_t vcpu_fences(void)
{
	return __atomic_load_n(&fences, __ATOMIC_RELAXED);
}

/* Apart from what every start runs. */
static __attribute__((noinline)) void show_why_slots(void (*show)(const char *, uintptr_t, size_t))
{
	show("vcpu.why_slots", (uintptr_t)vcpu_why_slots(), strlen(vcpu_why_slots()) + 1);
}

void vcpu_show(void (*show)(const char *name, uintptr_t value, size_t size))
{
	show("vcpu.mode", (uintptr_t)&mode, sizeof mode);
	if (mode == CPUSLAB_VCPU_THREAD_SLOT)
		show_why_slots(show);
	show("vcpu.ids", (uintptr_t)&ids, sizeof ids);
	show("vcpu.banks", (uintptr_t)banks, sizeof banks[0]);
	show("vcpu.bank_count", (uintptr_t)&bank_count, sizeof bank_count);
	show("vcpu.fences", (uintptr_t)&fences, sizeof fences);
	show("vcpu.void", vcpu_void, sizeof(uintptr_t));
	show("vcpu.closed", vcpu_closed, sizeof(uintptr_t));
	show("bank.areas", (uintptr_t)&banks[0].areas - (uintptr_t)&banks[0], sizeof banks[0].areas);
}

static bool is_open(unsigned id)
{
	for (unsigned bank = 0; bank < bank_count; bank++)
		if (banks[bank].table[id] != entry_of(bank, id, true))
			return false;
	return true;
}

/* In the thread that forked; with the lock, or before other threads may take it. */
static void bury_slots(void)
{
	unsigned mine = sharing.on ? sharing.slot : own.rseq.mm_cid;

	for (unsigned id = 0; id < ids; id++)
		if (slot_generation[id] != generation && id != mine)
			slot_taken[id] &= (uint8_t)~1u;
	own_generation = generation;
	if (mine < ids)
		slot_generation[mine] = generation;
	__atomic_store_n(&buried, generation, __ATOMIC_RELAXED);
}

bool vcpu_is_torn(void)
{
	/* Only areas can be closed; most possible ids never get one. */
	for (unsigned id = 0; id < areas_end; id++)
		if (!is_open(id))
			return true;
	return cpuslab_spin_is_locked(&vcpu_lock);
}

void vcpu_repair(void)
{
	if (cpuslab_spin_is_locked(&vcpu_lock))
		lowest_free = 0;
	cpuslab_spin_reset(&vcpu_lock);
	/* The thread that was draining an area is gone; what it had taken out is lost. */
	for (unsigned id = 0; id < areas_end; id++)
		if (!is_open(id))
			set_entries(id, true);
}

void vcpu_begin_child(void)
{
	if (counted)
		counted = 0;
	if (mode != CPUSLAB_VCPU_THREAD_SLOT)
		return;
	for (unsigned id = 0; id < ids; id++)
		slot_taken[id] &= 1;
	/*
	 * All slots but that of the thread that forked are free now.  If the thread here has one, it forked.
	 * If not, it may be another: a child may create threads before its first slow path.  Then
	 * vcpu_bury_dead_slots frees them.
	 */
	generation++;
	if (standing == INSIDE)
		bury_slots();
}

/*
 * Returns whether this thread lived through the last fork, that is, made it: either it had a slot before,
 * or it is the process's first thread, which a thread begun in the child never is.
 */
static bool has_forked(void)
{
	return own_generation != generation && (standing == INSIDE || os_thread_id() == os_process_id());
}

void vcpu_bury_dead_slots(void)
{
	if (mode != CPUSLAB_VCPU_THREAD_SLOT || __atomic_load_n(&buried, __ATOMIC_RELAXED) == generation ||
	    !has_forked())
		return;
	cpuslab_spin_lock(&vcpu_lock);
	bury_slots();
	cpuslab_spin_unlock(&vcpu_lock);
}
