/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * How many cores this process may use: those that its affinity allows, one thread for each, and no more than the
 * processor time that control groups leave it. */
#include "system.h"

#include <sched.h>
#include <unistd.h>

#ifdef __linux__
/* Whether cpu is the first of the hardware threads that share its core. */
static bool leads_core(int cpu) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE* f = fopen(path, "r");
  int first = cpu;
  if (f != NULL) {
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
  }
  return first == cpu;
}

/* The number in a file of a group; 0 for what is no number, such as "max", or where there is no file. */
static long long number_in(const char* folder, const char* name) {
  char path[PATH_MAX];
  long long n = 0;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
  FILE* f = fopen(path, "r");
  if (f == NULL) return 0;
  if (fscanf(f, "%lld", &n) != 1) n = 0;
  fclose(f);
  return n;
}

/* The processor time of one group, in whole CPUs; 0 when unlimited. */
static int quota_of(const char* folder) {
  char path[PATH_MAX];
  long long quota = 0, period = 0;
  if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path) return 0;
  FILE* f = fopen(path, "r");
  if (f != NULL) {
    if (fscanf(f, "%lld %lld", &quota, &period) != 2) quota = 0;
    fclose(f);
  } else { /* version 1 of control groups */
    quota = number_in(folder, "cpu.cfs_quota_us");
    period = number_in(folder, "cpu.cfs_period_us");
  }
  if (quota <= 0 || period <= 0) return 0;
  return quota / period >= INT_MAX ? 0 : (int)((quota + period - 1) / period);
}

/* The least quota of the group at root/path and of all that it is in, up to the root; 0 when unlimited. */
static int quota_up_from(const char* root, const char* path) {
  char folder[PATH_MAX];
  int least = 0;
  if (snprintf(folder, sizeof folder, "%s%s", root, path) >= (int)sizeof folder) return 0;
  for (size_t length = strlen(folder), top = strlen(root); length >= top;) {
    folder[length] = '\0';
    int quota = quota_of(folder);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
    if (length == top) break;
    do --length; while (length > top && folder[length] != '/');
  }
  return least;
}

/* Whether a comma-separated list has a word. */
static bool lists(const char* list, const char* word) {
  size_t length = strlen(word);
  for (const char* at = list; (at = strstr(at, word)) != NULL; at += length) {
    if ((at == list || at[-1] == ',') && (at[length] == '\0' || at[length] == ',')) return true;
  }
  return false;
}

int tw_quota_cpus(const char* memberships, const char* root) {
  FILE* f = fopen(memberships, "r");
  char line[PATH_MAX + 128], folder[PATH_MAX];
  int least = f == NULL ? quota_up_from(root, "") : 0;
  /* lines such as "0::/user.slice/app.scope", and "4:cpu,cpuacct:/docker/3f0" in version 1 */
  while (f != NULL && fgets(line, sizeof line, f) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* controllers = strchr(line, ':');
    char* path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (path == NULL) continue;
    *path++ = '\0';
    ++controllers;
    if (controllers[0] != '\0' && !lists(controllers, "cpu")) continue;
    snprintf(folder, sizeof folder, "%s%s", root, controllers[0] == '\0' ? "" : "/cpu");
    int quota = quota_up_from(folder, strcmp(path, "/") == 0 ? "" : path);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  if (f != NULL) fclose(f);
  return least;
}
#endif

int tw_usable_cores(void) {
  int online = tw_processors();
  int n = online < 1 ? 1 : online > INT_MAX ? INT_MAX : (int)online;
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    int cpus = CPU_COUNT(&set), cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) cores += CPU_ISSET(cpu, &set) && leads_core(cpu);
    /* pinned to the second hardware threads alone, no CPU leads its core */
    n = cores > 0 ? cores : cpus;
  }
  int quota = tw_quota_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
  if (quota > 0 && quota < n) n = quota;
#endif
  return n < 1 ? 1 : n;
}
