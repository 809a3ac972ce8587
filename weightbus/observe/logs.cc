#include "weightbus/observe/logs.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

namespace weightbus::observe {

namespace {

constexpr std::size_t kValueBytesMax = 4096;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(std::function<void(const std::string&)> function) : function_(std::move(function)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    function_(std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

 private:
  std::function<void(const std::string&)> function_;
};

// The process has one stderr, so it has one log.
struct Log {
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
  std::vector<Field> common;
};

std::shared_ptr<spdlog::logger> make_logger(std::shared_ptr<spdlog::sinks::sink> sink, Level level) {
  auto logger = std::make_shared<spdlog::logger>("weightbus", std::move(sink));
  // Times and levels are part of our lines already.
  logger->set_pattern("%v");
  logger->set_level(to_spdlog(level));
  logger->flush_on(spdlog::level::debug);
  return logger;
}

Log& process_log() {
  static Log log{make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), Level::kInfo), false, {}};
  return log;
}

std::string now_text() {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, ms % 1000);
}

std::string bounded(const std::string& value) {
  if (value.size() <= kValueBytesMax) return value;
  return fmt::format("{}... ({} bytes)", std::string_view(value).substr(0, kValueBytesMax), value.size());
}

// As a JSON string, with the replacement character for bytes that are no UTF-8.
std::string quoted(const std::string& value) {
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_bare(const std::string& value) {
  if (value.empty()) return false;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f || c == '"' || c == '=' || c == '\\') return false;
  }
  return true;
}

void append_text(std::string& line, const Field& field) {
  const auto value = bounded(field.value());
  const bool bare = field.kind() == Field::Kind::kLiteral || is_bare(value);
  line += fmt::format(" {}={}", field.key(), bare ? value : quoted(value));
}

void append_json(std::string& line, const Field& field) {
  const auto value = bounded(field.value());
  line += fmt::format(",{}:{}", quoted(std::string(field.key())),
                      field.kind() == Field::Kind::kLiteral ? value : quoted(value));
}

}  // namespace

base::Result<Level> parse_level(std::string_view text) {
  for (const auto level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError}) {
    if (text == level_name(level)) return level;
  }
  return base::fail(base::ErrorCode::kInvalidArgument, "'{}' is no log level; use debug, info, warn or error", text);
}

const char* level_name(Level level) noexcept {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarn: return "warn";
    case Level::kError: return "error";
  }
  return "unknown";
}

// JSON has no words for numbers that are none.
Field::Field(std::string_view key, double value)
    : Field(key, fmt::format("{}", value), std::isfinite(value) ? Kind::kLiteral : Kind::kText) {}

void configure_logs(LogOptions options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (options.sink) {
    sink = std::make_shared<FunctionSink>(std::move(options.sink));
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }
  process_log() = Log{make_logger(std::move(sink), options.level), options.json, std::move(options.common)};
}

bool is_logged(Level level) noexcept { return process_log().logger->should_log(to_spdlog(level)); }

void log(Level level, std::string_view event, Fields fields) {
  if (!is_logged(level)) return;
  const auto& target = process_log();
  const auto time = now_text();
  const auto line = target.json ? format_json(time, level, event, fields, target.common)
                                : format_text(time, level, event, fields, target.common);
  target.logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

std::string format_text(std::string_view time, Level level, std::string_view event, Fields fields,
                        const std::vector<Field>& common) {
  auto line = fmt::format("{} {:<5} {}", time, level_name(level), event);
  for (const auto& field : fields)
    append_text(line, field);
  for (const auto& field : common)
    append_text(line, field);
  return line;
}

std::string format_json(std::string_view time, Level level, std::string_view event, Fields fields,
                        const std::vector<Field>& common) {
  auto line = fmt::format("{{\"time\":{},\"level\":\"{}\",\"event\":{}", quoted(std::string(time)), level_name(level),
                          quoted(std::string(event)));
  for (const auto& field : common)
    append_json(line, field);
  for (const auto& field : fields)
    append_json(line, field);
  return line + "}";
}

}  // namespace weightbus::observe
