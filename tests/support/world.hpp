/// Where the ranks of a test come from. A test that is to hold on every transport knows only this;
/// it is compiled once and linked to one of the world_<transport>.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include "rankcast/core/communicator.hpp"

namespace support {

using namespace std::chrono_literals;

/// A world for a test. The sizes are small, so that little data takes every path of a transport.
struct world_options {
  rankcast::timeout default_timeout = 30s;
  rankcast::completion completion = rankcast::completion::local;
  std::size_t eager_bytes = 256;
  std::size_t chunk_bytes = 64;
  int flat_places = 3;  // broadcasts to more go along a tree, where there is one
};

/// Runs `function` on `ranks` new ranks, or on those of them that live in this process, and throws
/// the first cause when a rank threw.
void run_world(int ranks, const std::function<void(rankcast::communicator&)>& function,
               const world_options& options);

/// The most ranks that `run_world` can make.
int most_ranks();

/// True when all ranks live in this process, so that they see each other's variables.
bool ranks_are_threads();

/// True when the transport moves data through memory that all ranks see. Where it does not, two
/// ranks may end a group at the same time, each with a cause of its own.
bool ranks_share_memory();

}  // namespace support
