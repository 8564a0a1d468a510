/// What a leader tells its workers, and what they answer.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "rankcast/core/bytes.hpp"
#include "rankcast/core/communicator.hpp"
#include "rankcast/core/message.hpp"
#include "rankcast/core/revocation.hpp"

namespace rankcast::inline v0::detail {

enum class control_kind : std::uint8_t { work, finish, failed };

/// Why a call failed, and where.
struct call_failure {
  int rank = -1;
  std::string text;
};

inline constexpr message_type control_type{0x636f6f7264696e61u, "a control message of a session"};

// A function both ends know by its number.
class remote_function {
 public:
  virtual ~remote_function() = default;
  /// Reads the arguments of the next call.
  virtual void decode(std::span<const std::byte> frame, segment_reader& segments) = 0;
  /// Makes the call with them; what it returns is dropped.
  virtual void call() = 0;
};

// What writes the arguments behind the head of a control message.
class argument_writer {
 public:
  virtual void write(message& out) const = 0;

 protected:
  ~argument_writer() = default;
};

// Head: kind, then of work the number of the function, of failed the rank and the text. The frame
// of the arguments follows.
class control_source final : public message_source {
 public:
  explicit control_source(control_kind kind, std::uint32_t function = 0,
                          const argument_writer* arguments = nullptr)
      : kind_(kind), function_(function), arguments_(arguments) {}
  explicit control_source(const call_failure& failure)
      : kind_(control_kind::failed), failure_(&failure) {}

  void encode(int, message& out) override {
    if (arguments_ != nullptr) arguments_->write(out);
    std::vector<std::byte> end;
    byte_writer what(end);
    if (failure_ != nullptr) {
      what.put_text(failure_->text);
      what.put(failure_->rank);
    }
    what.put(function_);
    what.put(kind_);
    out.append(end);
  }

 private:
  control_kind kind_;
  std::uint32_t function_ = 0;
  const argument_writer* arguments_ = nullptr;
  const call_failure* failure_ = nullptr;
};

class control_sink final : public message_sink {
 public:
  explicit control_sink(std::span<remote_function* const> functions) noexcept
      : functions_(functions) {}

  control_kind kind = control_kind::finish;
  remote_function* function = nullptr;  // of work
  std::exception_ptr undecoded;         // of work whose arguments could not be read
  call_failure failure;                 // of failed

  void decode(int, std::span<const std::byte> bytes, segment_reader& segments) override {
    constexpr std::size_t tail = sizeof(std::uint32_t) + sizeof(control_kind);
    if (bytes.size() < tail) throw decode_error("control message: it is cut off");
    byte_reader in(bytes.last(tail), "control message");
    bytes = bytes.first(bytes.size() - tail);
    const auto number = in.get<std::uint32_t>();
    kind = in.get<control_kind>();
    if (kind == control_kind::failed) {
      byte_reader what(bytes, "control message");
      failure.text = what.get_text();
      failure.rank = what.get<int>();
    } else if (kind == control_kind::work) {
      if (number >= functions_.size()) {
        undecoded = std::make_exception_ptr(usage_error(
            "serve: the leader calls function " + std::to_string(number) + ", this rank has " +
            std::to_string(functions_.size()) + "; wrap the same ones on all ranks"));
        return;
      }
      function = functions_[number];
      try {
        function->decode(bytes, segments);
      } catch (const std::exception&) {  // what the transport throws here is no std::exception
        undecoded = std::current_exception();
      }
    }
  }

 private:
  std::span<remote_function* const> functions_;
};

/// How a rank's part of a call went.
struct call_report {
  bool failed = false;
  bool consequence = false;  // of another rank's failure, of which it was told by a revoked group
  std::string text;

  template <class Archive>
  void serialize(Archive& ar, unsigned) {
    ar& failed& consequence& text;
  }
};

[[nodiscard]] inline call_report report_of(const std::exception_ptr& failure) {
  call_report r;
  if (failure == nullptr) return r;
  r.failed = true;
  try {
    std::rethrow_exception(failure);
  } catch (const revoked_error& e) {
    r.consequence = true;
    r.text = e.what();
  } catch (const peer_lost_error& e) {
    r.consequence = true;
    r.text = e.what();
  } catch (...) {
    r.text = current_exception_text();
  }
  return r;
}

}  // namespace rankcast::inline v0::detail
