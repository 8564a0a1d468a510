/// A session of one leader and its workers on a group of ranks: the leader runs a program that
/// knows of no ranks (a generate loop, a harness, a server), and the functions it calls run on all
/// ranks of the group.
///
///   rankcast::coordinator session(tensor_group);
///   auto forward = session.wrap([&](std::vector<int> ids, int past) { return model(ids, past); });
///   if (session.is_leader()) generate(forward);
///   else session.serve();
///
/// Workers wait for work without a limit of time, for a leader may be busy for long; they leave
/// when the leader finishes (at the latest in its destructor), when it is lost, or by an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rankcast/core/communicator.hpp"
#include "rankcast/object/gather.hpp"
#include "rankcast/parallel/coordinator/arguments.hpp"
#include "rankcast/parallel/coordinator/control.hpp"

namespace rankcast::inline v0 {

struct coordinator_options {
  int leader = 0;  // rank of the group
  /// What the leader allows its workers, once its own part of a call is done.
  timeout call_timeout{};  // unset: the group's own limit
  /// How long a rank that failed waits for the others to be done before it revokes the group, to
  /// free those that wait for it inside the call.
  std::chrono::nanoseconds grace = std::chrono::milliseconds(100);
};

class coordinator {
 public:
  /// Collective over `group`, whose ranks the functions may communicate on. Makes a duplicate for
  /// its own messages.
  ///
  /// Errors   usage_error when the leader is outside of the group; those of duplicate().
  explicit coordinator(const communicator& group, coordinator_options options = {},
                       call_site where = call_site::here())
      : state_(std::make_shared<state>(group, options, where)) {}

  /// The leader's sends its workers home, if finish() has not; also while an exception unwinds.
  ~coordinator() {
    if (state_ == nullptr) return;
    try {
      state_->finish();
    } catch (...) {  // the group is gone: nobody is left to be told
    }
  }
  coordinator(coordinator&&) noexcept = default;
  coordinator& operator=(coordinator&&) = delete;

  [[nodiscard]] bool is_leader() const noexcept { return state_->is_leader(); }
  [[nodiscard]] int leader() const noexcept { return state_->options.leader; }

  /// A callable of the same signature. Called on the leader it runs `function` on all ranks of the
  /// group, with the leader's arguments, and returns what the leader's own returned. All ranks wrap
  /// the same functions in the same order.
  ///
  /// Arguments are objects (rankcast/object.hpp), by value or const reference; spans and
  /// string_views are received as vectors and strings.
  ///
  /// Errors   usage_error when called on a worker, from inside a wrapped function, or after the
  ///          session has ended. When the function throws on any rank, that rank keeps its own
  ///          exception and all others, the leader and every worker in serve(), throw remote_error
  ///          naming the first rank and its text. If ranks were waiting for it in a call of the
  ///          group, the group is revoked to free them. peer_lost_error when a worker has gone;
  ///          timeout_error when workers have not ended their part within the limit.
  /// Cost     one message to the workers and one small message from each.
  template <class F>
  [[nodiscard]] auto wrap(F function) {
    return wrap(std::function(std::move(function)));
  }
  template <class Result, class... Arguments>
  [[nodiscard]] auto wrap(std::function<Result(Arguments...)> function);

  /// Works for the leader until it finishes. Returns at once on the leader's rank.
  ///
  /// Errors   peer_lost_error when the leader has gone without finishing; what a wrapped function
  ///          throws here; remote_error when one has thrown elsewhere. A worker may call serve()
  ///          again after an error if the group still stands.
  void serve() { state_->serve(); }

  /// Works for the leader with one function, which the leader wraps as its only one.
  template <class F>
  void serve(F handler) {
    static_cast<void>(wrap(std::move(handler)));
    serve();
  }

  /// Sends the workers home. Only the first time counts; nothing on a worker.
  void finish() { state_->finish(); }

 private:
  struct state {
    state(const communicator& g, const coordinator_options& o, call_site where)
        : options(o), group(g) {
      if (o.leader < 0 || o.leader >= g.size()) {
        throw usage_error("coordinator on " + g.text() + ": leader " + std::to_string(o.leader) +
                          " is outside of a group of " + std::to_string(g.size()));
      }
      control = g.duplicate({.name = g.name() + "/control"}, where);
    }

    [[nodiscard]] bool is_leader() const { return control.rank() == options.leader; }

    [[nodiscard]] operation control_operation() const {
      operation op;
      op.code = opcode::broadcast;
      op.root = options.leader;
      op.message_type = detail::control_type;
      return op;
    }
    void tell(detail::control_source source) {
      operation op = control_operation();
      op.source = &source;
      control.run(op, {.completion = completion::local});
    }
    // The idle wait.
    [[nodiscard]] detail::control_sink hear(bool own_failure, const std::string& text) {
      detail::control_sink sink(functions);
      operation op = control_operation();
      op.sink = &sink;
      work w = control.start(op, {.timeout = no_timeout, .completion = completion::local});
      if (own_failure) free_the_others(w, text);
      w.wait();
      return sink;
    }

    // Waits as long as the others may need to end their part by themselves, then revokes the group
    // in whose calls they may wait for us.
    void free_the_others(work& w, const std::string& text) {
      const auto until = steady_clock::now() + options.grace;
      while (steady_clock::now() < until) {
        if (w.test()) return;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      group.revoke("rank " + std::to_string(group.rank()) +
                   " failed in a call of its session: " + text);
    }

    void require_open(const char* call) const {
      if (finished) throw usage_error(std::string(call) + ": the session has ended");
      if (inside) {
        throw usage_error(std::string(call) + ": from inside a function of the same session");
      }
    }

    // Runs this rank's part and keeps what it throws.
    template <class F>
    std::exception_ptr attempt(F&& part) {
      inside = true;
      std::exception_ptr failure;
      try {
        part();
      } catch (...) {
        failure = std::current_exception();
      }
      inside = false;
      return failure;
    }

    void serve() {
      if (is_leader()) return;
      require_open("serve");
      std::exception_ptr own;
      for (;;) {
        const detail::control_sink message =
            hear(own != nullptr, own != nullptr ? detail::report_of(own).text : std::string());
        switch (message.kind) {
          case detail::control_kind::finish:
            finished = true;
            if (own != nullptr) std::rethrow_exception(own);
            return;
          case detail::control_kind::failed:
            if (own != nullptr && !detail::report_of(own).consequence) {
              std::rethrow_exception(own);
            }
            throw remote_error(message.failure.text, message.failure.rank);
          case detail::control_kind::work: break;
        }
        own = message.undecoded;
        if (own == nullptr) own = attempt([&] { message.function->call(); });
        gather_object(control, detail::report_of(own), reports, {.root = options.leader});
      }
    }

    // The leader's side of a call: `part` is its own.
    template <class F>
    void drive(std::uint32_t number, const detail::argument_writer& arguments, F&& part) {
      require_open("a wrapped function");
      if (!is_leader()) {
        throw usage_error("a wrapped function: rank " + std::to_string(control.rank()) +
                          " is a worker of rank " + std::to_string(options.leader) +
                          ", whose place is in serve()");
      }
      tell(detail::control_source(detail::control_kind::work, number, &arguments));
      const std::exception_ptr own = attempt(part);
      const detail::call_report mine = detail::report_of(own);
      detail::call_failure first;
      std::exception_ptr lost;
      try {
        auto w = start_gather_object(control, mine, reports,
                                     {.root = options.leader, .timeout = options.call_timeout});
        if (mine.failed) free_the_others(w, mine.text);
        w.wait();
        first = first_failure();
      } catch (const peer_lost_error& e) {
        lost = std::current_exception();
        first = {e.rank(), e.what()};
      } catch (const error& e) {
        lost = std::current_exception();
        first = {control.rank(), e.what()};
      }
      if (first.rank < 0) return;
      // All hear of it; where the control group itself has ended they have.
      try {
        tell(detail::control_source(first));
      } catch (const error&) {
      }
      if (own != nullptr && !mine.consequence) std::rethrow_exception(own);
      if (lost != nullptr) std::rethrow_exception(lost);
      throw remote_error(first.text, first.rank);
    }

    // The rank to name: the first that failed by itself, else the first that failed.
    [[nodiscard]] detail::call_failure first_failure() const {
      const detail::call_report* found = nullptr;
      int rank = -1;
      for (int r = 0; r < static_cast<int>(reports.size()); ++r) {
        const detail::call_report& report = reports[static_cast<std::size_t>(r)];
        if (!report.failed) continue;
        if (found != nullptr && (!found->consequence || report.consequence)) continue;
        found = &report;
        rank = r;
      }
      if (found == nullptr) return {};
      return {rank, "a call of the session on " + group.text() + ": rank " + std::to_string(rank) +
                        " failed: " + found->text};
    }

    void finish() {
      if (finished || !is_leader()) return;
      finished = true;
      tell(detail::control_source(detail::control_kind::finish));
    }

    coordinator_options options;
    communicator group;
    communicator control;
    std::vector<std::unique_ptr<detail::remote_function>> owned;
    std::vector<detail::remote_function*> functions;
    std::vector<detail::call_report> reports;
    bool finished = false;
    bool inside = false;
  };

  std::shared_ptr<state> state_;
};

template <class Result, class... Arguments>
auto coordinator::wrap(std::function<Result(Arguments...)> function) {
  static_assert(
      ((!std::is_lvalue_reference_v<Arguments> ||
        std::is_const_v<std::remove_reference_t<Arguments>>)&&...),
      "rankcast: a wrapped function takes its arguments by value or const reference; what "
      "it wrote to them would stay on one rank");
  using pack = detail::argument_pack<detail::stored_t<Arguments>...>;

  struct worker_function final : detail::remote_function {
    explicit worker_function(std::function<Result(Arguments...)> f) : function(std::move(f)) {}
    void decode(std::span<const std::byte> frame, segment_reader& segments) override {
      std::apply(
          [&](auto&... kept) {
            pack p{{&kept...}};
            decode_frame(p, frame, &segments);
          },
          arguments);
    }
    void call() override {
      std::apply([&](auto&... kept) { static_cast<void>(function(kept...)); }, arguments);
    }
    std::function<Result(Arguments...)> function;
    std::tuple<detail::stored_t<Arguments>...> arguments;
  };

  struct writer final : detail::argument_writer {
    explicit writer(const pack& p) : arguments(p) {}
    void write(message& out) const override { encode_frame(arguments, out); }
    const pack& arguments;
  };

  state_->owned.push_back(std::make_unique<worker_function>(function));
  state_->functions.push_back(state_->owned.back().get());
  const auto number = static_cast<std::uint32_t>(state_->functions.size() - 1);
  return
      [state = state_, number, function = std::move(function)](Arguments... arguments) -> Result {
        const auto with = [&](auto... given) -> Result {
          const pack sent{{given.get()...}};
          if constexpr (std::is_void_v<Result>) {
            state->drive(number, writer(sent),
                         [&] { function(std::forward<Arguments>(arguments)...); });
          } else {
            std::optional<Result> result;
            state->drive(number, writer(sent),
                         [&] { result.emplace(function(std::forward<Arguments>(arguments)...)); });
            return std::move(*result);
          }
        };
        return with(detail::given_argument<Arguments>(arguments)...);
      };
}

}  // namespace rankcast::inline v0
