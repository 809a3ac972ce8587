#include "cli/waiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "cli/update_view.h"

namespace weightbus::cli {

void Progress::show(const protocol::UpdateStatus& update) {
  if (mode_ == Mode::kBar) {
    draw(progress_line(update, console_.width() - 1));
  } else if (mode_ == Mode::kLines && phase_ != update.phase) {
    console_.out << phase_line(update) << std::endl;
  }
  phase_ = update.phase;
}

void Progress::say(const std::string& text) {
  if (mode_ == Mode::kBar) {
    draw(text.substr(0, static_cast<std::size_t>(console_.width() - 1)));
  } else if (mode_ == Mode::kLines && text != said_) {
    console_.out << text << std::endl;
  }
  said_ = text;
}

void Progress::draw(const std::string& line) {
  console_.err << "\r\033[K" << line << std::flush;
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) console_.err << "\r\033[K" << std::flush;
  drawn_ = false;
}

namespace {

const protocol::UpdateStatus* find_ended(const protocol::ModelStatus& status, model::UpdateId id) {
  const auto it = std::find_if(status.recent.begin(), status.recent.end(),
                               [&](const protocol::UpdateStatus& update) { return update.update == id; });
  return it == status.recent.end() ? nullptr : &*it;
}

base::Error lost(const WaitOptions& options, const protocol::ModelStatus& status) {
  const auto id = options.update.value();
  if (options.epoch && status.epoch != *options.epoch) {
    return {
        base::ErrorCode::kAborted,
        fmt::format("the coordinator was restarted before update {} was decided, so it was aborted; the engines serve "
                    "what they served before; ask again",
                    id)};
  }
  return {
      base::ErrorCode::kUnavailable,
      fmt::format("the coordinator knows nothing of update {} any more; see `weightbus status` for what is committed, "
                  "and the coordinator's log for why",
                  id)};
}

}  // namespace

base::Result<protocol::UpdateStatus> wait_for_update(const WaitOptions& options, const WaitWorld& world,
                                                     Progress& progress) {
  base::Instant heard = world.now();
  std::optional<base::Instant> missing_since;
  for (;;) {
    const auto status = world.status();
    const base::Instant now = world.now();
    if (!status) {
      if (status.error().code != base::ErrorCode::kUnavailable) return base::fail(status.error());
      if (now - heard >= options.patience) {
        return base::fail(base::ErrorCode::kUnavailable,
                          "the coordinator stopped answering while update {} ran, so its outcome is unknown; see "
                          "`weightbus status` once the coordinator is back ({})",
                          options.update.value(), status.error().message);
      }
      progress.say("the coordinator does not answer; waiting for it");
      world.sleep(options.poll);
      continue;
    }
    heard = now;
    if (const auto* ended = find_ended(*status, options.update)) {
      progress.show(*ended);
      return *ended;
    }
    const auto& running = status->running;
    if (running && running->update == options.update) {
      missing_since.reset();
      progress.show(*running);
    } else if (options.queued && running && (!options.epoch || status->epoch == *options.epoch)) {
      missing_since.reset();
      progress.say(fmt::format("update {} waits behind update {} ({} to version {}, {})", options.update.value(),
                               running->update.value(), protocol::update_kind_name(running->kind),
                               running->target.value(), protocol::phase_name(running->phase)));
    } else {
      if (!missing_since) missing_since = now;
      if (now - *missing_since >= options.lost_after) return base::fail(lost(options, *status));
    }
    world.sleep(options.poll);
  }
}

}  // namespace weightbus::cli
