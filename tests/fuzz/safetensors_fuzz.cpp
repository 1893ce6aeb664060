// Files of weights, as they are, and with the right length before a header: "N\n{...}" is that of a file with
// N bytes of data. A file that is taken holds all bytes of its tensors.

#include <charconv>

#include "src/io/hf/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace temper {
namespace {

std::string file_of_header(std::string_view input) {
  constexpr size_t kMaxData = 4096;
  size_t data = 0;
  const char* end = std::from_chars(input.data(), input.data() + input.size(), data).ptr;
  input.remove_prefix(static_cast<size_t>(end - input.data()));
  if (input.starts_with('\n')) input.remove_prefix(1);
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(input.size() >> (8 * i) & 0xff);
  return file.append(input).append(std::min(data, kMaxData), '\x3f');
}

void read(std::string_view content) {
  const std::string path = input_file("model.safetensors", content);
  takes([&] {
    const SafetensorsFile file(path, "model.safetensors");
    for (const auto& [name, info] : file.tensors()) {
      require(info.begin <= info.end && info.end <= std::ssize(content), "a tensor outside of the file");
      std::string data(static_cast<size_t>(info.end - info.begin), '\0');
      file.read(info.begin, std::ssize(data), data.data());
      require(info.num_elements() * dtype_bits(info.dtype) == 8 * std::ssize(data),
              "a shape of another size");
    }
  });
}

}  // namespace

void fuzz(std::string_view input) {
  read(input);
  read(file_of_header(input));
}

}  // namespace temper
