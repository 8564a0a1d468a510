/// Objects between ranks, and the sessions of leaders and workers that stand on them: every type of
/// the standard library's that owns its data, tensors, and every class with a Boost.Serialization
/// serialize(). Needs Boost's headers and nothing to link, but for base_object<B>(*this) of a
/// polymorphic B, where static_cast<B&>(*this) does without.
#pragma once

#include "rankcast/object/archive.hpp"        // IWYU pragma: export
#include "rankcast/object/broadcast.hpp"      // IWYU pragma: export
#include "rankcast/object/codecs.hpp"         // IWYU pragma: export
#include "rankcast/object/exchange.hpp"       // IWYU pragma: export
#include "rankcast/object/frame.hpp"          // IWYU pragma: export
#include "rankcast/object/gather.hpp"         // IWYU pragma: export
#include "rankcast/object/scatter.hpp"        // IWYU pragma: export
#include "rankcast/parallel/coordinator.hpp"  // IWYU pragma: export
#include "rankcast/rankcast.hpp"              // IWYU pragma: export
