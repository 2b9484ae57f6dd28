/* SPDX-License-Identifier: MIT */
/*
 * Renames the engine's functions for a variant, by VARIANT_NAME; must be included before any of the engine's
 * headers.
 */
#define VARIANT_JOIN(a, b)       VARIANT_JOIN_AGAIN(a, b)
#define VARIANT_JOIN_AGAIN(a, b) a##_##b
#define linked_init              VARIANT_JOIN(VARIANT_NAME, init)
#define linked_put_back          VARIANT_JOIN(VARIANT_NAME, put_back)
#define linked_release_empty     VARIANT_JOIN(VARIANT_NAME, release_empty)
#define linked_enlist            VARIANT_JOIN(VARIANT_NAME, enlist)
#define linked_next              VARIANT_JOIN(VARIANT_NAME, next)
#define linked_checked_next      VARIANT_JOIN(VARIANT_NAME, checked_next)
#define linked_alloc_missed      VARIANT_JOIN(VARIANT_NAME, alloc_missed)
#define linked_try_alloc_missed  VARIANT_JOIN(VARIANT_NAME, try_alloc_missed)
#define linked_free_missed       VARIANT_JOIN(VARIANT_NAME, free_missed)
#define linked_alloc_several     VARIANT_JOIN(VARIANT_NAME, alloc_several)
#define linked_free_several      VARIANT_JOIN(VARIANT_NAME, free_several)
