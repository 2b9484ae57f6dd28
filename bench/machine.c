/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include "statistics.h"
#include "ticks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

double ticks_per_second(double seconds)
{
	double start = seconds_now(), now;
	uint64_t first = ticks();
	do
		now = seconds_now();
	while (now - start < seconds);
	return (double)(ticks() - first) / (now - start);
}

double core_hertz(void)
{
#if defined(__x86_64__)
#define DEPENDENT_ADDITION "add %1, %0\n"
#elif defined(__aarch64__)
#define DEPENDENT_ADDITION "add %0, %0, %1\n"
#endif
#if defined(DEPENDENT_ADDITION)
	double best = 0;
	for (int attempt = 0; attempt < 5; attempt++) {
		unsigned long x = 1, steps = 1000000;
		double start = seconds_now();
		/* Eight dependent additions: the loop's own instructions overlap with them. */
		for (unsigned long i = 0; i < steps; i++)
			__asm__ volatile(DEPENDENT_ADDITION DEPENDENT_ADDITION DEPENDENT_ADDITION
						 DEPENDENT_ADDITION DEPENDENT_ADDITION DEPENDENT_ADDITION
							 DEPENDENT_ADDITION DEPENDENT_ADDITION
					 : "+r"(x)
					 : "r"(i)
					 : "cc");
		double hertz = 8 * (double)steps / (seconds_now() - start);
		best = hertz > best ? hertz : best;
	}
	return best;
#else
	return 0;
#endif
}

/* Reads the text after `key` in a file of "key : text" lines, or the whole first line without a key. */
static bool read_field(const char *path, const char *key, char *text, size_t size)
{
	FILE *file = fopen(path, "re");
	char line[512];
	bool found = false;
	while (file && !found && fgets(line, sizeof(line), file)) {
		char *value = line;
		if (key) {
			if (strncmp(line, key, strlen(key)) != 0 || !(value = strchr(line, ':')))
				continue;
			value += 1 + strspn(value + 1, " \t");
		}
		value[strcspn(value, "\n")] = '\0';
		snprintf(text, size, "%.150s", value);
		found = true;
	}
	if (file)
		fclose(file);
	return found;
}

unsigned machine_cpus(void)
{
	cpu_set_t allowed;
	return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? (unsigned)CPU_COUNT(&allowed) : 1;
}

int machine_pinned_cpu(void)
{
	cpu_set_t allowed;
	int last = 0;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &allowed))
				last = cpu;
	return last;
}

void machine_describe(struct results *results)
{
	char text[200], value[160];
	struct utsname system;
	enum { LIMIT = sizeof(results->machine) / sizeof(results->machine[0]) };
#define FACT(name, ...)                                                                                      \
	(snprintf(text, sizeof(text), __VA_ARGS__),                                                          \
	 results_fact(results->machine, &results->machine_count, LIMIT, name, text))
	time_t now = time(NULL);
	struct tm calendar;
	gmtime_r(&now, &calendar);
	strftime(value, sizeof(value), "%Y-%m-%d %H:%M UTC", &calendar);
	FACT("date", "%s", value);
	FACT("cpu", "%s",
	     read_field("/proc/cpuinfo", "model name", value, sizeof(value)) ? value : "unknown");
	FACT("cores", "%u", machine_cpus());
	if (read_field("/proc/meminfo", "MemTotal", value, sizeof(value)))
		FACT("memory", "%.1f GiB", strtod(value, NULL) / (1 << 20));
	if (uname(&system) == 0)
		FACT("kernel", "%s %s %s", system.sysname, system.release, system.machine);
	FACT("libc", "%s", confstr(_CS_GNU_LIBC_VERSION, value, sizeof(value)) ? value : "musl");
	if (read_field("/sys/kernel/mm/transparent_hugepage/enabled", NULL, value, sizeof(value)))
		FACT("huge pages", "%s", value);
	double tick = ticks_per_second(0.05), core = core_hertz();
	FACT("clocks", "%s at %.2f GHz, core at %.2f GHz while busy", TICKS_UNIT, tick / 1e9, core / 1e9);
	FACT("pinned to", "CPU %d (single-threaded tests)", machine_pinned_cpu());
#undef FACT
}

struct machine_time machine_time(void)
{
	struct machine_time time = {0};
	unsigned long long t[8] = {0};
	FILE *file = fopen("/proc/stat", "re");
	if (!file)
		return time;
	/* user nice system idle iowait irq softirq steal */
	if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4],
		   &t[5], &t[6], &t[7]) == 8) {
		for (int i = 0; i < 8; i++)
			time.total += t[i];
		time.idle = t[3] + t[4];
		time.stolen = t[7];
	}
	fclose(file);
	return time;
}

void machine_judge(struct results *results, struct machine_time start)
{
	struct machine_time now = machine_time();
	char text[200];
	double total = (double)(now.total - start.total);
	double stolen = total > 0 ? (double)(now.stolen - start.stolen) / total : 0;
	if (stolen > 0.01) {
		snprintf(text, sizeof(text),
			 "the hypervisor took away %.1f %% of the machine's time during the run",
			 100 * stolen);
		results_note(results, "noisy: stolen time", text);
	}
	unsigned noisy = 0, timed = 0;
	double worst = 0;
	for (unsigned i = 0; i < results->count; i++) {
		const struct series *s = &results->series[i];
		if (s->role != ROLE_MEASURED || s->count < 4 ||
		    (strcmp(s->unit, "s") != 0 && strcmp(s->unit, TICKS_UNIT) != 0))
			continue;
		double spread = spread_of(s->samples, s->count);
		timed++;
		noisy += spread > 0.05;
		worst = spread > worst ? spread : worst;
	}
	if (timed > 0 && noisy > timed / 5) {
		snprintf(
			text, sizeof(text),
			"%u of %u timed series spread by more than 5 %% around their median (worst %.0f %%): "
			"trust ratios, not times",
			noisy, timed, 100 * worst);
		results_note(results, "noisy: spread", text);
	}
}
