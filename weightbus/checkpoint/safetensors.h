// Safetensors files: 8 bytes of little-endian header length, a JSON header, then the data of all tensors back to back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/checkpoint/file.h"
#include "weightbus/model/manifest.h"

namespace weightbus::checkpoint {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxTensorNameBytes = 4096;

// A tensor and its bytes [begin, end), counted from the end of the header.
struct TensorEntry {
  model::TensorSpec spec;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

// Reads a header; pure. `data_bytes` is what follows it in the file. The entries come in the order of their data and
// cover it without gap or overlap. kCorrupted names the first tensor that is wrong; kUnsupported an unknown dtype.
base::Result<std::vector<TensorEntry>> parse_header(std::string_view header_json, std::uint64_t data_bytes);

// An open file whose header has been read and checked. Reads may come from any thread.
class SafetensorsFile {
 public:
  // Errors name the file.
  static base::Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const noexcept { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const noexcept { return tensors_; }
  // Fills `out` with bytes of the tensor, from `offset` into it. kCorrupted when the file has become shorter.
  base::Status read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  // kConflict when the file was written to since it was opened: what was read may be a mixture.
  base::Status check_unmodified() const;

 private:
  SafetensorsFile(File file, std::vector<TensorEntry> tensors, std::uint64_t data_begin, std::int64_t modified_ns)
      : file_(std::move(file)), tensors_(std::move(tensors)), data_begin_(data_begin), modified_ns_(modified_ns) {}
  File file_;
  std::vector<TensorEntry> tensors_;
  std::uint64_t data_begin_;
  std::int64_t modified_ns_;
};

// Writes a new file. The tensors' bytes may be given in any order and in pieces; each byte exactly once. A writer that
// is destroyed before finish() removes its file. Not thread safe.
class SafetensorsWriter {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  // Reserves the whole file: kResourceExhausted says needed and free bytes. kInvalidArgument: a shape that overflows, a
  // name twice. Data is laid out with wide elements first, so that every tensor is aligned to its elements.
  static base::Result<SafetensorsWriter> create(const std::string& path, std::vector<model::TensorSpec> tensors,
                                                const Metadata& metadata);
  SafetensorsWriter(SafetensorsWriter&& other) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();

  // Bytes of tensor `index` (in the order given to create), from `offset` into it.
  base::Status write(std::size_t index, std::uint64_t offset, std::span<const std::byte> bytes);
  // Ends the file; `durable` waits for the disk. The sum of all bytes must have been written.
  base::Status finish(bool durable);
  // The same, and gives the file its final name, in the same folder: it appears there whole.
  base::Status finish_as(const std::string& final_path, bool durable);
  // Size of the whole file.
  std::uint64_t file_bytes() const noexcept { return data_begin_ + data_bytes_; }

 private:
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  SafetensorsWriter(File file, std::vector<Range> ranges, std::uint64_t data_begin, std::uint64_t data_bytes);
  File file_;
  std::vector<Range> ranges_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  std::uint64_t written_ = 0;
  bool armed_ = true;  // to remove the file
};

// Bytes of a dense tensor of this spec; nullopt when they overflow.
std::optional<std::uint64_t> tensor_bytes(const model::TensorSpec& spec) noexcept;

}  // namespace weightbus::checkpoint
