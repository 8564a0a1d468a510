// Writes the seeds of the fuzzers into the folder given:
//   build/fuzz/tests/fuzz/seeds tests/fuzz/corpus
#include <filesystem>
#include <fstream>

#include "object/everything.hpp"
#include "rankcast/object/frame.hpp"

namespace {

void write(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  const support::everything nothing;
  const support::everything something = support::sample_of_everything();
  std::vector<std::byte> bytes;
  rankcast::message message;
  const std::pair<const char*, const support::everything*> seeds[] = {{"nothing", &nothing},
                                                                      {"something", &something}};
  for (const auto& [name, object] : seeds) {
    rankcast::save_object(*object, bytes);
    write(folder / "archive" / name, bytes);
    rankcast::encode_frame(*object, message);
    message.header.insert(message.header.begin(), std::byte{0});
    write(folder / "frame" / name, message.header);
  }

  // One segment of 4 bytes: the text's, marked in its count. The fuzzer sets the frame's fields.
  rankcast::save_object(nothing, bytes);
  const std::uint64_t marked = (std::uint64_t{1} << 63) | 4;
  std::memcpy(bytes.data(), &marked, sizeof marked);
  std::vector<std::byte> apart = {std::byte{1}, std::byte{0}, std::byte{4}};
  apart.resize(apart.size() + 4, std::byte{'x'});
  const rankcast::frame_header h;
  apart.resize(apart.size() + sizeof h);
  std::memcpy(apart.data() + apart.size() - sizeof h, &h, sizeof h);
  apart.insert(apart.end(), bytes.begin(), bytes.end());
  apart.resize(apart.size() + 8);
  write(folder / "frame" / "apart", apart);
}
