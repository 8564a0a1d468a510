// gloo over its TCP transport on the loopback interface, one process per rank. Takes the drivers'
// command line (support/command.hpp); --store is a folder in which the ranks find each other.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/tensors.hpp"

namespace {

class gloo_peer {
 public:
  gloo_peer(int rank, int ranks, const std::string& store_folder) {
    gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(store_folder);
    auto joined = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    joined->connectFullMesh(store, device);
    context_ = joined;
  }

  void broadcast(std::span<float> values, int root = 0) {
    gloo::BroadcastOptions call(context_);
    call.setRoot(root);
    call.setOutput(values.data(), values.size());
    gloo::broadcast(call);
  }
  void scatter(std::span<float> all, std::span<float> share) {
    gloo::ScatterOptions call(context_);
    call.setRoot(0);
    if (context_->rank == 0) {
      std::vector<float*> shares;
      for (std::size_t at = 0; at < all.size(); at += share.size()) {
        shares.push_back(all.data() + at);
      }
      call.setInputs(shares, share.size());
    }
    call.setOutput(share.data(), share.size());
    gloo::scatter(call);
  }
  void gather(std::span<float> share, std::span<float> all) {
    gloo::GatherOptions call(context_);
    call.setRoot(0);
    call.setInput(share.data(), share.size());
    if (context_->rank == 0) call.setOutput(all.data(), all.size());
    gloo::gather(call);
  }
  void all_gather(std::span<float> share, std::span<float> all) {
    gloo::AllgatherOptions call(context_);
    call.setInput(share.data(), share.size());
    call.setOutput(all.data(), all.size());
    gloo::allgather(call);
  }
  void all_reduce(std::span<float> values) {
    using fold = void (*)(void*, const void*, const void*, std::size_t);
    gloo::AllreduceOptions call(context_);
    call.setOutput(values.data(), values.size());
    call.setReduceFunction(static_cast<fold>(&gloo::sum<float>));
    gloo::allreduce(call);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::guarded([&] {
    const bench::command given(argc, argv);
    // Its event thread needs processor time beside the ranks, so these sleep and are not pinned.
    bench::stage here(given.stage, given.rank, given.ranks, bench::waiting::sleeping);
    gloo_peer peer(given.rank, given.ranks, given.store);
    bench::for_each_point(
        here, given, [&](const bench::point& p) { bench::measure_tensors(here, given, p, peer); });
  });
}
