/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <stdio.h>
#include <string.h>

/* An expression is parsed from text into a tree of small nodes, simplified, evaluated and freed. */
struct node {
	enum { NODE_NUMBER, NODE_VARIABLE, NODE_OPERATION } kind;
	char operation;
	int64_t number;
	char *name; /* NODE_VARIABLE: a copy of its own, as in a compiler's front end */
	struct node *left, *right;
};

static struct node *node_new(int kind)
{
	struct node *node = heap_allocate(sizeof(*node));
	*node = (struct node){.kind = kind};
	return node;
}

static void node_free(struct node *node)
{
	if (!node)
		return;
	node_free(node->left);
	node_free(node->right);
	if (node->name)
		heap_release(node->name);
	heap_release(node);
}

static struct node *parse_sum(const char **text);

static struct node *parse_factor(const char **text)
{
	struct node *node;
	if (**text == '(') {
		++*text;
		node = parse_sum(text);
		++*text;
	} else if (**text >= '0' && **text <= '9') {
		node = node_new(NODE_NUMBER);
		while (**text >= '0' && **text <= '9')
			node->number = 10 * node->number + (*(*text)++ - '0');
	} else {
		size_t length = strcspn(*text, "+-*)");
		node = node_new(NODE_VARIABLE);
		node->name = heap_allocate(length + 1);
		memcpy(node->name, *text, length);
		node->name[length] = '\0';
		*text += length;
	}
	return node;
}

static struct node *join(char operation, struct node *left, struct node *right)
{
	struct node *node = node_new(NODE_OPERATION);
	node->operation = operation;
	node->left = left;
	node->right = right;
	return node;
}

static struct node *parse_product(const char **text)
{
	struct node *left = parse_factor(text);
	while (**text == '*') {
		++*text;
		left = join('*', left, parse_factor(text));
	}
	return left;
}

static struct node *parse_sum(const char **text)
{
	struct node *left = parse_product(text);
	while (**text == '+' || **text == '-') {
		char operation = *(*text)++;
		left = join(operation, left, parse_product(text));
	}
	return left;
}

static int64_t apply(char operation, int64_t left, int64_t right)
{
	uint64_t a = (uint64_t)left, b = (uint64_t)right;
	return (int64_t)(operation == '+' ? a + b : operation == '-' ? a - b : a * b);
}

/* Folds constants: nodes are freed in the middle of the tree, out of order. */
static struct node *simplify(struct node *node)
{
	if (node->kind != NODE_OPERATION)
		return node;
	node->left = simplify(node->left);
	node->right = simplify(node->right);
	if (node->left->kind != NODE_NUMBER || node->right->kind != NODE_NUMBER)
		return node;
	struct node *folded = node_new(NODE_NUMBER);
	folded->number = apply(node->operation, node->left->number, node->right->number);
	node_free(node);
	return folded;
}

static int64_t evaluate(const struct node *node)
{
	if (node->kind == NODE_NUMBER)
		return node->number;
	if (node->kind == NODE_VARIABLE)
		return (int64_t)strlen(node->name) * node->name[0];
	return apply(node->operation, evaluate(node->left), evaluate(node->right));
}

static char *write_expression(char *to, uint64_t *random, unsigned depth)
{
	unsigned choice = random_under(random, 8);
	if (depth == 0 || choice == 0) {
		if (random_under(random, 2))
			return to + sprintf(to, "%u", random_under(random, 1000));
		for (unsigned length = 1 + random_under(random, 12); length > 0; length--)
			*to++ = (char)('a' + random_under(random, 26));
		return to;
	}
	*to++ = '(';
	to = write_expression(to, random, depth - 1);
	*to++ = "+-*"[random_under(random, 3)];
	to = write_expression(to, random, depth - 1);
	*to++ = ')';
	return to;
}

uint64_t workload_expression(unsigned scale)
{
	enum { DEPTH = 9, KEPT = 64 };
	static char text[1 << 15];
	struct node *kept[KEPT] = {NULL};
	uint64_t random = 1, checksum = 0;
	for (unsigned i = 0; i < 300 * scale; i++) {
		*write_expression(text, &random, DEPTH) = '\0';
		const char *at = text;
		struct node *tree = simplify(parse_sum(&at));
		checksum = mix(checksum, (uint64_t)evaluate(tree));
		/* Some results live on for a while, as in a spreadsheet. */
		unsigned slot = random_under(&random, KEPT);
		node_free(kept[slot]);
		kept[slot] = tree;
	}
	for (unsigned slot = 0; slot < KEPT; slot++)
		node_free(kept[slot]);
	return checksum;
}
