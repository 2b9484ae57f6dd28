/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <stdio.h>
#include <string.h>

/*
 * Text to tree and back, as a service does for every request.  Arrays and output buffers grow by realloc,
 * strings are blocks of their own, and the tree is freed as a whole.
 */
struct value {
	enum { JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } kind;
	int64_t number;
	char *string;
	struct value **items; /* an object's keys are strings at even indexes */
	unsigned count, capacity;
};

struct buffer {
	char *text;
	size_t length, capacity;
};

static struct value *value_new(int kind)
{
	struct value *value = heap_allocate(sizeof(*value));
	*value = (struct value){.kind = kind};
	return value;
}

static void value_free(struct value *value)
{
	for (unsigned i = 0; i < value->count; i++)
		value_free(value->items[i]);
	if (value->items)
		heap_release(value->items);
	if (value->string)
		heap_release(value->string);
	heap_release(value);
}

static void value_push(struct value *value, struct value *item)
{
	if (value->count == value->capacity) {
		value->capacity = value->capacity ? 2 * value->capacity : 2;
		value->items = value->items
				       ? heap_resize(value->items, value->capacity * sizeof(struct value *))
				       : heap_allocate(value->capacity * sizeof(struct value *));
	}
	value->items[value->count++] = item;
}

static struct value *parse(const char **text)
{
	struct value *value;
	char open = **text;
	if (open == '"') {
		size_t length = strcspn(*text + 1, "\"");
		value = value_new(JSON_STRING);
		value->string = heap_allocate(length + 1);
		memcpy(value->string, *text + 1, length);
		value->string[length] = '\0';
		*text += length + 2;
	} else if (open == '[' || open == '{') {
		value = value_new(open == '[' ? JSON_ARRAY : JSON_OBJECT);
		++*text;
		while (**text != ']' && **text != '}') {
			value_push(value, parse(text));
			/* A comma separates items, a colon a key from its value. */
			if (**text == ',' || **text == ':')
				++*text;
		}
		++*text;
	} else {
		value = value_new(JSON_NUMBER);
		while (**text >= '0' && **text <= '9')
			value->number = 10 * value->number + (*(*text)++ - '0');
	}
	return value;
}

static void put(struct buffer *buffer, const char *text, size_t length)
{
	if (buffer->length + length + 1 > buffer->capacity) {
		buffer->capacity = 2 * (buffer->length + length + 1);
		buffer->text = buffer->text ? heap_resize(buffer->text, buffer->capacity)
					    : heap_allocate(buffer->capacity);
	}
	memcpy(buffer->text + buffer->length, text, length);
	buffer->length += length;
	buffer->text[buffer->length] = '\0';
}

static void write_value(struct buffer *buffer, const struct value *value)
{
	char number[24];
	switch (value->kind) {
	case JSON_NUMBER:
		put(buffer, number, (size_t)sprintf(number, "%llu", (unsigned long long)value->number));
		return;
	case JSON_STRING:
		put(buffer, "\"", 1);
		put(buffer, value->string, strlen(value->string));
		put(buffer, "\"", 1);
		return;
	case JSON_ARRAY:
	case JSON_OBJECT:
		put(buffer, value->kind == JSON_ARRAY ? "[" : "{", 1);
		for (unsigned i = 0; i < value->count; i++) {
			if (i > 0)
				put(buffer, value->kind == JSON_OBJECT && i % 2 ? ":" : ",", 1);
			write_value(buffer, value->items[i]);
		}
		put(buffer, value->kind == JSON_ARRAY ? "]" : "}", 1);
		return;
	}
}

/* Replaces every string by a longer one; every third array loses its tail. */
static void change(struct value *value, unsigned *seen)
{
	++*seen;
	if (value->kind == JSON_NUMBER)
		value->number += *seen;
	if (value->kind == JSON_STRING) {
		size_t length = strlen(value->string);
		value->string = heap_resize(value->string, length + 8);
		memcpy(value->string + length, "-edited", 8);
	}
	if (value->kind == JSON_ARRAY && *seen % 3 == 0)
		while (value->count > 1)
			value_free(value->items[--value->count]);
	for (unsigned i = 0; i < value->count; i++)
		change(value->items[i], seen);
}

static struct value *generate(uint64_t *random, unsigned depth)
{
	unsigned choice = depth == 0 ? random_under(random, 2) : random_under(random, 4);
	struct value *value = value_new((int)choice);
	if (choice == JSON_NUMBER) {
		value->number = random_under(random, 1000000);
	} else if (choice == JSON_STRING) {
		size_t length = random_size(random, 8, 5);
		value->string = heap_allocate(length + 1);
		memset(value->string, 'a' + (int)random_under(random, 26), length);
		value->string[length] = '\0';
	} else {
		unsigned items = 1 + random_under(random, 12);
		for (unsigned i = 0; i < items; i++) {
			if (choice == JSON_OBJECT) {
				struct value *key = value_new(JSON_STRING);
				key->string = heap_allocate(16);
				snprintf(key->string, 16, "field%u", i);
				value_push(value, key);
			}
			value_push(value, generate(random, depth - 1));
		}
	}
	return value;
}

uint64_t workload_json(unsigned scale)
{
	uint64_t random = 5, checksum = 0;
	struct buffer request = {0};
	/* One document of a few hundred KiB, requested again and again. */
	struct value *root = value_new(JSON_ARRAY);
	for (unsigned i = 0; i < 64; i++)
		value_push(root, generate(&random, 5));
	write_value(&request, root);
	value_free(root);
	for (unsigned i = 0; i < 1 + scale; i++) {
		const char *at = request.text;
		struct buffer response = {0};
		unsigned seen = i;
		struct value *document = parse(&at);
		change(document, &seen);
		write_value(&response, document);
		value_free(document);
		checksum = mix(checksum, response.length + (unsigned char)response.text[response.length / 2]);
		heap_release(response.text);
	}
	heap_release(request.text);
	return checksum;
}
