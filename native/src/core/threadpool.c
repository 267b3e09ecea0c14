/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * The thread pool behind TVMBackendParallelLaunch.
 *
 * One pool serves the process. A launch gives task i to thread i (the caller is thread 0) so that a thread meets the
 * same part of the data again in the next operator. A thread that is done takes over tasks that nobody has begun:
 * a sleeping worker delays nobody. Workers spin shortly between launches, because the operators of a network follow
 * each other within microseconds, and then sleep.
 *
 * Claims. Task i's slot holds 2g while open in launch g and 2g+1 once claimed; a worker that wakes up late compares
 * with its own g and finds nothing to take. A launch ends only when every claimed task has finished, so the holder
 * of a claim may read the launch's fields. Launches by several threads: the first has the pool, the others run their
 * tasks themselves, which keeps every thread busy and cannot deadlock. So do launches from inside a task, and all launches
 * while as many threads run models as there are cores: the one that had the pool would be served before the others, and its
 * workers would wait for each other while the others hold the cores.
 *
 * Sleep. Who goes to sleep says so and then looks once more for what it waits for; who provides that does so and then
 * looks for sleepers. No load may overtake the store before it, on either side. Stores of C11's default order promise
 * that, but not under QEMU 7.2, which runs AArch64's STLR and LDAR without a barrier between them; so both sides
 * exchange instead of storing, which costs the same on x86. */
#include "core.h"

#include <sched.h>

#define MAX_THREADS 1024
/* Turns of waiting before a thread sleeps, of about 25 ns each: longer than the parts of a kernel differ (waking a
 * sleeper costs 6 to 8 us, measured), and little to lose where another process wants the core. */
#define WORKER_SPINS 4000
#define CALLER_SPINS 20000

#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define CPU_RELAX() __asm__ __volatile__("yield")
#else
#define CPU_RELAX() ((void)0)
#endif

typedef struct Pool Pool;

typedef struct {
  _Alignas(64) atomic_uint_fast64_t ticket; /* the newest launch that wants this worker */
  atomic_int asleep; /* a word: processors such as RISC-V exchange no bytes */
  pthread_mutex_t lock;
  pthread_cond_t wake;
  pthread_t thread;
  Pool* pool;
  int index;
  bool started;
} Worker;

struct Pool {
  int num_threads;      /* workers + the caller */
  bool spin;            /* false when there are more threads than cores: waiting would take a core from the work */
  uint64_t generation;  /* of the newest launch; written by the launcher only */
  atomic_bool stop;
  /* the running launch */
  FTVMParallelLambda function;
  void* data;
  TVMParallelGroupEnv env;
  int num_slots;
  _Alignas(64) atomic_uint_fast64_t overflow; /* (low 32 bits of generation) << 32 | next task beyond the slots */
  _Alignas(64) atomic_int finished;
  atomic_int caller_asleep;
  pthread_mutex_t done_lock;
  pthread_cond_t done;
  char* error; /* first failure of the launch, under done_lock */
  atomic_bool failed;
  /* barrier */
  atomic_int arrived;
  atomic_uint barrier_phase;
  atomic_uint_fast64_t* slots;
  Worker* workers; /* [num_threads]; entry 0 is unused */
};

static TwLock launch_lock = TW_LOCK_INITIALIZER; /* held during a launch that uses the pool */
static Pool* pool;                               /* under launch_lock, as is pool_forks */
static unsigned pool_forks;
typedef struct {
  TilewrightLaunchTasks launch;
  void* pool;
} OwnPool;
static TwLock own_lock = TW_LOCK_INITIALIZER;
static OwnPool own_pool; /* under own_lock: what TilewrightSetThreadPool was given */
static atomic_bool has_own_pool;
static atomic_int wanted_threads;                               /* 0: default */
static atomic_int default_threads;                              /* computed once, then positive */

/* ---- how many threads ---- */
static int env_threads(const char* name) {
  const char* text = getenv(name);
  long n = text == NULL ? 0 : strtol(text, NULL, 10);
  return n <= 0 ? 0 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

static int usable_cores(void) {
  int n = tw_usable_cores();
  return n > MAX_THREADS ? MAX_THREADS : n;
}

static atomic_int cores; /* of this process, 0: not known yet */
static atomic_int runs;  /* threads that run models */

#ifndef _WIN32
/* Of the parent's threads a child has one. */
static void count_runs_in_child(void) { atomic_store(&runs, tw_thread()->runs > 0); }

__attribute__((constructor)) static void install_fork_handler(void) { pthread_atfork(NULL, NULL, count_runs_in_child); }
#endif

void tw_run_begin(void) {
  if (tw_thread()->runs++ == 0) atomic_fetch_add(&runs, 1);
}

void tw_run_end(void) {
  if (--tw_thread()->runs == 0) atomic_fetch_sub(&runs, 1);
}

static bool runs_take_all_cores(void) {
  int n = atomic_load_explicit(&runs, memory_order_relaxed);
  if (n < 2) return false;
  if (atomic_load(&cores) == 0) atomic_store(&cores, usable_cores());
  return n >= atomic_load(&cores);
}

int TilewrightNumThreads(void) {
  int wanted = atomic_load(&wanted_threads);
  if (wanted > 0) return wanted;
  int n = atomic_load(&default_threads);
  if (n == 0) {
    n = env_threads("TVM_NUM_THREADS");
    if (n == 0) n = env_threads("OMP_NUM_THREADS");
    if (n == 0) n = usable_cores();
    atomic_store(&default_threads, n);
  }
  return n;
}

int TilewrightSetNumThreads(int num_threads) {
  if (num_threads < 0 || num_threads > MAX_THREADS) {
    return tw_fail("the number of threads must be 0 (default) to %d, not %d", MAX_THREADS, num_threads);
  }
  if (num_threads == 0) { /* the process may have other cores by now */
    atomic_store(&default_threads, 0);
    atomic_store(&cores, 0);
  }
  atomic_store(&wanted_threads, num_threads);
  return 0;
}

/* ---- running tasks ---- */
static void record_failure(Pool* p, int task, int code) {
  const char* text = TVMGetLastError();
  char fallback[64];
  if (text[0] == '\0') {
    snprintf(fallback, sizeof fallback, "parallel task %d failed with code %d", task, code);
    text = fallback;
  }
  pthread_mutex_lock(&p->done_lock);
  if (p->error == NULL) p->error = tw_strdup(text);
  pthread_mutex_unlock(&p->done_lock);
  atomic_store(&p->failed, true);
}

static void finish_task(Pool* p) {
  int total = p->env.num_task; /* read before the count: afterwards the launch may be over */
  if (atomic_fetch_add(&p->finished, 1) + 1 == total && atomic_load(&p->caller_asleep)) {
    pthread_mutex_lock(&p->done_lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->done_lock);
  }
}

static void run_task(Pool* p, int task) {
  int code = p->function(task, &p->env, p->data);
  if (code != 0) record_failure(p, task, code);
  finish_task(p);
}

static bool claim_slot(Pool* p, int slot, uint64_t generation) {
  uint_fast64_t open = generation * 2;
  return atomic_compare_exchange_strong(&p->slots[slot], &open, open + 1);
}

/* The next task beyond the slots, or -1. */
static int claim_overflow(Pool* p, uint64_t generation) {
  uint_fast64_t seen = atomic_load(&p->overflow);
  for (;;) {
    uint32_t next = (uint32_t)seen;
    if ((uint32_t)(seen >> 32) != (uint32_t)generation || next == 0) return -1;
    /* the high half proves the launch is still on only together with a successful exchange, and the bound is
     * stored with the count so that no other field needs to be read: next counts down to the slots */
    if (atomic_compare_exchange_weak(&p->overflow, &seen, seen - 1)) return p->num_slots + (int)next - 1;
  }
}

/* Runs what thread `self` may take of the launch. */
static void work(Pool* p, int self, uint64_t generation) {
  if (claim_slot(p, self, generation)) run_task(p, self);
  for (int task; (task = claim_overflow(p, generation)) >= 0;) run_task(p, task);
  for (int i = 1; i < p->num_threads; ++i) {
    int slot = (self + i) % p->num_threads;
    if (claim_slot(p, slot, generation)) run_task(p, slot);
  }
}

static void* worker_main(void* arg) {
  Worker* w = arg;
  Pool* p = w->pool;
  uint64_t seen = 0;
  tw_thread()->in_parallel = true; /* everything that a worker runs is inside a launch */
  for (;;) {
    int turns = p->spin ? WORKER_SPINS : 0;
    for (int spin = 0; spin < turns && atomic_load_explicit(&w->ticket, memory_order_relaxed) == seen; ++spin) {
      CPU_RELAX();
    }
    if (atomic_load(&w->ticket) == seen) {
      pthread_mutex_lock(&w->lock);
      atomic_exchange(&w->asleep, true);
      while (atomic_load(&w->ticket) == seen) pthread_cond_wait(&w->wake, &w->lock);
      atomic_store(&w->asleep, false);
      pthread_mutex_unlock(&w->lock);
    }
    seen = atomic_load(&w->ticket);
    if (atomic_load(&p->stop)) return NULL;
    work(p, w->index, seen);
  }
}

static void notify(Worker* w, uint64_t generation) {
  atomic_exchange(&w->ticket, generation);
  if (atomic_load(&w->asleep)) {
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
  }
}

/* ---- the pool's life ---- */
static void free_pool(Pool* p) {
  if (p == NULL) return;
  atomic_store(&p->stop, true);
  for (int i = 1; i < p->num_threads && p->workers != NULL; ++i) {
    Worker* w = &p->workers[i];
    if (!w->started) continue;
    notify(w, p->generation + 1);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
  }
  pthread_mutex_destroy(&p->done_lock);
  pthread_cond_destroy(&p->done);
  tw_aligned_free(p->workers);
  free(p->slots);
  tw_aligned_free(p);
}

/* A pool of at most num_threads threads: fewer when the system gives no more. */
static Pool* new_pool(int num_threads) {
  Pool* p = tw_aligned_alloc(sizeof *p, _Alignof(Pool));
  if (p == NULL) return NULL;
  memset(p, 0, sizeof *p);
  p->num_threads = 1;
  p->spin = num_threads <= usable_cores();
  pthread_mutex_init(&p->done_lock, NULL);
  pthread_cond_init(&p->done, NULL);
  size_t bytes = sizeof(Worker) * (size_t)num_threads;
  p->workers = tw_aligned_alloc(bytes, _Alignof(Worker));
  p->slots = calloc((size_t)num_threads, sizeof *p->slots);
  if (p->workers == NULL || p->slots == NULL) {
    free_pool(p);
    return NULL;
  }
  memset(p->workers, 0, bytes);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  /* workers read num_threads only inside a launch, so it may still grow here */
  for (int i = 1; i < num_threads; ++i) {
    Worker* w = &p->workers[i];
    w->pool = p;
    w->index = i;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (pthread_create(&w->thread, &attr, worker_main, w) != 0) break;
    w->started = true;
    p->num_threads = i + 1;
  }
  pthread_attr_destroy(&attr);
  return p;
}

/* The pool in the size wanted now. Called with launch_lock held. Threads do not survive fork: a child starts over (its copy of
 * the pool is unreachable on purpose). */
static Pool* current_pool(int num_threads) {
  static int built_for;
  if (pool_forks != tw_forks()) pool = NULL;
  pool_forks = tw_forks();
  if (pool == NULL || built_for != num_threads) {
    free_pool(pool);
    pool = new_pool(num_threads);
    built_for = num_threads;
  }
  return pool;
}

/* ---- launches ---- */
static int run_alone(FTVMParallelLambda function, void* data, int num_task) {
  TVMParallelGroupEnv env = {.sync_handle = NULL, .num_task = num_task == 0 ? 1 : num_task};
  TwThread* t = tw_thread();
  bool outer = t->in_parallel;
  t->in_parallel = true;
  int rc = 0;
  for (int i = 0; i < env.num_task && rc == 0; ++i) {
    rc = function(i, &env, data);
    if (rc != 0 && TVMGetLastError()[0] == '\0') tw_fail("parallel task %d failed with code %d", i, rc);
  }
  t->in_parallel = outer;
  return rc == 0 ? 0 : -1;
}

static void wait_until_done(Pool* p) {
  int turns = p->spin ? CALLER_SPINS : 0;
  for (int spin = 0; spin < turns; ++spin) {
    if (atomic_load(&p->finished) == p->env.num_task) return;
    CPU_RELAX();
  }
  pthread_mutex_lock(&p->done_lock);
  atomic_exchange(&p->caller_asleep, true);
  while (atomic_load(&p->finished) != p->env.num_task) pthread_cond_wait(&p->done, &p->done_lock);
  atomic_store(&p->caller_asleep, false);
  pthread_mutex_unlock(&p->done_lock);
}

static int run_on_pool(Pool* p, FTVMParallelLambda function, void* data, int num_task) {
  uint64_t generation = ++p->generation;
  p->function = function;
  p->data = data;
  p->env = (TVMParallelGroupEnv){.sync_handle = p, .num_task = num_task == 0 ? p->num_threads : num_task};
  p->num_slots = p->env.num_task < p->num_threads ? p->env.num_task : p->num_threads;
  atomic_store(&p->finished, 0);
  atomic_store(&p->failed, false);
  atomic_store(&p->arrived, 0);
  uint64_t beyond = (uint64_t)(p->env.num_task - p->num_slots);
  atomic_store(&p->overflow, (generation & 0xffffffffu) << 32 | beyond);
  for (int i = 0; i < p->num_slots; ++i) atomic_store(&p->slots[i], generation * 2);
  for (int i = 1; i < p->num_slots; ++i) notify(&p->workers[i], generation);
  TwThread* t = tw_thread();
  t->in_parallel = true;
  work(p, 0, generation);
  t->in_parallel = false;
  wait_until_done(p);
  if (!atomic_load(&p->failed)) return 0;
  pthread_mutex_lock(&p->done_lock);
  tw_fail("%s", p->error == NULL ? "a parallel task failed" : p->error);
  free(p->error);
  p->error = NULL;
  pthread_mutex_unlock(&p->done_lock);
  return -1;
}

/* ---- a pool of the program's own ---- */
typedef struct {
  FTVMParallelLambda function;
  void* data;
  TVMParallelGroupEnv env;
  atomic_int finished;
  TwLock lock; /* of error */
  char* error; /* of the first task that failed, "" of one without words */
} Lent;

static void run_lent_task(void* launch, int task) {
  Lent* lent = launch;
  TwThread* t = tw_thread();
  bool outer = t->in_parallel;
  t->in_parallel = true;
  if (lent->function(task, &lent->env, lent->data) != 0) {
    tw_lock(&lent->lock);
    if (lent->error == NULL) lent->error = tw_strdup(TVMGetLastError());
    tw_unlock(&lent->lock);
  }
  t->in_parallel = outer;
  atomic_fetch_add(&lent->finished, 1);
}

static int run_on_lent_threads(OwnPool own, FTVMParallelLambda function, void* data, int num_task) {
  Lent lent = {.function = function, .data = data, .env = {.sync_handle = NULL, .num_task = num_task}};
  tw_lock_init(&lent.lock);
  tw_clear_error();
  int rc = own.launch(own.pool, run_lent_task, &lent, num_task);
  int finished = atomic_load(&lent.finished);
  if (rc != 0 && TVMGetLastError()[0] == '\0') {
    tw_fail("the thread pool that TilewrightSetThreadPool was given failed with code %d", rc);
  } else if (rc == 0 && lent.error != NULL) {
    rc = tw_fail("%s", lent.error[0] == '\0' ? "a parallel task failed" : lent.error);
  } else if (rc == 0 && finished != num_task) {
    rc = tw_fail("the thread pool that TilewrightSetThreadPool was given ran %d of %d tasks", finished, num_task);
  }
  free(lent.error);
  tw_lock_destroy(&lent.lock);
  return rc == 0 ? 0 : -1;
}

int TilewrightSetThreadPool(TilewrightLaunchTasks launch, void* pool_of_program) {
  tw_lock(&own_lock);
  own_pool = (OwnPool){launch, pool_of_program};
  atomic_store(&has_own_pool, launch != NULL);
  tw_unlock(&own_lock);
  return 0;
}

static OwnPool current_own_pool(void) {
  if (!atomic_load_explicit(&has_own_pool, memory_order_relaxed)) return (OwnPool){NULL, NULL};
  tw_lock(&own_lock);
  OwnPool own = own_pool;
  tw_unlock(&own_lock);
  return own;
}

int TVMBackendParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task) {
  int threads = TilewrightNumThreads();
  if (num_task < 0) return tw_fail("a parallel launch of %d tasks", num_task);
  if (threads == 1 || num_task == 1 || tw_thread()->in_parallel) return run_alone(flambda, cdata, num_task);
  OwnPool own = current_own_pool();
  if (own.launch != NULL) return run_on_lent_threads(own, flambda, cdata, num_task == 0 ? threads : num_task);
  if (runs_take_all_cores() || !tw_try_lock(&launch_lock)) return run_alone(flambda, cdata, num_task);
  Pool* p = current_pool(threads);
  int rc = p == NULL || p->num_threads == 1 ? run_alone(flambda, cdata, num_task)
                                            : run_on_pool(p, flambda, cdata, num_task);
  tw_unlock(&launch_lock);
  return rc;
}

int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv* penv) {
  Pool* p = penv->sync_handle;
  (void)task_id;
  if (penv->num_task == 1) return 0;
  if (p == NULL || penv->num_task > p->num_threads) {
    return tw_fail("a barrier among %d tasks needs as many threads of the runtime's own; launch with num_task=0",
                   penv->num_task);
  }
  unsigned phase = atomic_load(&p->barrier_phase);
  if (atomic_fetch_add(&p->arrived, 1) + 1 == penv->num_task) {
    atomic_store(&p->arrived, 0);
    atomic_fetch_add(&p->barrier_phase, 1);
    return 0;
  }
  for (int spin = 0; atomic_load(&p->barrier_phase) == phase; ++spin) {
    if (p->spin && spin < CALLER_SPINS) {
      CPU_RELAX();
    } else {
      sched_yield();
    }
  }
  return 0;
}
