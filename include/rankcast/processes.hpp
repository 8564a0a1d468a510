/// Ranks as processes of this host, without a launcher: `fork_ranks`, `join`. (Linux.)
#pragma once

#include "rankcast/rankcast.hpp"
#include "rankcast/transports/local/join.hpp"
#include "rankcast/transports/local/processes.hpp"
