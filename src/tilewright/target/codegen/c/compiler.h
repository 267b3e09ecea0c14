/* What differs between C compilers. */
#ifdef __GNUC__
#define TW_WEAK __attribute__((weak))
#define TW_RESTRICT __restrict__
#define TW_ALIGNED(p, n) __builtin_assume_aligned(p, n)
#define TW_INLINE static inline __attribute__((unused))
/* the check of arguments, which is not copied into its callers; what words its messages takes little room */
#define TW_CHECK static __attribute__((noinline, unused))
#define TW_MESSAGE static __attribute__((cold, noinline, unused))
#ifndef __clang__ /* gcc loses sight of arrays that a loop with a constant number of turns fills */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#else
#define TW_WEAK
#define TW_RESTRICT
#define TW_ALIGNED(p, n) (p)
#define TW_INLINE static inline
#define TW_CHECK static inline
#define TW_MESSAGE static inline
#endif
