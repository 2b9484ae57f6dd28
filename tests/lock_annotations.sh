#!/bin/sh
# Clang's thread-safety analysis on users of the locks: right code is accepted, each kind of wrong code refused.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
compiler=$("$root/scripts/clang" clang) || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# compile LANGUAGE: standard input is what follows the declarations
compile() {
	{
		if [ "$1" = c ]; then
			cat <<-'END'
				#include <cpuslab/lock.h>
				static struct cpuslab_pagelock page;
				static struct cpuslab_spinlock spin;
				static struct cpuslab_mcs mcs;
				static int value CPUSLAB_GUARDED_BY(page);
				static int cheap CPUSLAB_GUARDED_BY(spin);
				static inline int next(void) CPUSLAB_REQUIRES(page) { return ++value; }
				int test(void);
				int test(void)
			END
		else
			cat <<-'END'
				#include <cpuslab/lock.hpp>
				static cpuslab::pagelock page;
				static cpuslab::spinlock spin;
				static cpuslab::mcs mcs;
				static int value CPUSLAB_GUARDED_BY(page);
				static int cheap CPUSLAB_GUARDED_BY(spin);
				static int queued CPUSLAB_GUARDED_BY(mcs);
				int test();
				int test()
			END
		fi
		cat
	} >"$folder/test.$1"
	language=$([ "$1" = c ] && echo "-x c -std=gnu17" || echo "-x c++ -std=c++17")
	# shellcheck disable=SC2086
	"$compiler" $language -D_GNU_SOURCE -I"$root/include" -Wall -Wthread-safety -Werror -Wno-unused -fsyntax-only \
		"$folder/test.$1" 2>"$folder/said"
}

accepts() {
	compile "$1" || { echo "refused, though right:"; cat "$folder/test.$1" "$folder/said"; exit 1; }
}

refuses() {
	if compile "$1" || ! grep -q thread-safety "$folder/said"; then
		echo "accepted, though wrong:"
		cat "$folder/test.$1" "$folder/said"
		exit 1
	fi
}

accepts c <<'END'
{
	struct timespec deadline = {0, 0};
	struct cpuslab_mcs_node node;
	cpuslab_pagelock_lock(&page);
	int result = next();
	cpuslab_pagelock_unlock_flip(&page, 2);
	if (cpuslab_pagelock_trylock(&page)) {
		result += value;
		cpuslab_pagelock_unlock(&page);
	}
	if (cpuslab_pagelock_timedlock(&page, &deadline) == 0) {
		result += value;
		cpuslab_pagelock_unlock(&page);
	}
	cpuslab_spin_lock(&spin);
	result += cheap;
	cpuslab_spin_unlock(&spin);
	cpuslab_mcs_lock(&mcs, &node);
	cpuslab_mcs_unlock(&mcs, &node);
	return result;
}
END
refuses c <<'END'
{ return value; }
END
refuses c <<'END'
{ return next(); }
END
refuses c <<'END'
{ cpuslab_spin_lock(&spin); return value; }
END
refuses c <<'END'
{ cpuslab_pagelock_lock(&page); return 0; }
END
refuses c <<'END'
{ cpuslab_pagelock_unlock(&page); return 0; }
END
refuses c <<'END'
{ cpuslab_pagelock_lock(&page); cpuslab_pagelock_lock(&page); cpuslab_pagelock_unlock(&page); return 0; }
END
refuses c <<'END'
{ struct cpuslab_mcs_node node; cpuslab_mcs_lock(&mcs, &node); return 0; }
END
refuses c <<'END'
{
	struct timespec deadline = {0, 0};
	if (cpuslab_pagelock_timedlock(&page, &deadline)) {
		value++;
		cpuslab_pagelock_unlock(&page);
	}
	return 0;
}
END
accepts cc <<'END'
{
	cpuslab::mcs::guard guard(mcs);
	page.lock();
	int result = value + queued;
	page.unlock();
	if (spin.try_lock()) {
		result += cheap;
		spin.unlock();
	}
	if (page.try_lock_for(std::chrono::seconds(1))) {
		result += value;
		page.unlock_flip(2);
	}
	return result;
}
END
refuses cc <<'END'
{ page.lock(); int result = cheap; page.unlock(); return result; }
END
refuses cc <<'END'
{ page.lock(); return 0; }
END
refuses cc <<'END'
{ { cpuslab::mcs::guard guard(mcs); } return queued; }
END
echo "right code accepted, wrong code refused"
