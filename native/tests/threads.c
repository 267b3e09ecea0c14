/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_TASKS 200

typedef struct {
  atomic_int runs[MAX_TASKS];
  atomic_int tasks;
} Counter;

static int count_task(int task, TVMParallelGroupEnv* env, void* data) {
  Counter* c = data;
  atomic_store(&c->tasks, env->num_task);
  atomic_fetch_add(&c->runs[task], 1);
  return 0;
}

static void every_task_runs_once(void) {
  for (int threads = 1; threads <= 4; ++threads) {
    OK(TilewrightSetNumThreads(threads));
    CHECK(TilewrightNumThreads() == threads);
    for (int tasks = 0; tasks <= 9; ++tasks) {
      for (int round = 0; round < 50; ++round) {
        Counter c = {0};
        OK(TVMBackendParallelLaunch(count_task, &c, tasks));
        int expected = tasks == 0 ? threads : tasks;
        CHECK(c.tasks == expected);
        for (int i = 0; i < MAX_TASKS; ++i) CHECK(c.runs[i] == (i < expected ? 1 : 0));
      }
    }
  }
  FAILS(TVMBackendParallelLaunch(count_task, NULL, -1), "-1 tasks");
  FAILS(TilewrightSetNumThreads(-1), "number of threads");
}

static void sleeping_workers_wake_up(void) {
  OK(TilewrightSetNumThreads(3));
  for (int round = 0; round < 5; ++round) {
    Counter c = {0};
    usleep(20000);
    OK(TVMBackendParallelLaunch(count_task, &c, 3));
    CHECK(c.runs[0] == 1 && c.runs[1] == 1 && c.runs[2] == 1);
  }
}

typedef struct {
  int values[MAX_TASKS];
  int sums[MAX_TASKS];
} Phases;

static int two_phases(int task, TVMParallelGroupEnv* env, void* data) {
  Phases* p = data;
  for (int round = 0; round < 3; ++round) {
    p->values[task] = task + round;
    if (TVMBackendParallelBarrier(task, env) != 0) return -1;
    p->sums[task] = 0;
    for (int i = 0; i < env->num_task; ++i) p->sums[task] += p->values[i];
    if (TVMBackendParallelBarrier(task, env) != 0) return -1;
  }
  return 0;
}

static void barriers_separate_phases(void) {
  OK(TilewrightSetNumThreads(3));
  for (int round = 0; round < 100; ++round) {
    Phases p = {0};
    OK(TVMBackendParallelLaunch(two_phases, &p, 0));
    for (int i = 0; i < 3; ++i) CHECK(p.sums[i] == 0 + 1 + 2 + 3 * 2);
  }
  Phases p = {0};
  FAILS(TVMBackendParallelLaunch(two_phases, &p, 5), "barrier among 5 tasks");
}

static int nested(int task, TVMParallelGroupEnv* env, void* data) {
  (void)task;
  (void)env;
  Counter c = {0};
  if (TVMBackendParallelLaunch(count_task, &c, 0) != 0) return -1;
  CHECK(c.tasks == 1 && c.runs[0] == 1); /* inside a task there is one thread */
  Counter d = {0};
  if (TVMBackendParallelLaunch(count_task, &d, 4) != 0) return -1;
  for (int i = 0; i < 4; ++i) CHECK(d.runs[i] == 1);
  atomic_fetch_add((atomic_int*)data, 1);
  return 0;
}

static void nested_launches_run_serially(void) {
  OK(TilewrightSetNumThreads(3));
  for (int round = 0; round < 50; ++round) {
    atomic_int done = 0;
    OK(TVMBackendParallelLaunch(nested, &done, 0));
    CHECK(done == 3);
  }
}

static int fail_one(int task, TVMParallelGroupEnv* env, void* data) {
  (void)env;
  if (task != *(int*)data) return 0;
  TVMAPISetLastError("task failed on purpose");
  return -1;
}

static void a_failing_task_fails_the_launch(void) {
  for (int threads = 1; threads <= 3; ++threads) {
    OK(TilewrightSetNumThreads(threads));
    for (int task = 0; task < 6; ++task) {
      FAILS(TVMBackendParallelLaunch(fail_one, &task, 6), "task failed on purpose");
      Counter c = {0};
      OK(TVMBackendParallelLaunch(count_task, &c, 0));
    }
  }
}

static int use_workspace(int task, TVMParallelGroupEnv* env, void* data) {
  (void)env;
  (void)data;
  unsigned char* p = TVMBackendAllocWorkspace(kDLCPU, 0, 5000, kDLInt, 8);
  if (p == NULL) return -1;
  memset(p, task, 5000);
  for (int i = 0; i < 5000; ++i) CHECK(p[i] == task);
  return TVMBackendFreeWorkspace(kDLCPU, 0, p);
}

static void* launch_many(void* arg) {
  (void)arg;
  for (int round = 0; round < 300; ++round) {
    Counter c = {0};
    OK(TVMBackendParallelLaunch(count_task, &c, 5));
    for (int i = 0; i < 5; ++i) CHECK(c.runs[i] == 1);
    OK(TVMBackendParallelLaunch(use_workspace, NULL, 0));
  }
  return NULL;
}

static void several_threads_may_launch_at_once(void) {
  pthread_t threads[4];
  OK(TilewrightSetNumThreads(3));
  for (int i = 0; i < 4; ++i) OK(pthread_create(&threads[i], NULL, launch_many, NULL));
  for (int round = 0; round < 20; ++round) {
    OK(TilewrightSetNumThreads(2 + round % 3)); /* the pool may be resized meanwhile */
    usleep(500);
  }
  for (int i = 0; i < 4; ++i) OK(pthread_join(threads[i], NULL));
}

int tw_usable_cores(void); /* core.h */
void tw_run_begin(void);
void tw_run_end(void);

typedef struct {
  pthread_barrier_t* begun;
  pthread_barrier_t* may_end;
} Run;

static void* run_until_told(void* arg) {
  const Run* run = arg;
  tw_run_begin();
  pthread_barrier_wait(run->begun);
  pthread_barrier_wait(run->may_end);
  tw_run_end();
  return NULL;
}

static int tasks_of_a_launch(void) {
  Counter c = {0};
  OK(TVMBackendParallelLaunch(count_task, &c, 0));
  return c.tasks;
}

/* Of runs by as many threads as there are cores none has the pool; with fewer, and after them, one has it. */
static void runs_on_all_cores_leave_none_for_the_pool(void) {
  int cores = tw_usable_cores(), others = cores < 2 ? 1 : cores - 1;
  pthread_t* threads = calloc((size_t)others, sizeof *threads);
  pthread_barrier_t begun, may_end;
  Run run = {&begun, &may_end};
  OK(TilewrightSetNumThreads(3));
  pthread_barrier_init(&begun, NULL, (unsigned)others + 1);
  pthread_barrier_init(&may_end, NULL, (unsigned)others + 1);
  for (int i = 0; i < others; ++i) OK(pthread_create(&threads[i], NULL, run_until_told, &run));
  pthread_barrier_wait(&begun);
  if (cores > 1) CHECK(tasks_of_a_launch() == 3);
  tw_run_begin();
  tw_run_begin(); /* one inside another is one run */
  CHECK(tasks_of_a_launch() == 1);
  tw_run_end();
  CHECK(tasks_of_a_launch() == 1);
  pthread_barrier_wait(&may_end);
  for (int i = 0; i < others; ++i) OK(pthread_join(threads[i], NULL));
  CHECK(tasks_of_a_launch() == 3);
  tw_run_end();
  pthread_barrier_destroy(&begun);
  pthread_barrier_destroy(&may_end);
  free(threads);
}

/* A forked child gets a pool of its own. */
static int set_flag(void* data) {
  ++*(int*)data;
  return 0;
}

typedef struct {
  void* handle;
  atomic_int stage; /* 1: at work, 2: may end */
} Slow;

static int work_slowly(void* data) {
  Slow* slow = *(Slow**)data;
  atomic_store(&slow->stage, 1);
  while (atomic_load(&slow->stage) != 2) usleep(100);
  return 0;
}

static void* run_slowly(void* slow) {
  TVMBackendRunOnce(&((Slow*)slow)->handle, work_slowly, &slow, sizeof slow);
  return NULL;
}

/* A child does what another thread was about to do once when it was made, and does not wait for that thread. */
static void children_run_once_what_a_thread_left(void) {
  Slow slow = {0};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_slowly, &slow) == 0);
  while (atomic_load(&slow.stage) != 1) usleep(100);
  pid_t child = fork();
  if (child == 0) {
    alarm(30);
    void* handle = NULL;
    int count = 0;
    bool good = TVMBackendRunOnce(&handle, set_flag, &count, sizeof count) == 0 && count == 1;
    good = good && TVMBackendRunOnce(&slow.handle, set_flag, &count, sizeof count) == 0 && count == 2;
    good = good && TVMBackendRunOnce(&slow.handle, set_flag, &count, sizeof count) == 0 && count == 2;
    _exit(good ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  atomic_store(&slow.stage, 2);
  pthread_join(thread, NULL);
}

void test_fork(void) {
  children_run_once_what_a_thread_left();
  OK(TilewrightSetNumThreads(3));
  Counter c = {0};
  OK(TVMBackendParallelLaunch(count_task, &c, 0));
  pid_t child = fork();
  if (child == 0) {
    Counter d = {0};
    bool good = TVMBackendParallelLaunch(count_task, &d, 0) == 0 && d.runs[0] == 1 && d.runs[2] == 1;
    _exit(good ? 0 : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  Counter e = {0};
  OK(TVMBackendParallelLaunch(count_task, &e, 0));
  OK(TilewrightSetNumThreads(2));
}

static int set_flag_again(void* data) {
  void** handle = *(void***)data;
  int count = 0;
  OK(TVMBackendRunOnce(handle, set_flag, &count, sizeof count));
  CHECK(count == 0); /* it is at work */
  return 0;
}

static void run_once_runs_once(void) {
  void* handle = NULL;
  int count = 0;
  OK(TVMBackendRunOnce(&handle, set_flag, &count, sizeof count));
  OK(TVMBackendRunOnce(&handle, set_flag, &count, sizeof count));
  CHECK(count == 1);
  void *other = NULL, **inner = &other;
  OK(TVMBackendRunOnce(&other, set_flag_again, &inner, sizeof inner));
}

/* More threads than any machine of the tests has cores: they take turns, and every task still runs once. */
static void many_threads_run_every_task_once(void) {
  OK(TilewrightSetNumThreads(130));
  for (int tasks = 0; tasks <= MAX_TASKS; tasks += 100) {
    Counter c = {0};
    OK(TVMBackendParallelLaunch(count_task, &c, tasks));
    int expected = tasks == 0 ? 130 : tasks;
    for (int i = 0; i < MAX_TASKS; ++i) CHECK(c.runs[i] == (i < expected ? 1 : 0));
  }
  Phases p;
  OK(TVMBackendParallelLaunch(two_phases, &p, 0));
  for (int i = 1; i < 130; ++i) CHECK(p.sums[i] == p.sums[0]);
}

/* A pool of the program's own: two threads for each launch. */
typedef struct {
  TilewrightTask task;
  void* data;
  int first, count;
} Half;

static void* run_half(void* arg) {
  Half* half = arg;
  for (int i = half->first; i < half->count; i += 2) half->task(half->data, i);
  return NULL;
}

static int launch_halves(void* launches, TilewrightTask task, void* data, int count) {
  atomic_fetch_add((atomic_int*)launches, 1);
  Half halves[2] = {{task, data, 0, count}, {task, data, 1, count}};
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_half, &halves[1]) != 0) return -1;
  run_half(&halves[0]);
  return pthread_join(thread, NULL);
}

static int launch_nothing(void* result, TilewrightTask task, void* data, int count) {
  (void)task;
  (void)data;
  (void)count;
  return *(int*)result;
}

static void a_pool_of_the_program_runs_the_tasks(void) {
  atomic_int launches = 0;
  OK(TilewrightSetNumThreads(3));
  OK(TilewrightSetThreadPool(launch_halves, &launches));
  for (int tasks = 0; tasks <= 5; ++tasks) {
    Counter c = {0};
    OK(TVMBackendParallelLaunch(count_task, &c, tasks));
    for (int i = 0; i < 6; ++i) CHECK(c.runs[i] == (i < (tasks == 0 ? 3 : tasks) ? 1 : 0));
  }
  CHECK(launches == 5); /* one task runs where it is */
  int task = 2, result = 0;
  FAILS(TVMBackendParallelLaunch(fail_one, &task, 4), "task failed on purpose");
  Phases p;
  FAILS(TVMBackendParallelLaunch(two_phases, &p, 0), "of the runtime's own");
  OK(TilewrightSetThreadPool(launch_nothing, &result));
  FAILS(TVMBackendParallelLaunch(fail_one, &task, 4), "ran 0 of 4 tasks");
  result = 7;
  FAILS(TVMBackendParallelLaunch(fail_one, &task, 4), "failed with code 7");
  OK(TilewrightSetThreadPool(NULL, NULL));
  Counter c = {0};
  OK(TVMBackendParallelLaunch(count_task, &c, 0));
  CHECK(c.tasks == 3);
}

#ifdef __linux__
int tw_quota_cpus(const char* memberships, const char* root);

static void write_text(const char* folder, const char* name, const char* text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* f = fopen(path, "w");
  CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* The group of a process, and each that it is in, limits it. */
static void control_groups_limit_the_cores(void) {
  char root[] = "/tmp/tilewright-groups-XXXXXX", folder[300], list[300];
  CHECK(mkdtemp(root) != NULL);
  snprintf(list, sizeof list, "%s/list", root);
  const char* folders[] = {"/user", "/user/app", "/cpu", "/cpu/box"};
  for (int i = 0; i < 4; ++i) {
    snprintf(folder, sizeof folder, "%s%s", root, folders[i]);
    CHECK(mkdir(folder, 0700) == 0);
  }
  write_text(root, "list", "0::/user/app\n");
  CHECK(tw_quota_cpus(list, root) == 0);
  write_text(root, "user/app/cpu.max", "max 100000\n");
  CHECK(tw_quota_cpus(list, root) == 0);
  write_text(root, "user/app/cpu.max", "650000 100000\n");
  CHECK(tw_quota_cpus(list, root) == 7);
  write_text(root, "user/cpu.max", "250000 100000\n");
  CHECK(tw_quota_cpus(list, root) == 3);
  write_text(root, "cpu.max", "150000 100000\n");
  CHECK(tw_quota_cpus(list, root) == 2);
  write_text(root, "list", "12:cpuset:/box\n4:cpu,cpuacct:/box\n");
  CHECK(tw_quota_cpus(list, root) == 0);
  write_text(root, "cpu/box/cpu.cfs_quota_us", "-1\n");
  write_text(root, "cpu/box/cpu.cfs_period_us", "100000\n");
  CHECK(tw_quota_cpus(list, root) == 0);
  write_text(root, "cpu/box/cpu.cfs_quota_us", "400000\n");
  CHECK(tw_quota_cpus(list, root) == 4);
  write_text(root, "list", "no group at all");
  CHECK(tw_quota_cpus(list, root) == 0);
  CHECK(tw_quota_cpus("/nowhere/at/all", root) == 2);
  snprintf(folder, sizeof folder, "rm -r %s", root);
  OK(system(folder));
}
#endif

void test_threads(void) {
#ifdef __linux__
  control_groups_limit_the_cores();
#endif
  many_threads_run_every_task_once();
  a_pool_of_the_program_runs_the_tasks();
  every_task_runs_once();
  sleeping_workers_wake_up();
  barriers_separate_phases();
  nested_launches_run_serially();
  a_failing_task_fails_the_launch();
  several_threads_may_launch_at_once();
  runs_on_all_cores_leave_none_for_the_pool();
  run_once_runs_once();
  OK(TilewrightSetNumThreads(2));
}
