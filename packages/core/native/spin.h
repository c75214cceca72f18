// Waiting without a system call for what another thread will soon do. To wake a thread that sleeps takes the waker 10 to
// 30 µs, and the sleeper starts 50 to 100 µs later.
#pragma once
#include <chrono>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#endif

namespace mlxts {

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// For how long a thread only looks; then it offers its processor to other threads between two looks.
inline constexpr auto kLook = std::chrono::microseconds(50);
// From the end of one submission to the start of the next: JavaScript of a decode step takes less.
inline constexpr auto kBetweenSubmissions = std::chrono::microseconds(500);
// When another thread has had the processor for so long, it is needed: sleeping threads are woken sooner than those that
// offer theirs.
inline constexpr auto kTaken = std::chrono::microseconds(20);

// Looks until ready() is true, for `most` or until other threads need the processor; returns what it saw last.
template <typename Ready>
bool spinUntil(Ready ready, std::chrono::microseconds most) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (;;) {
    for (int look = 0; look < 16; ++look) {
      if (ready()) return true;
      for (int i = 0; i < 4; ++i) pause();
    }
    const auto now = Clock::now();
    if (now - start >= most) return ready();
    if (now - start < kLook) continue;
    sched_yield();
    if (Clock::now() - now > kTaken) return ready();
  }
}

}  // namespace mlxts
