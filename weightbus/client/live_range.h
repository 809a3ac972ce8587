// The live half of an arena at addresses that never change: one reserved range of virtual memory, over which either
// half is mapped. Not thread safe; nobody may read the range while map() runs.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/client/unique_fd.h"
#include "weightbus/wire/attach.h"

namespace weightbus::client {

// mmap's signature; tests give one that fails.
using MapFunction = void* (*)(void*, std::size_t, int, int, int, off_t);

// The exit status of a process that could not map the second part of a half after the first.
inline constexpr int kExitHalfMapped = 70;

class LiveRange {
 public:
  explicit LiveRange(MapFunction map_function = nullptr);  // nullptr: mmap
  ~LiveRange();
  LiveRange(const LiveRange&) = delete;
  LiveRange& operator=(const LiveRange&) = delete;

  // Opens every region of both halves, so that no later exchange can fail for want of a name or a descriptor. Keeps the
  // range and its addresses where the sizes are those of the arena before; otherwise reserves a new one. Maps nothing.
  // kUnsupported: a kind of region that this build cannot map; kNotFound, kCorrupted (size): the region is not what the
  // agent says. After an error everything is as before.
  base::Status open(const wire::ArenaInfo& info);

  // Maps half 0 or 1 over the range. An error means that nothing changed: checked before the first unmapping. A failure
  // after that ends the process with kExitHalfMapped and a message, since half of either version is no version.
  base::Status map(std::uint32_t half);

  // Which half the addresses show; none before the first map() and after open() until the next map().
  std::optional<std::uint32_t> mapped() const noexcept { return mapped_; }
  std::byte* region(std::size_t index) const noexcept { return base_ + offsets_[index]; }
  std::size_t regions() const noexcept { return offsets_.size(); }

 private:
  struct Opened {
    UniqueFd fd;
    std::uint64_t bytes = 0;
    std::string name;
  };
  using Half = std::vector<Opened>;

  base::Status reserve(const std::vector<std::uint64_t>& sizes);
  void unreserve() noexcept;

  MapFunction map_;
  std::byte* base_ = nullptr;
  std::size_t reserved_ = 0;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::size_t> offsets_;
  std::array<Half, 2> halves_;
  std::optional<std::uint32_t> mapped_;
  bool shown_ = false;  // something of an arena is mapped at the addresses
};

}  // namespace weightbus::client
