/* Licensed under the Apache License, Version 2.0; see LICENSE.
 *
 * Locks, and fork. A child has a copy of all memory and of one thread. A lock that another thread held at that moment would
 * stay locked for ever; so whoever comes to a lock first in a child makes it anew. */
#include "core.h"

static unsigned forks;
static pthread_mutex_t renewing = PTHREAD_MUTEX_INITIALIZER;

#ifndef _WIN32 /* which has no fork */
static void after_fork_in_child(void) {
  ++forks;
  pthread_mutex_init(&renewing, NULL);
}

__attribute__((constructor)) static void install_fork_handler(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }
#endif

unsigned tw_forks(void) { return forks; }

static void make(TwLock* lock) {
  pthread_mutexattr_t attr;
  pthread_mutexattr_init(&attr);
  if (lock->recursive) pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock->mutex, &attr);
  pthread_mutexattr_destroy(&attr);
}

static void init(TwLock* lock, bool recursive) {
  lock->recursive = recursive;
  make(lock);
  atomic_init(&lock->forks, forks);
}

void tw_lock_init(TwLock* lock) { init(lock, false); }

void tw_lock_init_recursive(TwLock* lock) { init(lock, true); }

void tw_lock_destroy(TwLock* lock) { pthread_mutex_destroy(&lock->mutex); }

static void renew(TwLock* lock) {
  if (atomic_load_explicit(&lock->forks, memory_order_acquire) == forks) return;
  pthread_mutex_lock(&renewing);
  if (atomic_load(&lock->forks) != forks) {
    make(lock);
    atomic_store(&lock->forks, forks);
  }
  pthread_mutex_unlock(&renewing);
}

void tw_lock(TwLock* lock) {
  renew(lock);
  pthread_mutex_lock(&lock->mutex);
}

bool tw_try_lock(TwLock* lock) {
  renew(lock);
  return pthread_mutex_trylock(&lock->mutex) == 0;
}

void tw_unlock(TwLock* lock) { pthread_mutex_unlock(&lock->mutex); }
