/// The archives and every codec that needs nothing to link.
#pragma once

#include "rankcast/object/archive.hpp"             // IWYU pragma: export
#include "rankcast/object/codecs/associative.hpp"  // IWYU pragma: export
#include "rankcast/object/codecs/sequence.hpp"     // IWYU pragma: export
#include "rankcast/object/codecs/tensor.hpp"       // IWYU pragma: export
#include "rankcast/object/codecs/utility.hpp"      // IWYU pragma: export
