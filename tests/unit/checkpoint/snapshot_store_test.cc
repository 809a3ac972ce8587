#include "weightbus/checkpoint/snapshot_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "temp_folder.h"
#include "weightbus/base/prng.h"
#include "weightbus/checkpoint/safetensors.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using model::DType;
using model::Slot;
using model::SlotKind;
using model::WeightVersion;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// An arena with every kind of slot: dense, strided, fused, doubled, scalar, empty, derived and constant.
model::SinkManifest make_manifest() {
  model::SinkManifest manifest;
  manifest.tensors = {{"dense", DType::kBF16, {8, 6}}, {"columns", DType::kF32, {4, 10}}, {"scalar", DType::kF32, {}},
                      {"empty", DType::kU8, {0, 3}},   {"derived", DType::kU8, {5}},      {"padding", DType::kU8, {3}}};
  manifest.slots = {{0, {{2, 0}, {4, 6}}, {0, 0, {6, 1}}, SlotKind::kRaw, model::Cast::kNone, 0, "a"},
                    {0, {{2, 0}, {4, 6}}, {0, 64, {6, 1}}, SlotKind::kRaw, model::Cast::kNone, 0, "again"},
                    {1, {{0, 5}, {4, 5}}, {1, 8, {7, 1}}, SlotKind::kRaw, model::Cast::kNone, 0, "b"},
                    {2, {}, {0, 128, {}}, SlotKind::kRaw, model::Cast::kNone, 0, "c"},
                    {3, {{0, 0}, {0, 3}}, {0, 0, {3, 1}}, SlotKind::kRaw, model::Cast::kNone, 0, "d"},
                    {4, {{0}, {5}}, {0, 140, {1}}, SlotKind::kDerived, model::Cast::kNone, 0, "e"},
                    {5, {{0}, {3}}, {0, 150, {1}}, SlotKind::kConstant, model::Cast::kNone, 9, "f"}};
  manifest.region_bytes = {256, 256};
  manifest.aliases = {{"tied", "dense"}};
  manifest.ignored = {"*.cache"};
  return manifest;
}

// Memory as an engine would hold it: bytes outside slots are noise that must survive.
struct Arena {
  explicit Arena(std::uint64_t seed) {
    base::Prng random(seed);
    for (auto& region : regions) {
      region.resize(256);
      for (auto& byte : region)
        byte = static_cast<std::byte>(random.next());
    }
    std::memcpy(regions[0].data() + 64, regions[0].data(), 48);
    std::memset(regions[0].data() + 150, 9, 3);
  }
  std::vector<const std::byte*> read() const { return {regions[0].data(), regions[1].data()}; }
  std::vector<std::byte*> write() { return {regions[0].data(), regions[1].data()}; }
  std::vector<std::byte> regions[2];
};

class SnapshotStoreTest : public testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    store_.reset();
    auto opened = SnapshotStore::open(folder_.path());
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
  }
  protocol::HeldVersion capture(std::uint64_t version, const Arena& arena) {
    const auto held = store_->capture(WeightVersion(version), manifest_, arena.read(), control_);
    EXPECT_TRUE(held) << held.error().message;
    return held ? *held : protocol::HeldVersion{WeightVersion(0), {}, 0};
  }
  std::vector<std::uint64_t> versions() const {
    std::vector<std::uint64_t> found;
    for (const auto& held : store_->list())
      found.push_back(held.version.value());
    return found;
  }
  // Every slot as captured, everything else as it was before.
  void expect_loads(std::uint64_t version, const Arena& captured) {
    Arena arena(77);
    const Arena before = arena;
    const auto status = store_->load(WeightVersion(version), arena.write(), control_);
    ASSERT_TRUE(status) << status.error().message;
    for (std::size_t r = 0; r < 2; ++r) {
      std::vector<bool> in_slot(256, false);
      for (const auto& slot : manifest_.slots) {
        if (slot.box.empty() || slot.at.region != r) continue;
        const auto element = model::dtype_size(manifest_.tensors[slot.tensor].dtype);
        const auto rows = slot.box.rank() == 2 ? slot.box.extent[0] : 1;
        const auto row = slot.box.rank() == 0 ? 1 : slot.box.extent[slot.box.rank() - 1];
        const auto stride = slot.box.rank() == 2 ? slot.at.strides[0] : 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < row * element; ++j)
            in_slot[slot.at.offset + i * stride * element + j] = true;
        }
      }
      for (std::size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(arena.regions[r][i], (in_slot[i] ? captured : before).regions[r][i])
            << "region " << r << " byte " << i;
      }
    }
  }
  std::string load_error(std::uint64_t version, ErrorCode expected) {
    Arena arena(1);
    const auto status = store_->load(WeightVersion(version), arena.write(), control_);
    if (status) return "no error";
    EXPECT_EQ(status.error().code, expected);
    return status.error().message;
  }

  TempFolder folder_;
  std::unique_ptr<SnapshotStore> store_;
  model::SinkManifest manifest_ = make_manifest();
  device::Control control_;
};

TEST_F(SnapshotStoreTest, LoadsWhatItCaptured) {
  const Arena arena(1);
  const auto held = capture(3, arena);
  EXPECT_EQ(held.version, WeightVersion(3));
  EXPECT_EQ(held.layout, model::layout_hash(manifest_));
  EXPECT_EQ(held.bytes, std::filesystem::file_size(folder_ / "v3.safetensors"));
  expect_loads(3, arena);
  const auto manifest = store_->manifest(WeightVersion(3));
  ASSERT_TRUE(manifest);
  EXPECT_EQ(**manifest, manifest_);
}

TEST_F(SnapshotStoreTest, OutlivesTheProcess) {
  const Arena first(1), second(2);
  capture(3, first);
  const auto held = capture(5, second);
  reopen();
  EXPECT_THAT(store_->list(), ElementsAre(testing::_, held));
  expect_loads(3, first);
  expect_loads(5, second);
}

TEST_F(SnapshotStoreTest, StoresUnchangedTensorsOnce) {
  Arena arena(1);
  capture(1, arena);
  const auto same = capture(2, arena);
  EXPECT_EQ(same.bytes, 0u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "v2.safetensors"));
  arena.regions[0][128] ^= std::byte{1};  // the scalar
  capture(3, arena);
  const auto file = SafetensorsFile::open(folder_ / "v3.safetensors");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->tensors().size(), 1u);
  EXPECT_EQ(file->tensors()[0].spec.name, "scalar");
  expect_loads(3, arena);
}

TEST_F(SnapshotStoreTest, SlotsOfTheSameBoxAreStoredOnce) {
  Arena arena(1);
  capture(1, arena);
  const auto file = SafetensorsFile::open(folder_ / "v1.safetensors");
  ASSERT_TRUE(file);
  std::vector<std::string> names;
  for (const auto& entry : file->tensors())
    names.push_back(entry.spec.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("dense[2:6, 0:6]", "columns[0:4, 5:10]", "scalar", "derived"));
  arena.regions[0][64] ^= std::byte{1};
  const auto torn = store_->capture(WeightVersion(2), manifest_, arena.read(), control_);
  ASSERT_FALSE(torn);
  EXPECT_EQ(torn.error().code, ErrorCode::kCorrupted);
  EXPECT_THAT(torn.error().message, HasSubstr("dense"));
}

TEST_F(SnapshotStoreTest, CapturingAgainChangesNothing) {
  const Arena arena(1), other(2);
  const auto first = capture(1, arena);
  EXPECT_EQ(capture(1, other), first);
  expect_loads(1, arena);
  auto manifest = manifest_;
  manifest.ignored.clear();
  const auto conflict = store_->capture(WeightVersion(1), manifest, arena.read(), control_);
  ASSERT_FALSE(conflict);
  EXPECT_EQ(conflict.error().code, ErrorCode::kConflict);
}

TEST_F(SnapshotStoreTest, RetiringKeepsWhatOthersReferTo) {
  Arena arena(1);
  capture(1, arena);
  arena.regions[0][128] ^= std::byte{1};
  capture(2, arena);
  ASSERT_TRUE(store_->retire(std::vector{WeightVersion(2)}));
  EXPECT_THAT(versions(), ElementsAre(2));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "v1.safetensors"));
  expect_loads(2, arena);
  EXPECT_THAT(load_error(1, ErrorCode::kNotFound), HasSubstr("no snapshot of version 1"));
  reopen();
  expect_loads(2, arena);
  // A version that comes back does not overwrite the file that another one still needs.
  const Arena back(9);
  capture(1, back);
  expect_loads(1, back);
  expect_loads(2, arena);
  ASSERT_TRUE(store_->retire({}));
  EXPECT_THAT(folder_.names(), ElementsAre("lock"));
}

TEST_F(SnapshotStoreTest, RetiringWhatIsNotThereIsFine) {
  capture(1, Arena(1));
  EXPECT_TRUE(store_->retire(std::vector{WeightVersion(1), WeightVersion(8)}));
  EXPECT_THAT(versions(), ElementsAre(1));
}

TEST_F(SnapshotStoreTest, ACrashLeavesNoHalfVersion) {
  const Arena arena(1);
  capture(1, arena);
  // What a crash between any two steps of a capture can leave.
  write_file(folder_ / "v2.safetensors.tmp", "half");
  write_file(folder_ / "v3.safetensors", "data without its index");
  write_file(folder_ / "v4.json.tmp", "{");
  write_file(folder_ / "notes.txt", "of somebody else");
  reopen();
  EXPECT_THAT(versions(), ElementsAre(1));
  EXPECT_TRUE(store_->damaged().empty());
  EXPECT_THAT(folder_.names(), ElementsAre("lock", "notes.txt", "v1.json", "v1.safetensors"));
  expect_loads(1, arena);
}

TEST_F(SnapshotStoreTest, EveryDamagedByteIsFoundAndNamed) {
  const Arena arena(1);
  capture(1, arena);
  const auto path = folder_ / "v1.safetensors";
  const auto good = read_file(path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file);
  const auto data_begin = good.size() - file->tensors().back().end;
  for (const auto& entry : file->tensors()) {
    for (auto at = entry.begin; at < entry.end; ++at) {
      auto bad = good;
      bad[data_begin + at] ^= 4;
      write_file(path, bad);
      EXPECT_THAT(load_error(1, ErrorCode::kCorrupted),
                  AllOf(HasSubstr(entry.spec.name), HasSubstr("v1.safetensors"), HasSubstr("version 1")));
    }
  }
  write_file(path, good.substr(0, good.size() - 1));
  EXPECT_THAT(load_error(1, ErrorCode::kCorrupted), HasSubstr("v1.safetensors"));
  std::filesystem::remove(path);
  EXPECT_THAT(load_error(1, ErrorCode::kNotFound), HasSubstr("v1.safetensors"));
}

TEST_F(SnapshotStoreTest, ADamagedIndexIsSetAsideAndCostsNoOtherVersion) {
  Arena arena(1);
  capture(1, arena);
  arena.regions[0][128] ^= std::byte{1};
  capture(2, arena);
  capture(3, Arena(3));
  auto index = read_file(folder_ / "v1.json");
  index.replace(index.find("dense"), 5, "dance");
  write_file(folder_ / "v1.json", index);
  reopen();
  EXPECT_THAT(versions(), ElementsAre(2, 3));
  ASSERT_EQ(store_->damaged().size(), 1u);
  EXPECT_THAT(store_->damaged()[0].message, AllOf(HasSubstr("v1.json"), HasSubstr("layout hash")));
  expect_loads(2, arena);  // needs v1.safetensors
  ASSERT_TRUE(store_->retire(std::vector{WeightVersion(3)}));
  EXPECT_TRUE(store_->damaged().empty());
  EXPECT_THAT(folder_.names(), ElementsAre("lock", "v3.json", "v3.safetensors"));
}

TEST_F(SnapshotStoreTest, AnIndexWithoutItsDataIsDamaged) {
  capture(1, Arena(1));
  std::filesystem::remove(folder_ / "v1.safetensors");
  std::filesystem::copy_file(folder_ / "v1.json", folder_ / "v7.json");
  reopen();
  EXPECT_TRUE(versions().empty());
  ASSERT_EQ(store_->damaged().size(), 2u);
  std::string both = store_->damaged()[0].message + store_->damaged()[1].message;
  EXPECT_THAT(both, AllOf(HasSubstr("missing"), HasSubstr("says that it is version 1")));
}

TEST_F(SnapshotStoreTest, ANewerIndexIsRefusedNotGuessedAt) {
  capture(1, Arena(1));
  auto index = read_file(folder_ / "v1.json");
  const std::string key = "\"weightbus_snapshot\": 1";
  index.replace(index.find(key), key.size(), "\"weightbus_snapshot\": 2");
  write_file(folder_ / "v1.json", index);
  reopen();
  ASSERT_EQ(store_->damaged().size(), 1u);
  EXPECT_EQ(store_->damaged()[0].code, ErrorCode::kUnsupported);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "v1.safetensors")) << "nothing of it is removed";
}

TEST_F(SnapshotStoreTest, OneProcessAtATime) {
  const auto second = SnapshotStore::open(folder_.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kConflict);
  EXPECT_THAT(second.error().message, HasSubstr(folder_.path()));
}

TEST_F(SnapshotStoreTest, CancellingLeavesNothing) {
  const Arena arena(1);
  capture(1, arena);
  control_.cancelled = true;
  const auto held = store_->capture(WeightVersion(2), manifest_, Arena(2).read(), control_);
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().code, ErrorCode::kAborted);
  EXPECT_THAT(folder_.names(), ElementsAre("lock", "v1.json", "v1.safetensors"));
  EXPECT_THAT(load_error(1, ErrorCode::kAborted), HasSubstr("cancelled"));
}

TEST_F(SnapshotStoreTest, RefusesAWrongManifestOrWrongRegions) {
  const Arena arena(1);
  auto manifest = manifest_;
  manifest.slots[0].at.offset = 250;
  EXPECT_FALSE(store_->capture(WeightVersion(1), manifest, arena.read(), control_));
  const auto one = std::vector<const std::byte*>{arena.regions[0].data()};
  const auto held = store_->capture(WeightVersion(1), manifest_, one, control_);
  ASSERT_FALSE(held);
  EXPECT_THAT(held.error().message, HasSubstr("1 regions"));
  EXPECT_TRUE(versions().empty());
}

// A limit on file sizes fails a write just as a full disk does, at the byte that we choose.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(SnapshotStoreTest, AFullDiskLeavesNothingOfTheVersion) {
  const Arena arena(1);
  capture(1, arena);
  const auto data_bytes = std::filesystem::file_size(folder_ / "v1.safetensors");
  const auto index_bytes = std::filesystem::file_size(folder_ / "v1.json");
  ASSERT_LT(data_bytes, index_bytes);
  // Fails in the data file's header, in its data, and in the index.
  for (const rlim_t limit : {rlim_t{4}, static_cast<rlim_t>(data_bytes - 1), static_cast<rlim_t>(index_bytes - 1)}) {
    base::Result<protocol::HeldVersion> held = base::fail(ErrorCode::kInternal, "not tried");
    {
      const FileSizeLimit limited(limit);
      held = store_->capture(WeightVersion(2), manifest_, Arena(2).read(), control_);
    }
    ASSERT_FALSE(held) << limit;
    EXPECT_EQ(held.error().code, ErrorCode::kResourceExhausted) << held.error().message;
    EXPECT_THAT(held.error().message, AllOf(HasSubstr("version 2"), HasSubstr("bytes are free")));
    EXPECT_THAT(folder_.names(), ElementsAre("lock", "v1.json", "v1.safetensors"));
    EXPECT_THAT(versions(), ElementsAre(1));
  }
  capture(2, Arena(2));
  expect_loads(1, arena);
}

TEST(File, AFullDeviceIsAnErrorThatSaysSo) {
  // /dev/full answers each write as a full disk does.
  const auto error = system_error(ENOSPC, "cannot write", "/dev/full");
  EXPECT_EQ(error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(error.message, HasSubstr("bytes are free"));
  EXPECT_EQ(system_error(EDQUOT, "cannot write", "x").code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(system_error(EROFS, "cannot write", "x").code, ErrorCode::kPermissionDenied);
}

TEST(SnapshotIndexTest, RefusesWhatItDidNotWrite) {
  SnapshotIndex index{WeightVersion(4), make_manifest(), {}};
  for (const auto& slot : index.manifest.slots) {
    index.slots.emplace_back();
    if (is_stored(slot)) index.slots.back() = StoredSlot{{WeightVersion(3), 1}, "n", {~0ULL, 1}};
  }
  const auto good = to_json(index);
  const auto parsed = parse_snapshot_index(good);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, index);
  for (std::size_t length = 0; length + 1 < good.size(); length += 7) {
    EXPECT_FALSE(parse_snapshot_index(std::string_view(good).substr(0, length)));
  }
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"kind\": 2", "\"kind\": 9"},
                                                        {"\"BF16\"", "\"BF61\""},
                                                        {"\"fill\": 9", "\"fill\": 256"},
                                                        {"v3-1.safetensors", "../v3.safetensors"},
                                                        {"\"region\": 1", "\"region\": 2"},
                                                        {"\"at\": 64", "\"at\": 20"},
                                                        {"\"cast\": \"none\"", "\"cast\": 3"},
                                                        {"\"tied\"", "7"},
                                                        {"\"stored\"", "\"stowed\""},
                                                        {"\"version\": 4", "\"version\": -4"}}) {
    auto bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(parse_snapshot_index(bad)) << from << " -> " << to;
  }
}

TEST(DataFileNameTest, OnlyPlainNames) {
  const DataFileName first{WeightVersion(12), 0}, second{WeightVersion(12), 3};
  EXPECT_EQ(first.to_string(), "v12.safetensors");
  EXPECT_EQ(DataFileName::parse("v12.safetensors"), first);
  EXPECT_EQ(DataFileName::parse("v12-3.safetensors"), second);
  for (const char* name :
       {"", "v.safetensors", "v012.safetensors", "v1-0.safetensors", "v1-.safetensors", "v-1.safetensors", "v1.json",
        "../v1.safetensors", "v1 .safetensors", ".safetensors", "v99999999999999999999.safetensors"}) {
    EXPECT_FALSE(DataFileName::parse(name)) << name;
  }
}

}  // namespace
}  // namespace weightbus::checkpoint
