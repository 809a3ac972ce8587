#include "weightbus/checkpoint/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_set>

#include "weightbus/base/assert.h"
#include "weightbus/base/checked_math.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and read as it is");
constexpr std::uint64_t kLengthBytes = 8;

}  // namespace

base::Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  WB_ASSIGN(auto file, File::open_for_reading(path));
  WB_ASSIGN(const auto size, file.size());
  WB_ASSIGN(const auto modified_ns, file.modified_ns());
  if (size < kLengthBytes) {
    return base::fail(ErrorCode::kCorrupted, "{} is {} bytes long, too short for a safetensors file", path, size);
  }
  std::uint64_t header_bytes = 0;
  WB_TRY(file.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kMaxHeaderBytes) {
    return base::fail(ErrorCode::kCorrupted, "{}: a header of {} bytes; at most {} are allowed", path, header_bytes,
                      kMaxHeaderBytes);
  }
  if (header_bytes > size - kLengthBytes) {
    return base::fail(ErrorCode::kCorrupted, "{}: a header of {} bytes in a file of {}: it was cut short", path,
                      header_bytes, size);
  }
  std::string header(header_bytes, '\0');
  WB_TRY(file.read_at(kLengthBytes, std::as_writable_bytes(std::span(header))));
  const auto data_begin = kLengthBytes + header_bytes;
  auto tensors = parse_header(header, size - data_begin);
  if (!tensors) return base::fail(tensors.error().with(path));
  return SafetensorsFile(std::move(file), std::move(*tensors), data_begin, modified_ns);
}

base::Status SafetensorsFile::read(const TensorEntry& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  WB_ASSERT(offset <= tensor.end - tensor.begin && out.size() <= tensor.end - tensor.begin - offset,
            "a read stays inside its tensor");
  auto status = file_.read_at(data_begin_ + tensor.begin + offset, out);
  if (!status) return base::fail(status.error().with("tensor " + tensor.spec.name));
  return {};
}

base::Status SafetensorsFile::check_unmodified() const {
  WB_ASSIGN(const auto modified_ns, file_.modified_ns());
  if (modified_ns != modified_ns_) {
    return base::fail(ErrorCode::kConflict, "{} was written to while it was read: publish again once it is whole",
                      path());
  }
  return {};
}

SafetensorsWriter::SafetensorsWriter(File file, std::vector<Range> ranges, std::uint64_t data_begin,
                                     std::uint64_t data_bytes)
    : file_(std::move(file)), ranges_(std::move(ranges)), data_begin_(data_begin), data_bytes_(data_bytes) {}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : file_(std::move(other.file_)),
      ranges_(std::move(other.ranges_)),
      data_begin_(other.data_begin_),
      data_bytes_(other.data_bytes_),
      written_(other.written_),
      armed_(std::exchange(other.armed_, false)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (armed_) ::unlink(file_.path().c_str());
}

base::Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                          std::vector<model::TensorSpec> tensors,
                                                          const Metadata& metadata) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return model::dtype_size(tensors[a].dtype) > model::dtype_size(tensors[b].dtype);
  });

  std::vector<Range> ranges(tensors.size());
  std::unordered_set<std::string_view> names{"__metadata__"};
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata)
    header["__metadata__"][key] = value;
  std::uint64_t end = 0;
  for (const auto index : order) {
    const auto& spec = tensors[index];
    if (spec.name.size() > kMaxTensorNameBytes || !names.insert(spec.name).second) {
      return base::fail(ErrorCode::kInvalidArgument, "{}: tensor name {} is taken or too long", path, spec.name);
    }
    const auto bytes = tensor_bytes(spec);
    const auto next = bytes ? base::checked_add(end, *bytes) : std::nullopt;
    if (!next) return base::fail(ErrorCode::kInvalidArgument, "{}: tensor {}: its size overflows", path, spec.name);
    ranges[index] = {end, *next};
    // push_back: names are known to differ, and a lookup in an ordered object is linear.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        spec.name, nlohmann::ordered_json{{"dtype", model::dtype_name(spec.dtype)},
                                          {"shape", std::vector<std::int64_t>(spec.shape.begin(), spec.shape.end())},
                                          {"data_offsets", {end, *next}}});
    end = *next;
  }
  // Names come from outside too: bytes that are not UTF-8 are an error here, not an exception.
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return base::fail(ErrorCode::kInvalidArgument, "{}: a tensor name or metadata is not valid UTF-8", path);
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return base::fail(ErrorCode::kInvalidArgument, "{}: the header would be {} bytes long; at most {} are allowed",
                      path, text.size(), kMaxHeaderBytes);
  }
  const std::uint64_t length = text.size();
  const auto data_begin = kLengthBytes + length;
  const auto total = base::checked_add(data_begin, end);
  if (!total) return base::fail(ErrorCode::kInvalidArgument, "{}: the size of the file overflows", path);
  WB_ASSIGN(auto file, File::create(path));
  SafetensorsWriter writer(std::move(file), std::move(ranges), data_begin, end);
  WB_TRY(writer.file_.reserve(*total));
  WB_TRY(writer.file_.write_at(0, std::as_bytes(std::span(&length, 1))));
  WB_TRY(writer.file_.write_at(kLengthBytes, std::as_bytes(std::span(text))));
  return writer;
}

base::Status SafetensorsWriter::write(std::size_t index, std::uint64_t offset, std::span<const std::byte> bytes) {
  WB_ASSERT(index < ranges_.size(), "a tensor that was given to create");
  const auto range = ranges_[index];
  WB_ASSERT(offset <= range.end - range.begin && bytes.size() <= range.end - range.begin - offset,
            "a write stays inside its tensor");
  WB_TRY(file_.write_at(data_begin_ + range.begin + offset, bytes));
  written_ += bytes.size();
  return {};
}

base::Status SafetensorsWriter::finish(bool durable) {
  WB_ASSERT(written_ == data_bytes_, "every byte of every tensor is written once before finish");
  if (durable) WB_TRY(file_.sync());
  armed_ = false;
  return {};
}

base::Status SafetensorsWriter::finish_as(const std::string& final_path, bool durable) {
  WB_TRY(finish(durable));
  armed_ = true;
  if (::rename(file_.path().c_str(), final_path.c_str()) != 0) {
    return base::fail(system_error(errno, "cannot write", final_path));
  }
  armed_ = false;
  return {};
}

}  // namespace weightbus::checkpoint
