/// Objects between ranks: every type of the standard library's that owns its data, tensors, and
/// every class with a Boost.Serialization serialize(). Needs Boost's headers and nothing to link.
#pragma once

#include "rankcast/object/archive.hpp"  // IWYU pragma: export
#include "rankcast/object/codecs.hpp"   // IWYU pragma: export
#include "rankcast/object/frame.hpp"    // IWYU pragma: export
#include "rankcast/rankcast.hpp"        // IWYU pragma: export
