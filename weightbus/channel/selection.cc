#include "weightbus/channel/selection.h"

#include <algorithm>
#include <array>

namespace weightbus::channel {
namespace {

struct Kind {
  const char* name;
  bool one_host;
};
// In order of preference. All of them carry CPU memory.
constexpr std::array kKinds{Kind{"local", true}, Kind{"shm", true}, Kind{"tcp", false}};

// Why the pair cannot use this channel; empty when it can.
std::string refusal(const Kind& kind, const SelectionEnd& source, const SelectionEnd& sink,
                    std::span<const std::string> offered, std::span<const SinkChannel> at_sink) {
  if (!source.device_uuid.empty() || !sink.device_uuid.empty()) return "it carries CPU memory only";
  if (kind.one_host && source.host != sink.host) return "it needs one host";
  if (std::find(offered.begin(), offered.end(), kind.name) == offered.end()) return "the source does not offer it";
  const auto own = std::find_if(at_sink.begin(), at_sink.end(), [&](const auto& one) { return one.name == kind.name; });
  if (own == at_sink.end()) return "the sink does not have it";
  if (!own->usable) return "not usable at the sink (" + own->reason + ")";
  return {};
}

std::string describe(const SelectionEnd& end) {
  return fmt::format("{} ({} on host {})", end.member.value(),
                     end.device_uuid.empty() ? "CPU memory" : "GPU " + end.device_uuid, end.host.value());
}

}  // namespace

base::Result<std::string> select_channel(const SelectionEnd& source, const SelectionEnd& sink,
                                         std::span<const std::string> offered, std::span<const SinkChannel> at_sink) {
  std::string reasons;
  for (const auto& kind : kKinds) {
    const auto why = refusal(kind, source, sink, offered, at_sink);
    if (why.empty()) return kind.name;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", kind.name, why);
  }
  return base::fail(base::ErrorCode::kUnsupported, "no channel reaches from {} to {}: {}", describe(source),
                    describe(sink), reasons);
}

}  // namespace weightbus::channel
