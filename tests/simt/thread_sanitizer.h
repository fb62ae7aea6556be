#pragma once

// What orders threads, told to the thread sanitizer where kernels are compiled with it.

#if defined(SHERD_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace sherd::simt {

#if defined(SHERD_SIMT_TSAN)
inline constexpr bool kThreadSanitizer = true;
inline void TsanAcquire(void* token) { __tsan_acquire(token); }
inline void TsanRelease(void* token) { __tsan_release(token); }
#else
inline constexpr bool kThreadSanitizer = false;
inline void TsanAcquire(void*) {}
inline void TsanRelease(void*) {}
#endif

}  // namespace sherd::simt
