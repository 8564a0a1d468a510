// libFuzzer: any bytes as an object. They are refused with decode_error, or are data that survive a
// round trip, also over an object that held other data.
//   tools/fuzz 60
#include "fuzz/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using support::everything;
  static everything used;  // what the inputs before have left
  const auto bytes = std::as_bytes(std::span(data, size));
  everything object;
  bool taken = true;
  try {
    rankcast::load_object(object, bytes);
  } catch (const rankcast::decode_error&) {
    taken = false;
  }
  try {
    rankcast::load_object(used, bytes);
    support::require(taken, "refused by a new object but not by a used one");
  } catch (const rankcast::decode_error&) {
    support::require(!taken, "refused by a used object but not by a new one");
    return 0;
  }
  support::require(support::same(object, used), "what was there before shows through");

  std::vector<std::byte> again;
  rankcast::save_object(object, again);
  everything copy;
  rankcast::load_object(copy, again);
  support::require(support::same(object, copy), "a round trip changes it");
  return 0;
}
