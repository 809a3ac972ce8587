#include "weightbus/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "temp_folder.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;
using model::DType;
using testing::HasSubstr;

std::string error_of(std::string_view header, std::uint64_t data_bytes) {
  const auto result = parse_header(header, data_bytes);
  return result ? "no error" : result.error().message;
}

TEST(ParseHeader, ReadsTensorsInTheOrderOfTheirData) {
  const auto entries = parse_header(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
          "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "empty":{"dtype":"I64","shape":[0,5],"data_offsets":[4,4]}}   )",
      16);
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0], (TensorEntry{{"a", DType::kF32, {}}, 0, 4}));
  EXPECT_EQ((*entries)[1], (TensorEntry{{"empty", DType::kI64, {0, 5}}, 4, 4}));
  EXPECT_EQ((*entries)[2], (TensorEntry{{"b", DType::kBF16, {2, 3}}, 4, 16}));
}

TEST(ParseHeader, AcceptsNoTensorAtAll) {
  EXPECT_TRUE(parse_header("{}", 0));
  EXPECT_THAT(error_of("{}", 3), HasSubstr("belong to no tensor"));
}

TEST(ParseHeader, RefusesWhatIsNotTheFormat) {
  EXPECT_THAT(error_of("", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{} {}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[1]", 0), HasSubstr("list"));
  EXPECT_THAT(error_of("7", 0), HasSubstr("number"));
  EXPECT_THAT(error_of(R"({"w":3})", 0), HasSubstr("tensor w"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), HasSubstr("two numbers"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4), HasSubstr("two numbers"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("-1"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), HasSubstr("1.5"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4), HasSubstr("a list"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
              HasSubstr("unknown field x"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":{"b":"c"}}})", 0), HasSubstr("an object"));
  EXPECT_THAT(error_of(R"({"w":null})", 0), HasSubstr("null"));
}

TEST(ParseHeader, RefusesDeepNestingWithoutBuildingIt) {
  EXPECT_THAT(error_of(std::string(1'000'000, '['), 0), HasSubstr("list"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i)
    objects += R"({"dtype":)";
  EXPECT_THAT(error_of(objects, 0), HasSubstr("an object"));
}

TEST(ParseHeader, RefusesTextThatIsNotUtf8) {
  const auto message = error_of("{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
  EXPECT_THAT(message, HasSubstr("UTF-8"));
  for (const char c : message)
    EXPECT_LT(static_cast<unsigned char>(c), 0x80) << "the message repeats the bytes";
}

TEST(ParseHeader, RefusesUnknownDTypes) {
  const auto result = parse_header(R"({"w":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(result.error().message, testing::AllOf(HasSubstr("tensor w"), HasSubstr("F4")));
}

TEST(ParseHeader, RefusesNamesThatAreListedTwice) {
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                          "w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                       2),
              HasSubstr("w is listed twice"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("dtype is listed twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("listed twice"));
}

TEST(ParseHeader, RefusesOffsetsThatDoNotCoverTheDataOnce) {
  const auto two = [](int a, int b, int c, int d) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},
                            "b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
                       b - a, a, b, d - c, c, d);
  };
  EXPECT_TRUE(parse_header(two(0, 4, 4, 8), 8));
  EXPECT_THAT(error_of(two(0, 4, 3, 8), 8), testing::AllOf(HasSubstr("tensor b"), HasSubstr("overlapping")));
  EXPECT_THAT(error_of(two(0, 4, 5, 8), 8), testing::AllOf(HasSubstr("tensor b"), HasSubstr("gap")));
  EXPECT_THAT(error_of(two(1, 4, 4, 8), 8), testing::AllOf(HasSubstr("tensor a"), HasSubstr("gap")));
  EXPECT_THAT(error_of(two(0, 4, 4, 9), 8), testing::AllOf(HasSubstr("tensor b"), HasSubstr("not inside")));
  EXPECT_THAT(error_of(two(0, 4, 4, 8), 9), HasSubstr("the last 1 bytes"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1), HasSubstr("not inside"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1),
              HasSubstr("not inside"));
}

TEST(ParseHeader, RefusesSizesThatDisagreeOrOverflow) {
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              testing::AllOf(HasSubstr("tensor w"), HasSubstr("need 12")));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[0,4611686018427387904,8],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(R"({"w":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1),
              HasSubstr("more than 8 dimensions"));
  EXPECT_TRUE(parse_header(R"({"w":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1));
}

TEST(ParseHeader, RefusesNamesOfUnreasonableLength) {
  EXPECT_THAT(error_of("{\"" + std::string(5000, 'x') + "\":{}}", 0), HasSubstr("5000 bytes long"));
}

class SafetensorsFileTest : public testing::Test {
 protected:
  std::string error_of_file(std::string_view content, ErrorCode expected = ErrorCode::kCorrupted) {
    const auto path = folder_ / "x.safetensors";
    write_file(path, content);
    const auto file = SafetensorsFile::open(path);
    if (file) return "no error";
    EXPECT_EQ(file.error().code, expected);
    EXPECT_THAT(file.error().message, HasSubstr(path));
    return file.error().message;
  }
  TempFolder folder_;
};

TEST_F(SafetensorsFileTest, RefusesFilesThatAreMissingOrNotFiles) {
  const auto missing = SafetensorsFile::open(folder_ / "none.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("none.safetensors"));
  const auto directory = SafetensorsFile::open(folder_.path());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(SafetensorsFile::open("/dev/zero"));
}

TEST_F(SafetensorsFileTest, RefusesEmptyAndTruncatedFiles) {
  EXPECT_THAT(error_of_file(""), HasSubstr("0 bytes long"));
  EXPECT_THAT(error_of_file("1234567"), HasSubstr("too short"));
  const auto whole = raw_safetensors(R"({"w":{"dtype":"U8","shape":[10],"data_offsets":[0,10]}})", 10);
  EXPECT_THAT(error_of_file(whole), "no error");
  // Whatever byte it ends at, it is refused.
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(error_of_file(whole.substr(0, length)), testing::Ne("no error")) << length;
  }
  EXPECT_THAT(error_of_file(whole + "x"), HasSubstr("belong to no tensor"));
}

TEST_F(SafetensorsFileTest, RefusesHeadersLongerThanTheFileOrTheLimit) {
  EXPECT_THAT(error_of_file(std::string("\x00\x10\x00\x00\x00\x00\x00\x00{}", 10)), HasSubstr("cut short"));
  EXPECT_THAT(error_of_file(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), HasSubstr("at most 100000000"));
  EXPECT_THAT(error_of_file(std::string("\x01\xe1\xf5\x05\x00\x00\x00\x00{}", 10)), HasSubstr("at most 100000000"));
  EXPECT_THAT(error_of_file(raw_safetensors("not json", 0)), HasSubstr("not valid JSON"));
}

TEST_F(SafetensorsFileTest, ReportsAFileThatShrinksWhileItIsRead) {
  const auto path = folder_ / "x.safetensors";
  write_file(path, raw_safetensors(R"({"w":{"dtype":"U8","shape":[10000],"data_offsets":[0,10000]}})", 10000));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file);
  std::vector<std::byte> bytes(10000);
  ASSERT_TRUE(file->read(file->tensors()[0], 0, bytes));
  std::filesystem::resize_file(path, 5000);
  const auto status = file->read(file->tensors()[0], 0, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kCorrupted);
  EXPECT_THAT(status.error().message, testing::AllOf(HasSubstr("tensor w"), HasSubstr(path), HasSubstr("cut short")));
}

TEST_F(SafetensorsFileTest, NoticesThatAFileWasWrittenTo) {
  const auto path = folder_ / "x.safetensors";
  write_file(path, raw_safetensors(R"({"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->check_unmodified());
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  const auto status = file->check_unmodified();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kConflict);
}

TEST_F(SafetensorsFileTest, WritesWhatItReads) {
  const auto path = folder_ / "out.safetensors";
  const std::vector<model::TensorSpec> specs{{"bytes", DType::kU8, {3}},
                                             {"wide", DType::kF64, {2, 1}},
                                             {"scalar", DType::kF32, {}},
                                             {"empty", DType::kF16, {0, 7}}};
  const std::vector<std::string> contents{"abc", "0123456789abcdef", "wxyz", ""};
  {
    auto writer = SafetensorsWriter::create(path, specs, {{"format", "pt"}});
    ASSERT_TRUE(writer) << writer.error().message;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const auto bytes = std::as_bytes(std::span(contents[i]));
      const auto half = bytes.size() / 2;
      ASSERT_TRUE(writer->write(i, half, bytes.subspan(half)));
      ASSERT_TRUE(writer->write(i, 0, bytes.first(half)));
    }
    ASSERT_TRUE(writer->finish(true));
    EXPECT_EQ(writer->file_bytes(), std::filesystem::file_size(path));
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto at = std::find_if(file->tensors().begin(), file->tensors().end(),
                                 [&](const TensorEntry& entry) { return entry.spec == specs[i]; });
    ASSERT_NE(at, file->tensors().end()) << specs[i].name;
    EXPECT_EQ(at->begin % model::dtype_size(at->spec.dtype), 0u) << "aligned to its elements";
    std::string content(at->end - at->begin, '\0');
    ASSERT_TRUE(file->read(*at, 0, std::as_writable_bytes(std::span(content))));
    EXPECT_EQ(content, contents[i]);
  }
}

TEST_F(SafetensorsFileTest, LeavesNothingOfAFileThatWasNotFinished) {
  {
    auto writer = SafetensorsWriter::create(folder_ / "half.safetensors", {{"w", DType::kU8, {8}}}, {});
    ASSERT_TRUE(writer);
    EXPECT_EQ(folder_.names().size(), 1u);
  }
  EXPECT_TRUE(folder_.names().empty());
}

TEST_F(SafetensorsFileTest, RefusesToWriteWhatItCouldNotRead) {
  const auto code_of = [&](std::vector<model::TensorSpec> specs) {
    const auto writer = SafetensorsWriter::create(folder_ / "bad.safetensors", std::move(specs), {});
    return writer ? "no error" : base::error_code_name(writer.error().code);
  };
  EXPECT_STREQ(code_of({{"w", DType::kU8, {1}}, {"w", DType::kU8, {1}}}), "invalid_argument");
  EXPECT_STREQ(code_of({{"__metadata__", DType::kU8, {1}}}), "invalid_argument");
  EXPECT_STREQ(code_of({{"\xff", DType::kU8, {1}}}), "invalid_argument");
  EXPECT_STREQ(code_of({{"w", DType::kU8, {std::int64_t{1} << 62, 8}}}), "invalid_argument");
  EXPECT_TRUE(folder_.names().empty());
  write_file(folder_ / "taken.safetensors", "precious");
  const auto taken = SafetensorsWriter::create(folder_ / "taken.safetensors", {}, {});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kConflict);
  EXPECT_EQ(read_file(folder_ / "taken.safetensors"), "precious");
}

TEST_F(SafetensorsFileTest, AFullDiskIsAnErrorThatSaysSo) {
  // More than any disk of these machines holds: the reservation fails before a byte is written.
  const auto writer =
      SafetensorsWriter::create(folder_ / "huge.safetensors", {{"w", DType::kU8, {std::int64_t{1} << 42}}}, {});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(writer.error().message, testing::AllOf(HasSubstr("4398046511"), HasSubstr("bytes are free")));
  EXPECT_TRUE(folder_.names().empty());
}

}  // namespace
}  // namespace weightbus::checkpoint
