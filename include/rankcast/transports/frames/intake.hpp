/// Takes a message in from a stream: its header as it comes, and, once that is whole, the decoder,
/// which pulls the segments and may wait for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "rankcast/core/error.hpp"
#include "rankcast/transports/frames/group.hpp"

namespace rankcast::inline v0::frames {

/// How a decoder waits for bytes that have not arrived: progresses once, or throws when the call
/// cannot be completed any more.
class waiter {
 public:
  virtual void wait_once(int attempt) = 0;

 protected:
  ~waiter() = default;
};

/// The segments of a message of this rank itself.
class own_segments final : public segment_reader {
 public:
  explicit own_segments(const message& m) : message_(m) {
    for (const auto& s : m.segments) sizes_.push_back(s.size());
  }
  [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
  void read(std::span<std::byte> to) override {
    require_segment(sizes_, next_, to.size());
    const auto& from = message_.segments[next_++];
    std::copy(from.begin(), from.end(), to.begin());
  }

 private:
  const message& message_;
  std::vector<std::uint64_t> sizes_;
  std::size_t next_ = 0;
};

class intake {
 public:
  /// Goes on with the message of rank `source` that `s` brings from rank `from`. True when it has
  /// been decoded. Throws what the decoder throws.
  bool step(group& g, int source, int from, std::uint64_t sequence, std::uint8_t phase, incoming& s,
            message_sink& sink, waiter& w) {
    if (head_.empty()) head_.swap(g.spare_header);
    while (!header_is_whole()) {
      const auto front = s.front();
      if (front.empty()) {
        if (s.finished()) throw decode_error("message: ends before its header does");
        g.grant(from, sequence, phase, s);
        return false;
      }
      const std::size_t n = std::min<std::uint64_t>(front.size(), wanted_ - head_.size());
      head_.insert(head_.end(), front.begin(), front.begin() + static_cast<std::ptrdiff_t>(n));
      s.pop(n, *g.lines);
      g.counters.bytes_received += n;
      read_sizes(s.total());
    }
    g.grant(from, sequence, phase, s);
    reader segments{g, from, sequence, phase, s, w, sizes_};
    sink.decode(source, std::span<const std::byte>(head_).subspan(header_at_), segments);
    head_.clear();
    head_.swap(g.spare_header);
    return true;
  }

  /// Ready for another message.
  void clear() noexcept {
    head_.clear();
    sizes_.clear();
    wanted_ = counts_bytes;
    header_at_ = 0;
  }

 private:
  static constexpr std::uint64_t counts_bytes = 16;

  [[nodiscard]] bool header_is_whole() const noexcept {
    return header_at_ != 0 && head_.size() == wanted_;
  }

  // What stands in front says how much more there is; it is believed as far as the stream goes.
  void read_sizes(std::uint64_t total) {
    if (head_.size() < wanted_ || header_at_ != 0) return;
    detail::byte_reader in(head_, "message");
    const auto header = in.get<std::uint64_t>();
    const auto segments = in.get<std::uint64_t>();
    if (segments > total / 8 || header > total) throw decode_error("message: forged sizes");
    const std::uint64_t prefix = counts_bytes + 8 * segments;
    if (head_.size() < prefix) {
      wanted_ = prefix;
      return;
    }
    std::uint64_t left = total;
    const auto subtract = [&](std::uint64_t n) {
      if (n > left) throw decode_error("message: its parts are longer than the whole");
      left -= n;
    };
    subtract(prefix);
    subtract(header);
    for (std::uint64_t i = 0; i < segments; ++i) {
      sizes_.push_back(in.get<std::uint64_t>());
      subtract(sizes_.back());
    }
    if (left != 0) throw decode_error("message: its parts are shorter than the whole");
    header_at_ = prefix;
    wanted_ = prefix + header;
  }

  class reader final : public segment_reader {
   public:
    reader(group& g, int from, std::uint64_t sequence, std::uint8_t phase, incoming& s, waiter& w,
           std::span<const std::uint64_t> sizes)
        : group_(g),
          from_(from),
          sequence_(sequence),
          phase_(phase),
          stream_(s),
          waiter_(w),
          sizes_(sizes) {}
    [[nodiscard]] std::span<const std::uint64_t> sizes() const noexcept override { return sizes_; }
    void read(std::span<std::byte> to) override {
      require_segment(sizes_, next_, to.size());
      ++next_;
      for (int attempt = 0; !to.empty();) {
        const auto front = stream_.front();
        if (front.empty()) {
          waiter_.wait_once(attempt++);
          continue;
        }
        attempt = 0;
        const std::size_t n = std::min(front.size(), to.size());
        std::memcpy(to.data(), front.data(), n);
        to = to.subspan(n);
        stream_.pop(n, *group_.lines);
        group_.counters.bytes_received += n;
        group_.grant(from_, sequence_, phase_, stream_);
      }
    }

   private:
    group& group_;
    int from_;
    std::uint64_t sequence_;
    std::uint8_t phase_;
    incoming& stream_;
    waiter& waiter_;
    std::span<const std::uint64_t> sizes_;
    std::size_t next_ = 0;
  };

  std::vector<std::byte> head_;  // sizes and header, as they came
  std::vector<std::uint64_t> sizes_;
  std::uint64_t wanted_ = counts_bytes;
  std::uint64_t header_at_ = 0;  // in head_; 0: not known yet
};

}  // namespace rankcast::inline v0::frames
