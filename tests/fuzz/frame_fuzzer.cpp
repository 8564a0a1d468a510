// libFuzzer: any bytes as a frame with segments of any sizes. The input is one byte with the number
// of segments, their sizes in two bytes each, their contents, and the frame. Checksum and type are
// set right before a second try, for chance does not hit them.
//   tools/fuzz 60
#include "fuzz/check.hpp"
#include "object/delivery.hpp"

namespace {

using support::everything;

void try_frame(std::span<const std::byte> header, const rankcast::message& with_segments) {
  everything object;
  support::delivery segments(with_segments);
  try {
    rankcast::decode_frame(object, header, &segments);
  } catch (const rankcast::decode_error&) {
    return;
  }
  rankcast::message again;
  rankcast::encode_frame(object, again);
  everything copy;
  support::deliver(again, copy);
  support::require(support::same(object, copy), "a round trip changes it");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto bytes = std::as_bytes(std::span(data, size));
  const auto take = [&bytes](std::size_t n) {
    const auto part = bytes.first(std::min(n, bytes.size()));
    bytes = bytes.subspan(part.size());
    return part;
  };
  rankcast::message message;
  if (bytes.empty()) return 0;
  std::vector<std::size_t> sizes(std::to_integer<std::size_t>(take(1)[0]) % 4);
  for (std::size_t& n : sizes) {
    for (const std::byte b : take(2)) n = 256 * n + std::to_integer<std::size_t>(b);
  }
  for (const std::size_t n : sizes) message.segments.push_back(take(n));
  try_frame(bytes, message);

  rankcast::frame_header h;
  if (bytes.size() < sizeof h) return 0;
  message.header.assign(bytes.begin(), bytes.end());
  std::memcpy(&h, message.header.data(), sizeof h);
  h.magic = rankcast::frame_header::right_magic;
  h.version = rankcast::frame_header::right_version;
  h.type = rankcast::message_type_of<everything>().hash;
  const std::size_t table = 8 * sizes.size();
  if (bytes.size() - sizeof h < table) return 0;
  h.segments = sizes.size();
  h.segment_bytes = 0;
  std::byte* at = message.header.data() + message.header.size() - table;
  for (const auto& segment : message.segments) {
    const std::uint64_t n = segment.size();
    h.segment_bytes += n;
    std::memcpy(at, &n, sizeof n);
    at += sizeof n;
  }
  h.metadata_bytes = bytes.size() - sizeof h - table;
  h.checksum = rankcast::detail::frame_checksum(h, std::span(message.header).last(table));
  std::memcpy(message.header.data(), &h, sizeof h);
  try_frame(message.header, message);
  return 0;
}
