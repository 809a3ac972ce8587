#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "weightbus/device/host/factory.h"

namespace weightbus::device {
namespace {

using base::ErrorCode;
using ::testing::HasSubstr;

std::string unique_name(const std::string& what) { return "weightbus.test." + std::to_string(::getpid()) + "." + what; }
bool exists(const std::string& name) { return std::filesystem::exists("/dev/shm/" + name); }

class HostDeviceTest : public ::testing::Test {
 protected:
  void TearDown() override { device_->remove(name_); }
  const std::shared_ptr<Device> device_ = make_host_device();
  const std::string name_ = unique_name(::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HostDeviceTest, WhatOneMappingWritesAnotherReads) {
  auto made = device_->allocate(name_, 100000);
  ASSERT_TRUE(made) << made.error().message;
  (*made)->data()[99999] = std::byte{42};
  auto reader = device_->import_region((*made)->region(), false);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ((*reader)->bytes(), 100000U);
  EXPECT_EQ((*reader)->data()[99999], std::byte{42});
  auto writer = device_->import_region((*made)->region(), true);
  ASSERT_TRUE(writer);
  (*writer)->data()[0] = std::byte{7};
  EXPECT_EQ((*made)->data()[0], std::byte{7});
}

TEST_F(HostDeviceTest, TheObjectIsItsOwnersOnlyAndReserved) {
  auto made = device_->allocate(name_, 1 << 20);
  ASSERT_TRUE(made);
  struct stat info {};
  ASSERT_EQ(::stat(("/dev/shm/" + name_).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_GE(info.st_blocks * 512, 1 << 20);
}

TEST_F(HostDeviceTest, RemovingKeepsMappingsAndMayBeRepeated) {
  auto made = device_->allocate(name_, 4096);
  ASSERT_TRUE(made);
  device_->remove(name_);
  device_->remove(name_);
  EXPECT_FALSE(exists(name_));
  (*made)->data()[0] = std::byte{1};
  const auto gone = device_->import_region((*made)->region(), false);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
}

TEST_F(HostDeviceTest, ATakenNameIsAConflict) {
  auto made = device_->allocate(name_, 4096);
  ASSERT_TRUE(made);
  const auto again = device_->allocate(name_, 4096);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(exists(name_));
}

TEST_F(HostDeviceTest, TooLargeIsRefusedWithNeededAndFreeBytesAndLeavesNothing) {
  const auto free = device_->free_bytes();
  ASSERT_TRUE(free);
  for (const std::uint64_t bytes : {*free * 2 + (std::uint64_t{1} << 40), ~std::uint64_t{0}}) {
    const auto made = device_->allocate(name_, bytes);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(made.error().message, HasSubstr(std::to_string(bytes)));
    EXPECT_THAT(made.error().message, ::testing::ContainsRegex("[0-9]+ are free"));
    EXPECT_FALSE(exists(name_));
  }
}

// The check of free bytes is a look ahead; another process may take them before they are reserved. A limit on the size
// of files makes the reservation fail in the same place.
TEST_F(HostDeviceTest, AReservationThatFailsLeavesNothing) {
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 20, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto made = device_->allocate(name_, 2 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(exists(name_));
}

TEST_F(HostDeviceTest, AnObjectOfAnotherSizeIsAnErrorNotASignal) {
  auto made = device_->allocate(name_, 8192);
  ASSERT_TRUE(made);
  ASSERT_EQ(::truncate(("/dev/shm/" + name_).c_str(), 4096), 0);
  const auto shrunk = device_->import_region((*made)->region(), false);
  ASSERT_FALSE(shrunk);
  EXPECT_EQ(shrunk.error().code, ErrorCode::kCorrupted);
  EXPECT_THAT(shrunk.error().message, HasSubstr("4096 bytes, not the 8192"));
}

TEST_F(HostDeviceTest, ANewRegionUnderAnOldNameIsNotTheOldOne) {
  auto first = device_->allocate(name_, 4096);
  ASSERT_TRUE(first);
  device_->remove(name_);
  auto second = device_->allocate(name_, 4096);
  ASSERT_TRUE(second);
  EXPECT_NE((*first)->region().allocation_id, (*second)->region().allocation_id);
  const auto stale = device_->import_region((*first)->region(), false);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(device_->import_region((*second)->region(), false));
}

TEST_F(HostDeviceTest, NamesFromOutsideCannotReachOtherFiles) {
  for (const std::string name : {"", "weightbus.", "other.name", "weightbus./../../etc/passwd", "../weightbus.x"}) {
    const auto made = device_->allocate(name, 16);
    ASSERT_FALSE(made) << name;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument) << name;
    const model::Region region{model::RegionKind::kHostShm, "", name, 16, 0};
    EXPECT_EQ(device_->import_region(region, false).error().code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_FALSE(device_->allocate("weightbus." + std::string(300, 'x'), 16));
  const model::Region gpu{model::RegionKind::kCudaVmm, "GPU-1", "", 16, 0};
  EXPECT_EQ(device_->import_region(gpu, false).error().code, ErrorCode::kUnsupported);
}

TEST_F(HostDeviceTest, AnEmptyRegionIsOrdinary) {
  auto made = device_->allocate(name_, 0);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)->bytes(), 0U);
  EXPECT_TRUE(device_->import_region((*made)->region(), true));
}

TEST_F(HostDeviceTest, HugePagesAreAskedForAndNeverRequired) {
  const auto huge = make_host_device({.threads = 1, .populate = true, .huge_pages = true});
  auto made = huge->allocate(name_, 5 << 20);
  ASSERT_TRUE(made) << made.error().message;
  std::memset((*made)->data(), 1, 5 << 20);
  auto reader = huge->import_region((*made)->region(), false);
  ASSERT_TRUE(reader);
  EXPECT_EQ((*reader)->data()[(5 << 20) - 1], std::byte{1});
}

}  // namespace
}  // namespace weightbus::device
