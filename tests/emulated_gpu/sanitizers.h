// What the sanitizers have to know of the emulated GPU, and then find in kernels that no order of
// fibers would show.
//
// ThreadSanitizer takes every fiber for a thread. What its threads then agree on is told it here:
// the launch and the end of a block, and its barriers; not shuffles, which order no memory. So a
// missing barrier is a data race, in shared and in device memory, whoever came first.
// AddressSanitizer gets the ends of allocations on the device.
#pragma once

#include <cstddef>
#ifdef K3_FINDS_RACES  // not __SANITIZE_THREAD__: what includes this is not instrumented itself
#include <sanitizer/tsan_interface.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace emulated {

// Both follow swapcontext alone.
#if defined(__SANITIZE_ADDRESS__) || defined(K3_FINDS_RACES)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

#ifdef K3_FINDS_RACES

// The running thread, and a new one.
inline void* this_thread() {
  return __tsan_get_current_fiber();
}
inline void* make_thread() {
  return __tsan_create_fiber(0);
}
inline void become_thread(void* thread) {
  __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
}
// What was done before publish(at) is seen after observe(at).
inline void publish(void* at) {
  __tsan_release(at);
}
inline void observe(void* at) {
  __tsan_acquire(at);
}

#else

inline void* this_thread() {
  return nullptr;
}
inline void* make_thread() {
  return nullptr;
}
inline void become_thread(void*) {}
inline void publish(void*) {}
inline void observe(void*) {}

#endif

#ifdef __SANITIZE_ADDRESS__
inline void forbid(void* begin, size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}
inline void allow(void* begin, size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}
#else
inline void forbid(void*, size_t) {}
inline void allow(void*, size_t) {}
#endif

}  // namespace emulated
