/// A stack of its own that can be left and entered again: what the explorer's threads run on.
/// ucontext, and what the sanitizers have to be told of it.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#define RANKCAST_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define RANKCAST_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RANKCAST_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define RANKCAST_FIBER_TSAN 1
#endif
#endif
#if defined(RANKCAST_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(RANKCAST_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace model {

class fiber {
 public:
  /// The caller's own stack.
  fiber() {
#if defined(RANKCAST_FIBER_TSAN)
    known_ = __tsan_get_current_fiber();
#endif
  }
  /// A new one, on which `body(what)` will run when it is first entered, from `home`. The body
  /// never returns: it is left for good, with nothing on its stack that wants to be destroyed.
  fiber(fiber& home, void (*body)(void*), void* what)
      : home_(&home), body_(body), what_(what), memory_(std::make_unique<std::byte[]>(bytes)) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = memory_.get();
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &fiber::first_entry, 0);
    bottom_ = memory_.get();
    size_ = bytes;
#if defined(RANKCAST_FIBER_TSAN)
    known_ = __tsan_create_fiber(0);
#endif
  }
  ~fiber() {
#if defined(RANKCAST_FIBER_TSAN)
    if (memory_ != nullptr) __tsan_destroy_fiber(known_);
#endif
  }
  fiber(const fiber&) = delete;
  fiber& operator=(const fiber&) = delete;

  /// Leaves `from`, which is running, until somebody goes back to it.
  static void go(fiber& from, fiber& to) {
    entering() = &to;
#if defined(RANKCAST_FIBER_ASAN)
    __sanitizer_start_switch_fiber(&from.fake_, to.bottom_, to.size_);
#elif defined(RANKCAST_FIBER_TSAN)
    __tsan_switch_to_fiber(to.known_, 0);
#endif
    swapcontext(&from.context_, &to.context_);
#if defined(RANKCAST_FIBER_ASAN)
    __sanitizer_finish_switch_fiber(from.fake_, nullptr, nullptr);
#endif
  }

 private:
  static constexpr std::size_t bytes = 256 * 1024;

  static fiber*& entering() {
    static fiber* one = nullptr;
    return one;
  }
  static void first_entry() {
    fiber& self = *entering();
#if defined(RANKCAST_FIBER_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &self.home_->bottom_, &self.home_->size_);
#endif
    self.body_(self.what_);
  }

  ucontext_t context_{};
  [[maybe_unused]] fiber* home_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* what_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;
  const void* bottom_ = nullptr;
  std::size_t size_ = 0;
#if defined(RANKCAST_FIBER_ASAN)
  void* fake_ = nullptr;
#elif defined(RANKCAST_FIBER_TSAN)
  void* known_ = nullptr;
#endif
};

}  // namespace model
