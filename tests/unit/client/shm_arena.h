// An arena of two halves in named shared memory, as an engine agent makes it: a few slots over two regions, each filled
// with a pattern that tells its version.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "weightbus/base/prng.h"
#include "weightbus/wire/attach.h"

namespace weightbus::testing {

inline protocol::Tag tag_of(std::uint64_t version) {
  return {model::WeightVersion(version), model::Hash128{1, 2}, model::UpdateId(100 + version)};
}

class ShmArena {
 public:
  explicit ShmArena(std::size_t slot_bytes = 10'000, std::size_t slots = 6) : slot_bytes_(slot_bytes) {
    static std::atomic<int> count{0};
    const std::string prefix = "weightbus.test." + std::to_string(::getpid()) + "." + std::to_string(count++);
    const std::size_t region_bytes = slot_bytes * (slots / 2);
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t region = 0; region < 2; ++region) {
        const std::string name = prefix + "." + std::to_string(half) + std::to_string(region);
        memory_[half].push_back(make(name, region_bytes));
        info_.halves[half].push_back(
            {model::RegionKind::kHostShm, "", name, region_bytes, static_cast<std::uint64_t>(count)});
      }
    }
    for (std::size_t i = 0; i < slots; ++i) {
      const auto bytes = static_cast<std::int64_t>(slot_bytes);
      wire::ArenaSlot slot;
      slot.tensor = "layers." + std::to_string(i) + ".weight";
      slot.parameter = slot.tensor;
      slot.dtype = model::DType::kU8;
      slot.shape = {2, bytes};
      slot.box = {{1, 0}, {1, bytes}};
      slot.at = {static_cast<std::uint32_t>(i % 2), (i / 2) * slot_bytes, {bytes, 1}};
      info_.slots.push_back(slot);
    }
  }
  ~ShmArena() {
    for (std::size_t half = 0; half < 2; ++half) {
      for (std::size_t i = 0; i < memory_[half].size(); ++i) {
        ::munmap(memory_[half][i], info_.halves[half][i].bytes);
        ::shm_unlink(("/" + info_.halves[half][i].handle).c_str());
      }
    }
  }
  ShmArena(const ShmArena&) = delete;
  ShmArena& operator=(const ShmArena&) = delete;

  // The arena with half `live` holding `version` (0: nothing).
  wire::ArenaInfo info(std::uint32_t live, std::uint64_t version) const {
    wire::ArenaInfo info = info_;
    info.live = live;
    if (version != 0) info.tag = tag_of(version);
    return info;
  }
  void fill(std::uint32_t half, std::uint64_t version) {
    for (std::size_t region = 0; region < memory_[half].size(); ++region)
      for (std::size_t at = 0; at < info_.halves[half][region].bytes; ++at)
        memory_[half][region][at] = pattern(version, region, at);
  }
  static std::byte pattern(std::uint64_t version, std::size_t region, std::size_t at) {
    return static_cast<std::byte>(base::splitmix64(version * 31 + region * 7 + at / 64) & 0xff);
  }
  std::byte expected(std::uint64_t version, std::size_t slot, std::size_t at) const {
    return pattern(version, slot % 2, (slot / 2) * slot_bytes_ + at);
  }

 private:
  static std::byte* make(const std::string& name, std::size_t bytes) {
    const int fd = ::shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0)
      throw std::runtime_error("no shared memory");
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    if (data == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
    return static_cast<std::byte*>(data);
  }

  std::size_t slot_bytes_;
  std::vector<std::byte*> memory_[2];
  wire::ArenaInfo info_;
};

// A new directory under /tmp, removed at the end with the files in it.
class TempDir {
 public:
  TempDir() {
    char path[] = "/tmp/weightbus-test-XXXXXX";
    if (::mkdtemp(path) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = path;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weightbus::testing
