/* Licensed under the Apache License, Version 2.0; see LICENSE. */
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#define MAX_TASKS 64

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

void test_threads(void) {
  every_task_runs_once();
  sleeping_workers_wake_up();
  barriers_separate_phases();
  nested_launches_run_serially();
  a_failing_task_fails_the_launch();
  several_threads_may_launch_at_once();
  run_once_runs_once();
  OK(TilewrightSetNumThreads(2));
}
