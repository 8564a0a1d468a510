/// A mesh: the ranks of a communicator along three named axes, and the groups that run along them.
/// Tensor neighbours are numbered next to each other, then data, then pipeline, as in Megatron-LM
/// and DeepSpeed: with two of each, ranks 0,1 are a tensor group, 0,2 a data group and 0,4 a
/// pipeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "rankcast/collectives/gather.hpp"
#include "rankcast/core/communicator.hpp"

namespace rankcast::inline v0 {

/// The axes of a mesh, the one whose neighbours are numbered next to each other first.
enum class mesh_axis : std::uint8_t { tensor, data, pipeline };

[[nodiscard]] constexpr std::string_view name(mesh_axis axis) noexcept {
  constexpr std::string_view names[] = {"tensor", "data", "pipeline"};
  return names[static_cast<int>(axis)];
}

/// As the size of one axis: as many ranks as the other two leave.
inline constexpr int remaining_ranks = -1;

/// Ranks along each axis. Their product must be the size of the group.
struct mesh_axes {
  int data = 1;
  int pipeline = 1;
  int tensor = 1;

  friend constexpr bool operator==(const mesh_axes&, const mesh_axes&) noexcept = default;
};

/// Where a rank stands, counted from zero along each axis.
struct mesh_coordinates {
  int data = 0;
  int pipeline = 0;
  int tensor = 0;

  friend constexpr bool operator==(const mesh_coordinates&,
                                   const mesh_coordinates&) noexcept = default;
};

class mesh {
 public:
  /// Cuts `world` into its tensor, data and pipeline groups. Every rank gives the same sizes; one
  /// may be `remaining_ranks`. The groups are called "tensor 0", "tensor 1", ... and inherit the
  /// world's limits.
  ///
  /// Errors   on every rank: usage_error when the sizes do not multiply to the size of the group;
  ///          mismatch_error when ranks give different ones. Then as every collective.
  /// Cost     one all_gather of 12 bytes a rank, and three splits.
  explicit mesh(communicator world, mesh_axes axes, call_options options = {},
                call_site where = call_site::here())
      : world_(std::move(world)) {
    const deadline until = deadline::after(world_.effective_timeout(options.timeout));
    axes_ = agree(axes, {.timeout = until.remaining(), .completion = options.completion}, where);
    for (const mesh_axis a : all_axes) {
      groups_[static_cast<std::size_t>(a)] = group({a}, {.timeout = until.remaining()}, where);
    }
  }

  [[nodiscard]] const communicator& world() const noexcept { return world_; }
  /// The groups along one axis that this rank is a member of; its rank there is its coordinate.
  [[nodiscard]] const communicator& tensor() const noexcept { return along(mesh_axis::tensor); }
  [[nodiscard]] const communicator& data() const noexcept { return along(mesh_axis::data); }
  [[nodiscard]] const communicator& pipeline() const noexcept { return along(mesh_axis::pipeline); }
  [[nodiscard]] const communicator& along(mesh_axis a) const noexcept {
    return groups_[static_cast<std::size_t>(a)];
  }

  /// Ranks along each axis; `remaining_ranks` has been worked out.
  [[nodiscard]] const mesh_axes& axes() const noexcept { return axes_; }
  [[nodiscard]] mesh_coordinates coordinates() const { return coordinates_of(world_.rank()); }

  /// Throws usage_error for a rank outside the world.
  [[nodiscard]] mesh_coordinates coordinates_of(int rank) const {
    if (rank < 0 || rank >= world_.size()) {
      throw usage_error("mesh: rank " + std::to_string(rank) + " is outside of " + world_.text());
    }
    const int plane = rank / axes_.tensor;
    return {
        .data = plane % axes_.data, .pipeline = plane / axes_.data, .tensor = rank % axes_.tensor};
  }

  /// The world's rank at a place. Throws usage_error for a place outside the mesh.
  [[nodiscard]] int rank_at(const mesh_coordinates& c) const {
    for (const mesh_axis a : all_axes) {
      if (at(c, a) < 0 || at(c, a) >= size(a)) {
        throw usage_error("mesh: " + std::string(name(a)) + " " + std::to_string(at(c, a)) +
                          " is outside of " + text(axes_));
      }
    }
    return (c.pipeline * axes_.data + c.data) * axes_.tensor + c.tensor;
  }

  /// A new group over any of the axes: all ranks whose other coordinates are this rank's. Ranks
  /// are numbered tensor first. Every rank of the world calls it with the same axes, in whatever
  /// order; keep the result, each call makes another group.
  ///
  ///   communicator replicas = m.group({mesh_axis::data, mesh_axis::tensor});  // "data x tensor 0"
  ///
  /// Cost     one split.
  [[nodiscard]] communicator group(std::initializer_list<mesh_axis> axes, call_options options = {},
                                   call_site where = call_site::here()) const {
    std::array<bool, 3> chosen{};
    for (const mesh_axis a : axes) chosen[static_cast<std::size_t>(a)] = true;
    std::string group_name;
    for (std::size_t i = 3; i-- > 0;) {
      if (!chosen[i]) continue;
      group_name += (group_name.empty() ? "" : " x ") + std::string(name(all_axes[i]));
    }
    if (group_name.empty()) group_name = "single";
    // The number of the group counts the places along the other axes, in the order of the ranks.
    const mesh_coordinates mine = coordinates();
    int number = 0;
    for (std::size_t i = 3; i-- > 0;) {
      if (!chosen[i]) number = number * size(all_axes[i]) + at(mine, all_axes[i]);
    }
    return world_.split(
        number, world_.rank(),
        {.name = group_name + " " + std::to_string(number), .timeout = options.timeout}, where);
  }

 private:
  static constexpr std::array<mesh_axis, 3> all_axes{mesh_axis::tensor, mesh_axis::data,
                                                     mesh_axis::pipeline};

  static int at(const mesh_coordinates& c, mesh_axis a) noexcept {
    return a == mesh_axis::tensor ? c.tensor : a == mesh_axis::data ? c.data : c.pipeline;
  }
  [[nodiscard]] int size(mesh_axis a) const noexcept {
    return a == mesh_axis::tensor ? axes_.tensor
           : a == mesh_axis::data ? axes_.data
                                  : axes_.pipeline;
  }
  static std::string text(const mesh_axes& a) {
    return "data " + std::to_string(a.data) + " x pipeline " + std::to_string(a.pipeline) +
           " x tensor " + std::to_string(a.tensor);
  }

  // Looks at what every rank gave, so that all of them throw, or none.
  mesh_axes agree(const mesh_axes& mine, call_options options, call_site where) const {
    std::vector<mesh_axes> all(static_cast<std::size_t>(world_.size()));
    all_gather(world_, mine, all, {.timeout = options.timeout, .completion = options.completion},
               where);
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all[0]) continue;
      throw mismatch_error("mesh on " + world_.text() + ": rank 0 gave " + text(all[0]) +
                               ", rank " + std::to_string(r) + " gave " + text(all[r]),
                           "axes", {0, static_cast<int>(r)});
    }
    return complete(mine);
  }

  [[nodiscard]] mesh_axes complete(mesh_axes axes) const {
    const std::string given = "mesh on " + world_.text() + ": " + text(axes);
    std::int64_t ranks = 1;
    int* open = nullptr;
    for (int* size : {&axes.data, &axes.pipeline, &axes.tensor}) {
      if (*size == remaining_ranks && open == nullptr) {
        open = size;
      } else if (*size < 1) {
        throw usage_error(given + ": sizes are positive, and one of them may be remaining_ranks");
      } else {
        ranks *= *size;
        if (ranks > world_.size()) break;  // and before it can overflow
      }
    }
    const bool fits = ranks <= world_.size() &&
                      (open != nullptr ? world_.size() % ranks == 0 : ranks == world_.size());
    if (!fits) {
      throw usage_error(given + (open != nullptr ? " cannot be completed to " : " is not ") +
                        std::to_string(world_.size()) + " ranks");
    }
    if (open != nullptr) *open = static_cast<int>(world_.size() / ranks);
    return axes;
  }

  communicator world_;
  mesh_axes axes_;
  std::array<communicator, 3> groups_;  // by mesh_axis
};

}  // namespace rankcast::inline v0
