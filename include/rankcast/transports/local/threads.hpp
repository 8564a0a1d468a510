/// Ranks as threads of this process: `run` makes them and waits for them; `thread_ranks` hands the
/// communicators to a program that has threads of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/transports/local/heap.hpp"
#include "rankcast/transports/local/transport.hpp"

namespace rankcast::inline v0 {

struct run_options {
  std::string name = "world";
  timeout default_timeout{};  // unset: the library's
  rankcast::completion completion = completion::local;
  local::settings sizes{};
};

/// One communicator per rank of a new group of threads. Each is to be used by one thread at a time.
/// Throws usage_error for fewer than one rank. Cost: a board (local/board.hpp), whose pages are
/// taken when they are used.
[[nodiscard]] inline std::vector<communicator> thread_ranks(int ranks,
                                                            const run_options& options = {}) {
  if (ranks < 1) throw usage_error("thread_ranks: " + std::to_string(ranks) + " ranks asked for");
  std::vector<int> members(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) members[static_cast<std::size_t>(r)] = r;
  std::string text = "group '" + options.name + "' of " + std::to_string(ranks);
  const int spins = local::spins_for(ranks, local::usable_cpus());
  const auto shared =
      local::heap_premises::make(ranks, text, local::sound(options.sizes, ranks), spins);
  std::vector<communicator> result;
  for (int r = 0; r < ranks; ++r) {
    result.emplace_back(std::make_shared<local::local_transport>(shared, r), options.name, members,
                        r, options.default_timeout, options.completion);
  }
  return result;
}

/// Runs `function(communicator&)` on `ranks` threads, the calling thread as rank 0, and returns
/// when all have. A rank that throws revokes the group, so that no other waits for it; the
/// exception that came first is rethrown here (what it caused on other ranks is not).
///
///   rankcast::run(2, [](rankcast::communicator& world) { rankcast::barrier(world); });
template <class F>
  requires std::invocable<F&, communicator&>
void run(int ranks, F&& function, const run_options& options = {}) {
  std::vector<communicator> worlds = thread_ranks(ranks, options);
  std::mutex mutex;
  std::exception_ptr cause;
  std::exception_ptr consequence;

  const auto body = [&](int rank) {
    communicator world = std::move(worlds[static_cast<std::size_t>(rank)]);
    const auto leave = [&](const std::string& text, bool is_cause) {
      {
        const std::lock_guard lock(mutex);
        std::exception_ptr& first = is_cause ? cause : consequence;
        if (first == nullptr) first = std::current_exception();
      }
      world.revoke("rank " + std::to_string(rank) + " threw: " + text);
    };
    try {
      function(world);
    } catch (const revoked_error& e) {
      leave(e.what(), false);
    } catch (const peer_lost_error& e) {
      leave(e.what(), false);
    } catch (const std::exception& e) {
      leave(e.what(), true);
    } catch (...) {
      leave("something that is not a std::exception", true);
    }
  };

  std::vector<std::thread> threads;
  try {
    for (int r = 1; r < ranks; ++r) threads.emplace_back(body, r);
  } catch (const std::exception& e) {  // no more threads to be had
    worlds.front().revoke(std::string("rank ") + std::to_string(threads.size() + 1) +
                          " could not be started: " + e.what());
    for (auto& t : threads) t.join();
    throw;
  }
  body(0);
  for (auto& t : threads) t.join();
  if (cause != nullptr) std::rethrow_exception(cause);
  if (consequence != nullptr) std::rethrow_exception(consequence);
}

}  // namespace rankcast::inline v0
