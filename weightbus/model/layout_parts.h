// What one rank holds of one tensor under a rule; used by layout.cc only.
#pragma once

#include <utility>
#include <vector>

#include "weightbus/model/layout.h"

namespace weightbus::model::layout_detail {

template <class... Args>
tl::unexpected<base::Error> reject(fmt::format_string<Args...> format, Args&&... args) {
  return base::fail(base::ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

struct Context {
  std::span<const TensorSpec> tensors;
  std::uint32_t tp_rank;
  std::uint32_t tp_size;
  const LayoutNumbers& numbers;
};

// The constant rows behind a tensor, as a tensor of their own with a global shape and this rank's box.
struct PaddingPart {
  TensorSpec spec;
  Box box;
};

struct LocalPart {
  TensorSpec spec;  // dtype after the cast
  Box box;          // this rank's part of it
  Dims extent;      // of box and padding together
  Cast cast = Cast::kNone;
  std::optional<PaddingPart> padding;
  std::uint32_t pad_dim = 0;
  std::uint8_t fill = 0;
};

// kInvalidArgument when the tensor cannot be cut or cast as the part says.
base::Result<LocalPart> localize(const Context& context, const LayoutPart& part, const TensorSpec& spec);

// The shape of all parts one after the other along `dim`; equal dtype and equal other extents are required.
base::Result<Dims> fused_shape(const std::string& parameter, const std::vector<LocalPart>& parts, std::uint32_t dim);

// Bytes of a dense array; nullopt when they, or the strides of a zero-size one, overflow 63 bits.
std::optional<std::uint64_t> checked_bytes(const Dims& shape, DType dtype) noexcept;

}  // namespace weightbus::model::layout_detail
