/* SPDX-License-Identifier: MIT */
/* For kernel sources in user space: frees and unlocks at the end of a scope. */
#pragma GCC system_header /* beside macros of these names: linux/compiler.h */
#ifndef CPUSLAB_LINUX_CLEANUP_H
#define CPUSLAB_LINUX_CLEANUP_H

#include <linux/compiler.h>

/* The cleanup counts as a use, but not to clang. */
#define __cleanup(function) __attribute__((__cleanup__(function), __unused__))

/* `release` is a statement on _T, the variable's final value. */
#define DEFINE_FREE(name, type, release)                                                                     \
	static inline __maybe_unused void __free_##name(void *place)                                         \
	{                                                                                                    \
		type _T = *(type *)place;                                                                    \
		release;                                                                                     \
	}
#define __free(name) __cleanup(__free_##name)

/* Returns the variable's value, which is then not freed. */
#define no_free_ptr(pointer)                                                                                 \
	({                                                                                                   \
		__typeof__(pointer) *cpuslab_place = &(pointer), cpuslab_kept = *cpuslab_place;              \
		*cpuslab_place = NULL;                                                                       \
		cpuslab_kept;                                                                                \
	})
#define return_ptr(pointer) return no_free_ptr(pointer)
/* Passes ownership on: clears the variable, so that its value is not freed. */
#define retain_and_null_ptr(pointer) ((void)no_free_ptr(pointer))

/*
 * CLASS(name, variable)(arguments) defines a variable of a class: `begin` computes its initial value from the
 * arguments, and `end` is a statement on _T, its value when its scope ends.
 */
#define DEFINE_CLASS(name, type, end, begin, ...)                                                            \
	typedef type class_##name##_t;                                                                       \
	static inline __maybe_unused class_##name##_t class_##name##_constructor(__VA_ARGS__)                \
	{                                                                                                    \
		return begin;                                                                                \
	}                                                                                                    \
	static inline __maybe_unused void class_##name##_destructor(class_##name##_t *cpuslab_place)         \
	{                                                                                                    \
		class_##name##_t _T __maybe_unused = *cpuslab_place;                                         \
		end;                                                                                         \
	}
#define CLASS(name, variable)                                                                                \
	class_##name##_t variable __cleanup(class_##name##_destructor) = class_##name##_constructor

/* A class whose variables are only held: _T points to what is locked. */
#define DEFINE_GUARD(name, type, lock, unlock)                                                               \
	DEFINE_CLASS(                                                                                        \
		name, type, if (_T) { unlock; }, ({                                                          \
			lock;                                                                                \
			_T;                                                                                  \
		}),                                                                                          \
		type _T)

/* The same for a lock that is released with more than itself: _T->lock, and the members named here. */
#define DEFINE_LOCK_GUARD_1(name, type, lock_it, unlock_it, ...)                                             \
	struct cpuslab_guard_##name {                                                                        \
		type *lock;                                                                                  \
		__VA_ARGS__;                                                                                 \
	};                                                                                                   \
	static inline __maybe_unused struct cpuslab_guard_##name cpuslab_guard_##name##_of(type *lock)       \
	{                                                                                                    \
		struct cpuslab_guard_##name guard, *_T = &guard;                                             \
                                                                                                             \
		_T->lock = lock;                                                                             \
		lock_it;                                                                                     \
		return guard;                                                                                \
	}                                                                                                    \
	static inline __maybe_unused void cpuslab_guard_##name##_end(struct cpuslab_guard_##name *_T)        \
	{                                                                                                    \
		if (_T->lock)                                                                                \
			unlock_it;                                                                           \
	}                                                                                                    \
	DEFINE_CLASS(name, struct cpuslab_guard_##name, cpuslab_guard_##name##_end(&_T),                     \
		     cpuslab_guard_##name##_of(lock), type *lock)

/* The same for a lock that is not an object. */
#define DEFINE_LOCK_GUARD_0(name, lock_it, unlock_it)                                                        \
	DEFINE_CLASS(name, int, unlock_it, ({                                                                \
			     lock_it;                                                                        \
			     0;                                                                              \
		     }),                                                                                     \
		     void)

#define CPUSLAB_GUARD_NAME(number)  CPUSLAB_GUARD_NAME_(number)
#define CPUSLAB_GUARD_NAME_(number) cpuslab_guarded_##number

/* guard(name)(lock): holds the lock to the end of the scope. */
#define guard(name) CLASS(name, CPUSLAB_GUARD_NAME(__COUNTER__))
/*
 * scoped_guard(name, lock) statement: holds the lock during the statement, which `break` leaves.  The loop
 * ends by a jump, not by a condition, so that the compiler sees that the statement runs exactly once.
 */
#define scoped_guard(name, ...)              CPUSLAB_SCOPED_GUARD(name, CPUSLAB_GUARD_NAME(__COUNTER__), __VA_ARGS__)
#define CPUSLAB_SCOPED_GUARD(name, end, ...) CPUSLAB_SCOPED_GUARD_(name, end, __VA_ARGS__)
#define CPUSLAB_SCOPED_GUARD_(name, end, ...)                                                                \
	if (0) {                                                                                             \
	end:;                                                                                                \
	} else                                                                                               \
		for (CLASS(name, cpuslab_scope)(__VA_ARGS__);; ({ goto end; }))

#endif
