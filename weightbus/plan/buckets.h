// Cuts the fragments of one (source, sink) pair into buckets.
#pragma once

#include <cstdint>
#include <functional>

#include "weightbus/model/box.h"

namespace weightbus::plan {

inline constexpr std::uint64_t kBucketAlignment = 16;
inline constexpr std::uint64_t kMinBucketBytes = 16;

// Fills buckets of at most `bucket_bytes` in order. A piece that does not fit into what is left of a bucket begins the
// next one; a piece larger than a bucket is split along its outermost useful dimension, into parts whose sizes are
// multiples of 16 bytes where the rows permit, so that what follows them stays aligned.
class BucketCutter {
 public:
  // begin_bucket() is called before the first part of each bucket.
  using BeginBucket = std::function<void()>;
  // part(box, bytes): one part, in order.
  using Part = std::function<void(const model::Box&, std::uint64_t)>;

  BucketCutter(std::uint64_t bucket_bytes, BeginBucket begin_bucket, Part part);
  // The box must not be empty.
  void add(const model::Box& box, std::uint32_t element_bytes);

 private:
  void put(const model::Box& box, std::uint64_t bytes);
  void split(const model::Box& box, std::uint32_t element_bytes);

  std::uint64_t bucket_bytes_;
  BeginBucket begin_bucket_;
  Part part_;
  std::uint64_t left_ = 0;
};

}  // namespace weightbus::plan
