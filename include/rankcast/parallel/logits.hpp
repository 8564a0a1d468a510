/// Tensor-parallel logits: from shards of the vocabulary to what the caller needs, with the fewest
/// bytes between ranks. Scores, picks and samples cost a few bytes a row, whatever the vocabulary;
/// whole logits travel only when they are asked for.
#pragma once

#include "rankcast/parallel/logits/gather.hpp"      // IWYU pragma: export
#include "rankcast/parallel/logits/pick.hpp"        // IWYU pragma: export
#include "rankcast/parallel/logits/sample.hpp"      // IWYU pragma: export
#include "rankcast/parallel/logits/score.hpp"       // IWYU pragma: export
#include "rankcast/parallel/logits/vocabulary.hpp"  // IWYU pragma: export
