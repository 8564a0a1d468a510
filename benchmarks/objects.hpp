// The four objects of the object benchmarks, with the `serialize` that Boost.Serialization asks
// for, so that Boost.MPI and rankcast send the very same types. `renew(object, sample)` writes the
// sample's values over an object of any earlier sample.
//
// The payload of each, which its table row calls bytes, is its numbers and characters alone:
// 2 KiB, 256 KiB, 64 MiB, and 36 bytes for each of 100000 records.
#pragma once

#include <boost/serialization/map.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/values.hpp"

namespace bench {

/// A request: some named fields, some tokens.
struct small_object {
  std::map<std::string, std::string> fields;
  std::vector<std::int64_t> tokens;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& fields& tokens;
  }
  bool operator==(const small_object&) const = default;
};

struct prompt {
  std::map<std::string, std::string> labels;
  std::vector<std::int64_t> tokens;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& labels& tokens;
  }
  bool operator==(const prompt&) const = default;
};

/// What a server sends to its workers for one step: prompts of 1024 tokens, how to sample.
struct batch_object {
  std::vector<prompt> prompts;
  double temperature = 0;
  std::vector<std::string> stop;
  std::map<std::int64_t, double> bias;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& prompts& temperature& stop& bias;
  }
  bool operator==(const batch_object&) const = default;
};

/// Weights by name.
struct tensors_object {
  std::map<std::string, std::vector<float>> layers;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& layers;
  }
  bool operator==(const tensors_object&) const = default;
};

struct record {
  std::int64_t id = 0;
  std::string name;
  double score = 0;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& id& name& score;
  }
  bool operator==(const record&) const = default;
};

struct records_object {
  std::vector<record> records;

  template <class Archive>
  void serialize(Archive& archive, unsigned) {
    archive& records;
  }
  bool operator==(const records_object&) const = default;
};

inline void renew_tokens(std::vector<std::int64_t>& tokens, std::size_t count, int first) {
  tokens.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[i] = (static_cast<std::int64_t>(i) * 7919 + first) % 49152;
  }
}

inline void renew(small_object& object, int sample) {
  for (int i = 0; i < 8; ++i) {
    object.fields["field " + std::to_string(i)].assign(128,
                                                       static_cast<char>('a' + (i + sample) % 26));
  }
  renew_tokens(object.tokens, 128, sample);
}

inline void renew(batch_object& object, int sample) {
  object.prompts.resize(32);
  for (std::size_t i = 0; i < object.prompts.size(); ++i) {
    prompt& p = object.prompts[i];
    p.labels["id"] = "request " + std::to_string(i) + " of step " + std::to_string(sample);
    p.labels["model"] = "a model";
    renew_tokens(p.tokens, 1024, static_cast<int>(i) * 1024 + sample);
  }
  object.temperature = 0.5 + 0.001 * sample;
  object.stop = {"</s>", "STOP"};
  object.bias = {{13, -1.0}, {42, 0.5}};
}

inline void renew(tensors_object& object, int sample) {
  for (int i = 0; i < 8; ++i) {
    std::vector<float>& layer = object.layers["layer " + std::to_string(i)];
    layer.resize(2u << 20);
    fill(layer, i, sample);
  }
}

inline void renew(records_object& object, int sample) {
  object.records.resize(100000);
  for (std::size_t i = 0; i < object.records.size(); ++i) {
    record& r = object.records[i];
    r.id = static_cast<std::int64_t>(i) + sample;
    r.name = "the record " + std::to_string(100000000 + r.id);
    r.score = 0.5 * static_cast<double>(i) + sample;
  }
}

}  // namespace bench
