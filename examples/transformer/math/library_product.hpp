/// Products of some rows with a block of weights, computed by oneDNN (tested with 2.6) on the
/// calling thread alone: the threads that share a product are a thread_team's, see threads.hpp.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rankcast/core/dtype.hpp"
#include "rankcast/core/error.hpp"

// Of the OpenMP runtime oneDNN is linked with. Declared here because clang has <omp.h> only along
// with a runtime of its own.
extern "C" void omp_set_num_threads(int threads) noexcept;

namespace rankcast::transformer::detail {

/// Whether oneDNN multiplies bfloat16 with instructions of this processor. Elsewhere it emulates
/// them or refuses.
[[nodiscard]] inline bool multiplies_bfloat16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx: return true;
    default: return false;
  }
}

/// How a block of weights lies in memory: [outputs, in], or as oneDNN likes to have it.
enum class block_layout : std::uint8_t { rows, packed };

/// y[rows, outputs] = x[rows, in] * transposed(weights), all contiguous. x and the weights are of
/// `type` (float32 or bfloat16), y and the sums are float32.
struct block_product {
  dtype type = dtype::float32;
  block_layout layout = block_layout::rows;
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  std::int64_t in = 0;

  friend auto operator<=>(const block_product&, const block_product&) = default;
};

/// body(), with oneDNN's exceptions as rankcast's.
template <class Body>
auto translated(const block_product& what, Body&& body) {
  try {
    return body();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    const auto status = static_cast<int>(e.status);
    throw transport_error("oneDNN: " + std::string(e.what()) + " (status " +
                              std::to_string(status) + ") for " + std::to_string(what.rows) +
                              " rows times " + std::string(name(what.type)) + " weights [" +
                              std::to_string(what.outputs) + ", " + std::to_string(what.in) + "]",
                          status);
  }
}

/// oneDNN as one thread uses it: the products it has prepared, by shape, and its scratch memory.
///
/// Nothing here is shared, so that any number of threads may compute at once. What oneDNN generates
/// for a shape it keeps for the process: preparing costs about half a millisecond for the first
/// thread and a tenth of that for the others.
class library_thread {
 public:
  /// The calling thread's. From its first use on, OpenMP of this thread is set to one thread.
  [[nodiscard]] static library_thread& mine() {
    thread_local library_thread instance;
    return instance;
  }

  library_thread(const library_thread&) = delete;
  library_thread& operator=(const library_thread&) = delete;

  /// Computes `what`; see block_product for the shapes. Throws transport_error when oneDNN fails,
  /// std::bad_alloc.
  void multiply(const block_product& what, const void* x, const void* weights, float* y) {
    translated(what, [&] {
      prepared& ready = prepare(what);
      // oneDNN takes all addresses as writable and writes only the last.
      ready.x.set_data_handle(const_cast<void*>(x), stream_);
      ready.weights.set_data_handle(const_cast<void*>(weights), stream_);
      ready.y.set_data_handle(y, stream_);
      ready.primitive.execute(stream_, ready.arguments);
      stream_.wait();
    });
  }

  /// Bytes of float32 weights [outputs, in] in the packed layout. Throws like multiply().
  [[nodiscard]] std::size_t packed_bytes(std::int64_t outputs, std::int64_t in) {
    const block_product what = one_row(outputs, in);
    return translated(what, [&] { return weights_of(what).get_size(); });
  }

  /// packed = the packed layout of float32 rows [outputs, in]. Throws like multiply().
  void pack(const float* rows, void* packed, std::int64_t outputs, std::int64_t in) {
    const block_product what = one_row(outputs, in);
    translated(what, [&] {
      copy(plain(outputs, in), const_cast<float*>(rows), weights_of(what), packed);
    });
  }

  /// rows = float32 rows [outputs, in] of the packed layout. Throws like multiply().
  void unpack(const void* packed, float* rows, std::int64_t outputs, std::int64_t in) {
    const block_product what = one_row(outputs, in);
    translated(
        what, [&] { copy(weights_of(what), const_cast<void*>(packed), plain(outputs, in), rows); });
  }

  // Scratch memory of the functions that call multiply(); each is used by one of them at a time.
  std::vector<float> dense_x{};
  std::vector<bfloat16> narrow_x{};
  std::vector<float> wide_weights{};
  std::vector<float> dense_y{};

 private:
  using descriptor = dnnl::memory::desc;
  using primitive_descriptor = dnnl::inner_product_forward::primitive_desc;

  struct prepared {
    dnnl::inner_product_forward primitive;
    dnnl::memory x, weights, y, scratch;
    std::unordered_map<int, dnnl::memory> arguments;  // the same memory again, as oneDNN takes it
  };

  // More shapes than a run has; prompts of ever new lengths start over.
  static constexpr std::size_t most_prepared = 256;

  library_thread() { omp_set_num_threads(1); }

  [[nodiscard]] static block_product one_row(std::int64_t outputs, std::int64_t in) noexcept {
    return {dtype::float32, block_layout::packed, 1, outputs, in};
  }

  [[nodiscard]] static descriptor plain(std::int64_t rows, std::int64_t columns,
                                        dtype type = dtype::float32) {
    return {{rows, columns},
            type == dtype::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16,
            dnnl::memory::format_tag::ab};
  }

  [[nodiscard]] primitive_descriptor describe(const block_product& what,
                                              const descriptor& weights) const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {{dnnl::prop_kind::forward_inference, plain(what.rows, what.in, what.type), weights,
             plain(what.rows, what.outputs)},
            attributes,
            engine_};
  }

  // The packed layout is the one oneDNN chooses for a single row, whatever the rows: decoding
  // matters most, and with AVX-512 its choice is the same for any number of rows.
  [[nodiscard]] descriptor weights_of(const block_product& what) const {
    if (what.layout == block_layout::rows) return plain(what.outputs, what.in, what.type);
    const descriptor any({what.outputs, what.in}, dnnl::memory::data_type::f32,
                         dnnl::memory::format_tag::any);
    return describe(one_row(what.outputs, what.in), any).weights_desc();
  }

  [[nodiscard]] prepared& prepare(const block_product& what) {
    const auto found = prepared_.find(what);
    if (found != prepared_.end()) return found->second;
    const primitive_descriptor chosen = describe(what, weights_of(what));
    prepared made{.primitive = dnnl::inner_product_forward(chosen),
                  .x = {chosen.src_desc(), engine_, DNNL_MEMORY_NONE},
                  .weights = {chosen.weights_desc(), engine_, DNNL_MEMORY_NONE},
                  .y = {chosen.dst_desc(), engine_, DNNL_MEMORY_NONE},
                  .scratch = {chosen.scratchpad_desc(), engine_},
                  .arguments = {}};
    made.arguments = {{DNNL_ARG_SRC, made.x},
                      {DNNL_ARG_WEIGHTS, made.weights},
                      {DNNL_ARG_DST, made.y},
                      {DNNL_ARG_SCRATCHPAD, made.scratch}};
    if (prepared_.size() >= most_prepared) prepared_.clear();
    return prepared_.emplace(what, std::move(made)).first->second;
  }

  void copy(const descriptor& from_layout, void* from, const descriptor& to_layout, void* to) {
    dnnl::memory source(from_layout, engine_, from);
    dnnl::memory target(to_layout, engine_, to);
    dnnl::reorder(source, target).execute(stream_, source, target);
    stream_.wait();
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<block_product, prepared> prepared_{};
};

}  // namespace rankcast::transformer::detail
