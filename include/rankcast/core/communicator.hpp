/// What a user holds: a cheap handle on a group of ranks, with the group's default time limit and
/// completion. Copies share the group; ranks are always the group's own numbers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rankcast/core/agreement.hpp"
#include "rankcast/core/operation.hpp"
#include "rankcast/core/timeout.hpp"
#include "rankcast/core/transport.hpp"
#include "rankcast/core/work.hpp"

namespace rankcast::inline v0 {

/// Options of calls that have no root. Every field has a default; pass designated initialisers.
struct call_options {
  rankcast::timeout timeout{};
  rankcast::completion completion = completion::group_default;
};

struct split_options {
  std::string name{};  // of the new group, for messages; empty: the parent's name and the colour
  rankcast::timeout timeout{};          // of the split itself
  rankcast::timeout default_timeout{};  // of the new group; unset: the parent's default
};

class RANKCAST_API communicator {
 public:
  communicator() = default;

  /// For transports: a group that this rank is a member of. `members` are the world ranks of its
  /// ranks, in order.
  communicator(std::shared_ptr<transport> t, std::string name, std::vector<int> members,
               int world_rank, timeout default_timeout = {},
               completion default_completion = completion::local)
      : state_(std::make_shared<state>()) {
    state_->link = std::move(t);
    state_->name = std::move(name);
    state_->members = std::move(members);
    state_->world_rank = world_rank;
    state_->default_timeout = default_timeout;
    state_->default_completion = default_completion;
  }

  /// This rank's number in the group. Throws usage_error on a non-member.
  [[nodiscard]] int rank() const { return link("rank").rank(); }
  /// The same, asked for by a collective: the error of a non-member names the call.
  [[nodiscard]] int rank(opcode call) const { return link(call).rank(); }
  /// Ranks in the group; known to non-members too.
  [[nodiscard]] int size() const { return static_cast<int>(get("size").members.size()); }
  [[nodiscard]] bool is_member() const { return get("is_member").link != nullptr; }
  /// The world rank of each rank of the group; known to non-members too.
  [[nodiscard]] std::span<const int> members() const { return get("members").members; }
  [[nodiscard]] const std::string& name() const { return get("name").name; }
  /// "tensor [2,3]": how messages call the group.
  [[nodiscard]] std::string text() const { return text(get("text")); }

  /// The group's own limit; unset when it goes by the library's.
  [[nodiscard]] timeout default_timeout() const { return get("default_timeout").default_timeout; }
  /// Changes the group's limit for later calls of this rank; calls in flight keep theirs.
  void set_default_timeout(timeout limit) { get("set_default_timeout").default_timeout = limit; }
  /// The limit a call made now by this thread, without one of its own, would have.
  [[nodiscard]] timeout effective_timeout(timeout of_call = {}) const {
    return effective_timeout(get("effective_timeout"), of_call);
  }
  [[nodiscard]] completion default_completion() const {
    return get("default_completion").default_completion;
  }
  void set_default_completion(completion c) {
    get("set_default_completion").default_completion =
        c == completion::group_default ? completion::local : c;
  }

  /// Cuts the group by colour; within a colour ranks are numbered by `key`, ties by their present
  /// numbers. A rank that gives no colour gets a handle that is no member: it knows which ranks
  /// gave one, and refuses every call. Limits and completion defaults are inherited, scopes are
  /// not.
  ///
  /// Errors   as every collective.
  /// Cost     one all_gather of 24 bytes per rank.
  [[nodiscard]] communicator split(std::optional<int> color, int key = 0,
                                   split_options options = {},
                                   call_site where = call_site::here()) const;

  /// A group of its own for a set of this group's ranks, all ranks calling with the same list.
  /// Those outside get a handle that knows the members and refuses calls.
  /// Cost: as split.
  [[nodiscard]] communicator subgroup(std::span<const int> ranks, split_options options = {},
                                      call_site where = call_site::here()) const;

  /// The same ranks with a sequence, a state and limits of their own, for another thread or layer.
  [[nodiscard]] communicator duplicate(split_options options = {},
                                       call_site where = call_site::here()) const;

  /// The collective goodbye: returns when all ranks have called it. The group takes no calls
  /// afterwards. A rank that drops its last handle without it counts as lost to the others.
  void close(call_options options = {}, call_site where = call_site::here()) {
    operation op;
    op.code = opcode::close;
    op.where = where;
    options.completion = completion::everyone;
    run(op, options);
    link("close").close();
  }

  /// Waits for nothing; throws the first cause if the group was revoked meanwhile.
  void flush() const {
    transport& t = link("flush");
    const transport::entry inside(t);
    inside.require([&] { return "flush on " + text(); });
    t.check();
  }

  /// Ends the group on all ranks at once; `cause` is what the others will read. May be called from
  /// any thread: it is how a program gives up a call that another of its threads waits in.
  void revoke(const std::string& cause) const { link("revoke").revoke(cause); }

  [[nodiscard]] std::vector<rank_state> health() const { return link("health").health(); }
  [[nodiscard]] transport_counters counters() const { return link("counters").counters(); }
  [[nodiscard]] std::string_view reduction_guarantee() const {
    return link("reduction_guarantee").reduction_guarantee();
  }

  /// The waist, for collectives: checks the call, fixes its deadline, and starts it.
  [[nodiscard]] work start(operation op, const call_options& options,
                           std::shared_ptr<const void> keep = {}) const {
    transport& t = link(op.code);
    const transport::entry inside(t);
    inside.require([&] { return call_text(op); });
    prepare(t, op, options);
    op.start_clock();
    auto f = t.start(op);
    f->keep = std::move(keep);
    if (!f->done) detail::note_started(state_->link);
    return work(state_->link, std::move(f));
  }

  /// Starts a call and waits for it. (`op` is not copied; its clock and limit are set.)
  void run(operation& op, const call_options& options) const {
    transport& t = link(op.code);
    const transport::entry inside(t);
    inside.require([&] { return call_text(op); });
    prepare(t, op, options);
    // A decoder may wait on another group; this one is to be served meanwhile.
    if (op.sink != nullptr || detail::any_started()) detail::note_started(state_->link);
    t.run(op);
  }
  void run(operation&& op, const call_options& options) const { run(op, options); }

  /// Fails a call that only the collective above the waist could see to be wrong; the other ranks
  /// are told. Always throws usage_error.
  [[noreturn]] void refuse(const operation& op, const std::string& wrong) const {
    const std::string text = call_text(op) + ": " + wrong;
    transport& t = link(op.code);
    const transport::entry inside(t);
    inside.require([&] { return call_text(op); });
    if (!is_point_to_point(op.code)) t.refuse(op, text);
    throw usage_error(text);
  }

 private:
  friend class scoped_timeout;

  struct state {
    std::shared_ptr<transport> link;  // null on a non-member
    std::string name;
    std::vector<int> members;
    int world_rank = -1;
    timeout default_timeout;
    completion default_completion = completion::local;
    std::uint64_t id = next_id();

    static std::uint64_t next_id() noexcept {
      static std::atomic<std::uint64_t> counter{1};
      return counter.fetch_add(1, std::memory_order_relaxed);
    }
  };

  state& get(std::string_view call) const {
    if (state_ == nullptr) throw usage_error(std::string(call) + ": the communicator is empty");
    return *state_;
  }

  static std::string text(const state& s) {
    std::string t = "group '" + s.name + "' [";
    for (std::size_t i = 0; i < s.members.size(); ++i) {
      if (i != 0) t += ",";
      if (i == 8 && s.members.size() > 10)
        return t + "... " + std::to_string(s.members.size()) + " ranks]";
      t += std::to_string(s.members[i]);
    }
    return t + "]";
  }

  transport& link(opcode call) const {
    if (state_ != nullptr && state_->link != nullptr) return *state_->link;
    return link(rankcast::name(call));  // throws
  }
  transport& link(std::string_view call) const {
    const state& s = get(call);
    if (s.link == nullptr) {
      throw usage_error(std::string(call) + ": world rank " + std::to_string(s.world_rank) +
                        " is not a member of " + text(s));
    }
    return *s.link;
  }

  std::string call_text(const operation& op) const {
    return std::string(rankcast::name(op.code)) + " on " + text(*state_);
  }

  static timeout effective_timeout(const state& s, timeout of_call) noexcept {
    if (of_call.is_set()) return of_call;
    if (const timeout scoped = scoped_timeout::find(s.id); scoped.is_set()) return scoped;
    return s.default_timeout.is_set() ? s.default_timeout : library_timeout();
  }

  void prepare(transport& t, operation& op, const call_options& options) const {
    op.begun = {};
    op.limit = effective_timeout(*state_, options.timeout);
    op.completion = options.completion == completion::group_default ? state_->default_completion
                                                                    : options.completion;
    if (!detail::plainly_sound(op, t.rank(), t.size())) require_sound(t, op);
  }
  void require_sound(transport& t, const operation& op) const {
    const std::string wrong = check_operation(op, t.rank(), t.size());
    if (wrong.empty()) return;
    const std::string text = call_text(op) + ": " + wrong;
    if (!is_point_to_point(op.code)) t.refuse(op, text);
    throw usage_error(text);
  }

  // What each rank tells the others when a group is cut.
  struct split_entry {
    std::int64_t color = 0;
    std::int32_t key = 0;
    std::int32_t member = 0;
    std::uint64_t token = 0;  // rank 0's: names the cut
  };
  std::vector<split_entry> exchange(const split_entry& mine, message_type kind,
                                    const split_options& options, call_site where) const;
  communicator make_group(const std::vector<int>& ranks, std::uint64_t key, bool member,
                          const std::string& fallback_name, const split_options& options) const;

  std::shared_ptr<state> state_;
};

inline std::vector<communicator::split_entry> communicator::exchange(const split_entry& mine,
                                                                     message_type kind,
                                                                     const split_options& options,
                                                                     call_site where) const {
  std::vector<split_entry> all(static_cast<std::size_t>(size()));
  operation op;
  op.code = opcode::split;
  op.message_type = kind;
  op.send = read_buffer(mine);
  op.receive = write_buffer(all);
  op.type = op.send.type;
  op.where = where;
  run(op, {.timeout = options.timeout});
  return all;
}

inline communicator communicator::make_group(const std::vector<int>& ranks, std::uint64_t key,
                                             bool member, const std::string& fallback_name,
                                             const split_options& options) const {
  const state& parent = *state_;
  std::vector<int> members;
  for (const int r : ranks) members.push_back(parent.members[static_cast<std::size_t>(r)]);
  const std::string group_name = options.name.empty() ? fallback_name : options.name;
  communicator group(nullptr, group_name, std::move(members), parent.world_rank,
                     options.default_timeout.or_else(parent.default_timeout),
                     parent.default_completion);
  if (member) group.state_->link = parent.link->subgroup(ranks, key, text(*group.state_));
  return group;
}

inline communicator communicator::split(std::optional<int> color, int key, split_options options,
                                        call_site where) const {
  split_entry mine;
  mine.color = color.value_or(0);
  mine.member = color.has_value() ? 1 : 0;
  mine.key = key;
  mine.token = state::next_id();
  const std::vector<split_entry> all = exchange(mine, {1, "split by colour"}, options, where);
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    const split_entry& e = all[static_cast<std::size_t>(r)];
    if (e.member == mine.member && e.color == mine.color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
  });
  if (mine.member == 0) {  // the members a non-member may ask for are all that gave a colour
    ranks.clear();
    for (int r = 0; r < size(); ++r) {
      if (all[static_cast<std::size_t>(r)].member != 0) ranks.push_back(r);
    }
  }
  const std::string fallback =
      name() + "/" + (mine.member != 0 ? std::to_string(mine.color) : std::string("none"));
  return make_group(ranks, all.front().token, mine.member != 0, fallback, options);
}

inline communicator communicator::subgroup(std::span<const int> ranks, split_options options,
                                           call_site where) const {
  const std::vector<int> list(ranks.begin(), ranks.end());
  split_entry mine;
  mine.token = state::next_id();
  std::string wrong;
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] < 0 || list[i] >= size()) {
      wrong =
          "rank " + std::to_string(list[i]) + " is outside of a group of " + std::to_string(size());
    }
    if (std::find(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), list[i]) !=
        list.begin() + static_cast<std::ptrdiff_t>(i)) {
      wrong = "rank " + std::to_string(list[i]) + " is listed twice";
    }
    hash = (hash ^ static_cast<std::uint64_t>(list[i])) * 0x100000001b3u;
  }
  if (list.empty()) wrong = "no ranks are listed";
  if (!wrong.empty()) {
    operation op;
    op.code = opcode::split;
    op.where = where;
    refuse(op, "subgroup: " + wrong);
  }
  mine.color = static_cast<std::int64_t>(hash);
  const std::vector<split_entry> all =
      exchange(mine, {2, "a group of listed ranks"}, options, where);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].color != all[0].color) {
      throw mismatch_error("subgroup on " + text() + ": rank " + std::to_string(r) +
                               " lists other ranks than rank 0",
                           "ranks", {static_cast<int>(r)});
    }
  }
  const bool member = std::find(list.begin(), list.end(), rank()) != list.end();
  return make_group(list, all.front().token, member, name() + "/subgroup", options);
}

inline communicator communicator::duplicate(split_options options, call_site where) const {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) ranks[static_cast<std::size_t>(r)] = r;
  if (options.name.empty()) options.name = name() + "/duplicate";
  return subgroup(ranks, std::move(options), where);
}

inline scoped_timeout::scoped_timeout(const communicator& group, timeout limit)
    : group_id_(group.get("scoped_timeout").id), limit_(limit), outer_(innermost_) {
  if (!limit.is_set()) throw usage_error("scoped_timeout: the limit is unset");
  innermost_ = this;
}

}  // namespace rankcast::inline v0
