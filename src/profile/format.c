/* SPDX-License-Identifier: MIT */
#include "profile/format.h"

#include <elf.h>
#include <string.h>

/*
 * 1 - exp(-size / interval), as for a sample at every byte with the probability 1 / interval, which readers
 * of heap_v2 assume.  Computes exp as a limit of powers, without the mathematical library; near 1 too few
 * digits of the difference would remain, or none, so there the first terms of the series serve.
 */
double profile_probability(uint64_t size, uint64_t interval)
{
	double x = interval ? (double)size / (double)interval : 0;

	if (x > 40)
		return 1;
	if (x < 0.01)
		return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4)));
	double rest = 1 - x / (1 << 24);

	for (int i = 0; i < 24; i++)
		rest *= rest;
	return 1 - rest;
}

/* ---- mappings ------------------------------------------------------------------------------------------ */

static uint64_t take_hex(const char **text)
{
	uint64_t value = 0;

	for (;; ++*text) {
		char c = **text;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (digit < 0)
			return value;
		value = value << 4 | (uint64_t)digit;
	}
}

/* Reads it from the note segment of an image in memory. */
static void find_build_id(const struct profile_dump *dump, uint64_t base, char text[static 41])
{
	static const char digits[] = "0123456789abcdef";
	Elf64_Ehdr header;
	uint64_t bias = 0;
	char notes[1024];

	text[0] = '\0';
	if (!dump->read(dump->process, base, &header, sizeof(header)) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
		return;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		Elf64_Phdr segment;

		if (!dump->read(dump->process, base + header.e_phoff + i * sizeof(segment), &segment,
				sizeof(segment)))
			return;
		if (segment.p_type == PT_LOAD && segment.p_offset == 0)
			bias = base - segment.p_vaddr;
		if (segment.p_type != PT_NOTE || segment.p_memsz > sizeof(notes) ||
		    !dump->read(dump->process, (bias ? bias : base) + segment.p_vaddr, notes,
				segment.p_memsz))
			continue;
		for (size_t at = 0; at + sizeof(Elf64_Nhdr) + 4 <= segment.p_memsz;) {
			Elf64_Nhdr note;

			memcpy(&note, notes + at, sizeof(note));
			const char *name = notes + at + sizeof(note);
			size_t description = at + sizeof(note) + ((note.n_namesz + 3ul) & ~3ul);

			at = description + ((note.n_descsz + 3ul) & ~3ul);
			if (at > segment.p_memsz || at < description)
				break;
			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
			    memcmp(name, "GNU", 4) != 0 || note.n_descsz > 20)
				continue;
			for (unsigned byte = 0; byte < note.n_descsz; byte++) {
				unsigned char value = (unsigned char)notes[description + byte];

				*text++ = digits[value >> 4];
				*text++ = digits[value & 15];
			}
			*text = '\0';
			return;
		}
	}
}

size_t profile_find_mappings(const struct profile_dump *dump)
{
	const char *at = dump->maps, *end = dump->maps + dump->maps_length;
	uint64_t image = 0; /* where the file of the previous line begins */
	size_t count = 0;

	while (at < end && count < PROFILE_MAPPINGS) {
		const char *line_end = memchr(at, '\n', (size_t)(end - at));

		if (!line_end)
			break;
		struct profile_mapping *mapping = &dump->mappings[count];

		mapping->start = take_hex(&at);
		at++;
		mapping->limit = take_hex(&at);
		bool executable = at + 3 < line_end && at[3] == 'x';

		at += 6;
		mapping->offset = take_hex(&at);
		if (mapping->offset == 0)
			image = mapping->start;
		const char *file = memchr(at, '/', (size_t)(line_end - at));
		const char *vdso = memchr(at, '[', (size_t)(line_end - at));

		if (!file)
			file = vdso;
		if (executable && file) {
			size_t length = (size_t)(line_end - file);

			if (length >= PROFILE_PATH)
				length = PROFILE_PATH - 1;
			memcpy(mapping->file, file, length);
			mapping->file[length] = '\0';
			find_build_id(dump, image, mapping->build_id);
			count++;
		}
		at = line_end + 1;
	}
	return count;
}

/* ---- profile.proto ------------------------------------------------------------------------------------- */

/* One message, built before it is written, since its length precedes it. */
struct message {
	size_t length;
	uint8_t bytes[PROFILE_FRAMES * 10 + 256];
};

static void add_varint(struct message *message, uint64_t value)
{
	while (value >= 0x80) {
		message->bytes[message->length++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	message->bytes[message->length++] = (uint8_t)value;
}

static void add_number(struct message *message, unsigned field, uint64_t value)
{
	if (!value)
		return;
	add_varint(message, field << 3);
	add_varint(message, value);
}

static void add_message(struct message *message, unsigned field, const struct message *part)
{
	add_varint(message, field << 3 | 2);
	add_varint(message, part->length);
	memcpy(message->bytes + message->length, part->bytes, part->length);
	message->length += part->length;
}

static void put_bytes(const struct profile_dump *dump, unsigned field, const void *bytes, size_t length)
{
	struct message head = {.length = 0};

	add_varint(&head, field << 3 | 2);
	add_varint(&head, length);
	dump->put(dump->to, head.bytes, head.length);
	dump->put(dump->to, bytes, length);
}

static void put_message(const struct profile_dump *dump, unsigned field, const struct message *message)
{
	put_bytes(dump, field, message->bytes, message->length);
}

static void put_number(const struct profile_dump *dump, unsigned field, uint64_t value)
{
	struct message message = {.length = 0};

	add_number(&message, field, value);
	dump->put(dump->to, message.bytes, message.length);
}

enum string {
	NONE,
	ALLOC_OBJECTS,
	ALLOC_SPACE,
	INUSE_OBJECTS,
	INUSE_SPACE,
	COUNT,
	BYTES,
	SPACE,
	DROP,
	STRINGS
};
/*
 * Readers drop functions whose whole name matches this, and what they call: a sample then ends in the
 * allocator's caller.  Where the library is a file of its own it drops them itself (check/unwind.h);
 * elsewhere these are the functions that a program's call may reach first, since tail calls leave no frame.
 */
static const char allocators[] =
	"malloc|calloc|realloc|reallocarray|memalign|aligned_alloc|posix_memalign|p?valloc|"
	"__libc_(malloc|calloc|realloc|memalign|p?valloc)|operator new.*|_Zn[wa]m.*|"
	"cpuslab_(cache_z?alloc(_bulk|_nowait)?|kmem_.*)|malloc_(usual|slow|aligned.*)|realloc_(usual|"
	"special|grown)|"
	"new_(nothrow_)?missed|alloc_slow|magazine_alloc_.*|linked_alloc_.*|large_(alloc.*|grow|resize)";

static const char *const strings[STRINGS] = {
	[ALLOC_OBJECTS] = "alloc_objects",
	[ALLOC_SPACE] = "alloc_space",
	[INUSE_OBJECTS] = "inuse_objects",
	[INUSE_SPACE] = "inuse_space",
	[COUNT] = "count",
	[BYTES] = "bytes",
	[SPACE] = "space",
	[NONE] = "",
	[DROP] = allocators,
};

static void put_type(const struct profile_dump *dump, unsigned field, enum string type, enum string unit)
{
	struct message message = {.length = 0};

	add_number(&message, 1, type);
	add_number(&message, 2, unit);
	put_message(dump, field, &message);
}

static void sift_down(uint64_t *heap, size_t root, size_t count)
{
	for (size_t child; (child = 2 * root + 1) < count; root = child) {
		if (child + 1 < count && heap[child] < heap[child + 1])
			child++;
		if (heap[root] >= heap[child])
			return;
		uint64_t other = heap[root];

		heap[root] = heap[child];
		heap[child] = other;
	}
}

/* libc's qsort may allocate. */
static void sort(uint64_t *values, size_t count)
{
	for (size_t i = count / 2; i-- > 0;)
		sift_down(values, i, count);
	for (size_t i = count; i-- > 1;) {
		uint64_t largest = values[0];

		values[0] = values[i];
		values[i] = largest;
		sift_down(values, 0, i);
	}
}

static bool is_sampled(const struct profile_dump *dump, size_t i)
{
	return dump->counts[i].allocated && dump->sites[i].frame_count <= PROFILE_FRAMES;
}

/* Returns an address within the call, given its return address. */
static uint64_t call_at(uint64_t return_address)
{
	return return_address - 1;
}

static void put_sample(const struct profile_dump *dump, size_t number)
{
	const struct profile_site *site = &dump->sites[number];
	double scale = 1 / profile_probability(site->size, site->interval);
	uint64_t allocated = dump->counts[number].allocated;
	uint64_t in_use = allocated - dump->counts[number].freed;
	const uint64_t values[] = {
		(uint64_t)((double)allocated * scale + 0.5),
		(uint64_t)((double)(allocated * site->size) * scale + 0.5),
		(uint64_t)((double)in_use * scale + 0.5),
		(uint64_t)((double)(in_use * site->size) * scale + 0.5),
	};
	struct message message = {.length = 0}, label = {.length = 0};

	for (unsigned i = 0; i < site->frame_count; i++) {
		add_varint(&message, 1 << 3);
		add_varint(&message, call_at(site->frames[i]));
	}
	for (unsigned i = 0; i < 4; i++) {
		add_varint(&message, 2 << 3);
		add_varint(&message, values[i]);
	}
	add_number(&label, 1, BYTES);
	add_number(&label, 3, site->size);
	add_number(&label, 4, BYTES);
	add_message(&message, 3, &label);
	put_message(dump, 2, &message);
}

/* Collects the addresses of all frames, each once, sorted; returns how many. */
static size_t collect_addresses(const struct profile_dump *dump)
{
	size_t count = 0, kept = 0;

	for (size_t i = 0; i < dump->site_count; i++)
		for (unsigned f = 0; is_sampled(dump, i) && f < dump->sites[i].frame_count; f++)
			dump->addresses[count++] = call_at(dump->sites[i].frames[f]);
	sort(dump->addresses, count);
	for (size_t i = 0; i < count; i++)
		if (!i || dump->addresses[i] != dump->addresses[i - 1])
			dump->addresses[kept++] = dump->addresses[i];
	return kept;
}

/* Writes a location and a function for each address; their ids are the address itself. */
static void put_locations(const struct profile_dump *dump, size_t mappings, size_t count, uint64_t first_name)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t address = dump->addresses[i];
		struct message location = {.length = 0}, line = {.length = 0}, function = {.length = 0};
		size_t m = 0;

		while (m < mappings &&
		       address - dump->mappings[m].start >= dump->mappings[m].limit - dump->mappings[m].start)
			m++;
		add_number(&location, 1, address);
		add_number(&location, 2, m < mappings ? m + 1 : 0);
		add_number(&location, 3, address);
		add_number(&line, 1, address);
		add_message(&location, 4, &line);
		put_message(dump, 4, &location);
		add_number(&function, 1, address);
		add_number(&function, 2, first_name + i);
		put_message(dump, 5, &function);
	}
}

static void put_names(const struct profile_dump *dump, size_t count)
{
	char text[PROFILE_PATH];

	for (size_t i = 0; i < count; i++) {
		const char *name = dump->name(dump->names, dump->addresses[i], text, sizeof(text));

		put_bytes(dump, 6, name, strlen(name));
	}
}

void profile_write_proto(const struct profile_dump *dump)
{
	size_t mappings = profile_find_mappings(dump), addresses = collect_addresses(dump);

	put_type(dump, 1, ALLOC_OBJECTS, COUNT);
	put_type(dump, 1, ALLOC_SPACE, BYTES);
	put_type(dump, 1, INUSE_OBJECTS, COUNT);
	put_type(dump, 1, INUSE_SPACE, BYTES);
	for (size_t i = 0; i < dump->site_count; i++)
		if (is_sampled(dump, i))
			put_sample(dump, i);
	for (size_t m = 0; m < mappings; m++) {
		const struct profile_mapping *mapping = &dump->mappings[m];
		struct message message = {.length = 0};

		add_number(&message, 1, m + 1);
		add_number(&message, 2, mapping->start);
		add_number(&message, 3, mapping->limit);
		add_number(&message, 4, mapping->offset);
		add_number(&message, 5, STRINGS + 2 * m);
		add_number(&message, 6, STRINGS + 2 * m + 1);
		put_message(dump, 3, &message);
	}
	put_locations(dump, mappings, addresses, STRINGS + 2 * mappings);
	for (unsigned i = 0; i < STRINGS; i++)
		put_bytes(dump, 6, strings[i], strlen(strings[i]));
	for (size_t m = 0; m < mappings; m++) {
		put_bytes(dump, 6, dump->mappings[m].file, strlen(dump->mappings[m].file));
		put_bytes(dump, 6, dump->mappings[m].build_id, strlen(dump->mappings[m].build_id));
	}
	put_names(dump, addresses);
	put_number(dump, 7, DROP);
	put_number(dump, 9, (uint64_t)dump->when);
	put_number(dump, 10, (uint64_t)dump->duration);
	put_type(dump, 11, SPACE, BYTES);
	put_number(dump, 12, dump->interval);
	put_number(dump, 14, INUSE_SPACE);
}

/* ---- heap_v2 ------------------------------------------------------------------------------------------- */

struct text {
	size_t length;
	char bytes[PROFILE_FRAMES * 20 + 256];
};

static void add_text(struct text *text, const char *words)
{
	size_t length = strlen(words);

	memcpy(text->bytes + text->length, words, length);
	text->length += length;
}

static void add_digits(struct text *text, uint64_t value, unsigned base)
{
	char digits[24], *digit = digits + sizeof(digits);

	*--digit = '\0';
	do
		*--digit = "0123456789abcdef"[value % base];
	while (value /= base);
	add_text(text, digit);
}

/* "objects: bytes [objects: bytes] @" */
static void add_counts(struct text *text, uint64_t objects, uint64_t bytes, uint64_t all_objects,
		       uint64_t all_bytes)
{
	add_digits(text, objects, 10);
	add_text(text, ": ");
	add_digits(text, bytes, 10);
	add_text(text, " [");
	add_digits(text, all_objects, 10);
	add_text(text, ": ");
	add_digits(text, all_bytes, 10);
	add_text(text, "] @");
}

/* Readers know one interval only: a site sampled more sparsely counts for more samples. */
static uint64_t samples_at(uint64_t interval, const struct profile_site *site, uint64_t samples)
{
	if (site->interval == interval)
		return samples;
	return (uint64_t)((double)samples * profile_probability(site->size, interval) /
				  profile_probability(site->size, site->interval) +
			  0.5);
}

void profile_write_text(const struct profile_dump *dump)
{
	uint64_t objects = 0, bytes = 0, all_objects = 0, all_bytes = 0;
	struct text text = {.length = 0};

	for (size_t i = 0; i < dump->site_count; i++) {
		const struct profile_site *site = &dump->sites[i];
		const struct profile_counts *counts = &dump->counts[i];

		if (!is_sampled(dump, i))
			continue;
		uint64_t all = samples_at(dump->interval, site, counts->allocated);
		uint64_t in_use = samples_at(dump->interval, site, counts->allocated - counts->freed);

		objects += in_use;
		bytes += in_use * site->size;
		all_objects += all;
		all_bytes += all * site->size;
	}
	add_text(&text, "heap profile: ");
	add_counts(&text, objects, bytes, all_objects, all_bytes);
	add_text(&text, " heap_v2/");
	add_digits(&text, dump->interval, 10);
	add_text(&text, "\n");
	dump->put(dump->to, text.bytes, text.length);
	for (size_t i = 0; i < dump->site_count; i++) {
		const struct profile_site *site = &dump->sites[i];
		const struct profile_counts *counts = &dump->counts[i];

		if (!is_sampled(dump, i))
			continue;
		uint64_t all = samples_at(dump->interval, site, counts->allocated);
		uint64_t in_use = samples_at(dump->interval, site, counts->allocated - counts->freed);

		text.length = 0;
		add_counts(&text, in_use, in_use * site->size, all, all * site->size);
		for (unsigned f = 0; f < site->frame_count; f++) {
			add_text(&text, " 0x");
			add_digits(&text, site->frames[f], 16);
		}
		add_text(&text, "\n");
		dump->put(dump->to, text.bytes, text.length);
	}
	dump->put(dump->to, "\nMAPPED_LIBRARIES:\n", 19);
	dump->put(dump->to, dump->maps, dump->maps_length);
}
