/// rankcast: collectives on tensors between ranks. This header is all that needs no outside
/// library; include the header of one backend more for MPI or NCCL.
#pragma once

#include "rankcast/collectives/barrier.hpp"           // IWYU pragma: export
#include "rankcast/collectives/broadcast.hpp"         // IWYU pragma: export
#include "rankcast/collectives/broadcast_tensor.hpp"  // IWYU pragma: export
#include "rankcast/collectives/exchange.hpp"          // IWYU pragma: export
#include "rankcast/collectives/gather.hpp"            // IWYU pragma: export
#include "rankcast/collectives/reduce.hpp"            // IWYU pragma: export
#include "rankcast/collectives/scatter.hpp"           // IWYU pragma: export
#include "rankcast/core/communicator.hpp"             // IWYU pragma: export
#include "rankcast/core/partition.hpp"                // IWYU pragma: export
#include "rankcast/core/tensor.hpp"                   // IWYU pragma: export
#include "rankcast/parallel/logits.hpp"               // IWYU pragma: export
#include "rankcast/parallel/mesh.hpp"                 // IWYU pragma: export
#include "rankcast/transports/local/threads.hpp"      // IWYU pragma: export
