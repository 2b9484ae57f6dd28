/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <string.h>

/*
 * Barnes-Hut in integers: the forces must be the same under every allocator and compiler, so positions are
 * fixed point and sums are exact.
 */
enum { BODIES = 8000, DEPTH_MAX = 24 };

struct body {
	int32_t position[3], speed[3];
};

struct cell {
	struct cell *child[8];
	const struct body *body; /* of a leaf, else NULL */
	int64_t sum[3];          /* of the positions of all bodies below */
	uint32_t count;
};

static struct cell *cell_new(void)
{
	struct cell *cell = heap_allocate(sizeof(*cell));
	memset(cell, 0, sizeof(*cell));
	return cell;
}

static void insert(struct cell *cell, const struct body *body, unsigned depth)
{
	const struct body *moved = cell->body;
	for (unsigned axis = 0; axis < 3; axis++)
		cell->sum[axis] += body->position[axis];
	if (cell->count++ == 0) {
		cell->body = body;
		return;
	}
	if (depth == DEPTH_MAX)
		return;
	cell->body = NULL;
	for (const struct body *next = moved ? moved : body; next; next = next == body ? NULL : body) {
		unsigned octant = 0;
		for (unsigned axis = 0; axis < 3; axis++)
			octant |= ((uint32_t)next->position[axis] >> (31 - depth) & 1) << axis;
		if (!cell->child[octant])
			cell->child[octant] = cell_new();
		insert(cell->child[octant], next, depth + 1);
	}
}

/* A cell that is small for its distance stands for all of its bodies. */
static void attract(const struct cell *cell, const struct body *body, unsigned depth, int64_t force[3])
{
	int64_t far = 0, delta[3];
	for (unsigned axis = 0; axis < 3; axis++) {
		delta[axis] = cell->sum[axis] / cell->count - body->position[axis];
		int64_t distance = delta[axis] < 0 ? -delta[axis] : delta[axis];
		far = distance > far ? distance : far;
	}
	if (cell->count == 1 || depth == DEPTH_MAX || (far >> (31 - depth)) >= 1) {
		for (unsigned axis = 0; axis < 3; axis++)
			force[axis] += delta[axis] * cell->count / ((far >> 10) + 64);
		return;
	}
	for (unsigned octant = 0; octant < 8; octant++)
		if (cell->child[octant])
			attract(cell->child[octant], body, depth + 1, force);
}

static void cell_free(struct cell *cell)
{
	for (unsigned octant = 0; octant < 8; octant++)
		if (cell->child[octant])
			cell_free(cell->child[octant]);
	heap_release(cell);
}

uint64_t workload_nbody(unsigned scale)
{
	struct body *bodies = heap_allocate(BODIES * sizeof(*bodies));
	uint64_t random = 2, checksum = 0;
	for (unsigned i = 0; i < BODIES; i++)
		for (unsigned axis = 0; axis < 3; axis++) {
			bodies[i].position[axis] = (int32_t)(random_next(&random) >> 34);
			bodies[i].speed[axis] = 0;
		}
	for (unsigned step = 0; step < 1 + 4 * scale; step++) {
		struct cell *root = cell_new();
		for (unsigned i = 0; i < BODIES; i++)
			insert(root, &bodies[i], 0);
		/* Only a sample of the walks is done: the tree is what this workload is about. */
		for (unsigned i = step % 8; i < BODIES; i += 8) {
			int64_t force[3] = {0};
			attract(root, &bodies[i], 0, force);
			for (unsigned axis = 0; axis < 3; axis++)
				bodies[i].speed[axis] = (int32_t)(force[axis] >> 4);
		}
		cell_free(root);
		for (unsigned i = 0; i < BODIES; i++)
			for (unsigned axis = 0; axis < 3; axis++)
				bodies[i].position[axis] =
					(bodies[i].position[axis] + bodies[i].speed[axis]) & 0x3fffffff;
	}
	for (unsigned i = 0; i < BODIES; i++)
		checksum = mix(checksum, (uint64_t)bodies[i].position[0]);
	heap_release(bodies);
	return checksum;
}
