// Object broadcasts from rank 0, the same for every peer that has them: a class with
//
//   template <class T> void broadcast_object(T& object);
//
// Every rank receives over the object of the sample before, as a loop of a server would.
#pragma once

#include <stdexcept>

#include "../objects.hpp"
#include "measure.hpp"

namespace bench {

template <class Object, class Peer>
void measure_object(stage& here, const command& given, const point& p, Peer& peer) {
  Object object, wanted;
  measure(
      here, given, p,
      [&](int sample) {
        renew(wanted, sample);
        if (here.rank() == 0) renew(object, sample);
      },
      [&] { peer.broadcast_object(object); },
      [&](int) {
        if (object != wanted) throw std::runtime_error("WRONG: " + p.operation);
      });
}

/// False when the point is none of these.
template <class Peer>
bool measure_objects(stage& here, const command& given, const point& p, Peer& peer) {
  if (p.operation == "object_small") measure_object<small_object>(here, given, p, peer);
  else if (p.operation == "object_batch") measure_object<batch_object>(here, given, p, peer);
  else if (p.operation == "object_tensors") measure_object<tensors_object>(here, given, p, peer);
  else if (p.operation == "object_records") measure_object<records_object>(here, given, p, peer);
  else return false;
  return true;
}

}  // namespace bench
