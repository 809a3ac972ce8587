#include "weightbus/client/session.h"

#include <chrono>
#include <utility>

namespace weightbus::client {
namespace {

using base::ErrorCode;
using base::fail;

// The same memory and the same slots; which half is live is not compared.
bool same_arena(const wire::ArenaInfo& a, const wire::ArenaInfo& b) {
  return a.halves == b.halves && a.slots == b.slots;
}

}  // namespace

void Session::on_attached() {
  const std::lock_guard lock(mutex_);
  state_.attachments += 1;
}

base::Status Session::on_message(const wire::AttachMessage& message) {
  if (const auto* arena = std::get_if<wire::ArenaInfo>(&message)) return on_arena(*arena);
  if (const auto* pause = std::get_if<wire::Pause>(&message)) return on_pause(*pause);
  if (const auto* exchange = std::get_if<wire::Exchange>(&message)) return on_exchange(*exchange);
  if (const auto* resume = std::get_if<wire::Resume>(&message)) return on_resume(*resume);
  if (const auto* refused = std::get_if<wire::AttachRefused>(&message))
    return fail(refused->error.with("the agent refused this client"));
  return fail(ErrorCode::kInvalidArgument, "the agent sent a message that only clients send");
}

base::Status Session::on_arena(const wire::ArenaInfo& info) {
  WB_TRY(wire::validate_arena(info));
  // Another arena is opened by settle(), once no step reads the one before.
  if (mapped_any_ && same_arena(info, info_)) {
    pending_.reset();
  } else {
    pending_ = info;
  }
  target_live_ = info.live;
  target_tag_ = info.tag;
  hold_ = info.paused;
  if (!info.paused) {
    pause_.reset();
    answered_ = false;
  }
  {
    const std::lock_guard lock(mutex_);
    state_.attached = true;
    state_.last_error.clear();
  }
  return settle();
}

base::Status Session::on_pause(const wire::Pause& pause) {
  if (pause_ == pause.id && answered_) {
    send_(wire::Paused{pause.id});
    return {};
  }
  pause_ = pause.id;
  answered_ = false;
  return settle();
}

base::Status Session::on_exchange(const wire::Exchange& exchange) {
  const auto refuse = [&](const base::Error& error) {
    send_(wire::ExchangeFailed{exchange.id, error});
    return base::Status{};
  };
  // Without Paused nothing is exchanged: a step may be reading the memory.
  if (pause_ != exchange.id || !answered_ || pending_ || !mapped_any_)
    return refuse({ErrorCode::kConflict, "this client has not paused for this exchange"});
  const auto before_live = target_live_;
  const auto before_tag = target_tag_;
  target_live_ = exchange.live;
  target_tag_ = exchange.tag;
  const auto started = std::chrono::steady_clock::now();
  if (auto status = map_target(); !status) {
    target_live_ = before_live;
    target_tag_ = before_tag;
    report(status);
    return refuse(status.error());
  }
  const auto took = std::chrono::steady_clock::now() - started;
  send_(wire::Exchanged{exchange.id, exchange.live,
                        static_cast<std::uint64_t>(std::chrono::duration_cast<base::Duration>(took).count())});
  return {};
}

base::Status Session::on_resume(const wire::Resume& resume) {
  if (pause_ != resume.id) return {};
  pause_.reset();
  answered_ = false;
  hold_ = false;
  target_live_ = resume.live;
  target_tag_ = resume.tag;
  return settle();
}

void Session::on_lost(const base::Error& why) {
  // After Paused the other ranks may exchange and go on: only an agent can tell what this one has to compute with.
  // Before it, nothing can have been exchanged anywhere.
  if (pause_ && answered_) hold_ = true;
  pause_.reset();
  answered_ = false;
  bool was_attached = false;
  {
    const std::lock_guard lock(mutex_);
    was_attached = std::exchange(state_.attached, false);
    state_.last_error = why.message;
  }
  if (was_attached) log("lost the agent: " + why.message + (hold_ ? "; waiting for its return" : "; serving on"));
  if (mapped_any_) report(settle());
}

base::Status Session::adopt(const wire::ArenaInfo& info) {
  WB_TRY(range_.open(info));
  auto slots = std::make_shared<std::vector<Slot>>();
  slots->reserve(info.slots.size());
  for (const auto& slot : info.slots) {
    std::uint64_t span = model::dtype_size(slot.dtype);
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < slot.box.rank(); ++i) {
      if (slot.box.extent[i] == 0) span = 0;
      last += static_cast<std::uint64_t>(slot.box.extent[i] - 1) * static_cast<std::uint64_t>(slot.at.strides[i]);
    }
    // Sums were checked by validate_arena().
    if (span != 0) span += last * model::dtype_size(slot.dtype);
    slots->push_back({slot.tensor, slot.parameter, slot.dtype, slot.kind, slot.shape, slot.box, slot.at.strides,
                      range_.region(slot.at.region) + slot.at.offset, span});
  }
  slots_ = std::move(slots);
  info_ = info;
  mapped_any_ = false;
  const std::lock_guard lock(mutex_);
  mapped_arena_.reset();
  return {};
}

base::Status Session::map_target() {
  const bool other = range_.mapped() != target_live_;
  const auto started = std::chrono::steady_clock::now();
  if (other) WB_TRY(range_.map(target_live_));
  const auto took = std::chrono::steady_clock::now() - started;
  const std::lock_guard lock(mutex_);
  if (other && mapped_any_) {
    state_.exchanges += 1;
    state_.last_exchange_ns = static_cast<std::uint64_t>(std::chrono::duration_cast<base::Duration>(took).count());
  }
  mapped_any_ = true;
  state_.tag = target_tag_;
  mapped_arena_ = target_tag_ ? std::make_shared<const Arena>(Arena{*target_tag_, slots_}) : nullptr;
  return {};
}

base::Status Session::settle() {
  const bool must_wait = pause_ || hold_;
  const bool differs = pending_ || range_.mapped() != target_live_ || !mapped_any_ || state_.tag != target_tag_;
  if (must_wait || differs || !target_tag_) gate_.close();
  if (gate_.is_open()) return {};
  if (!must_wait && !differs && target_tag_ && !quiesced_) {
    // A pause ended before the steps inside did: nothing was touched, and others need not wait for them.
    gate_.open(peek());
    return {};
  }
  if (!gate_.idle()) return {};  // on_idle() comes back here
  if (mapped_any_) quiesce();
  if (pause_ && !answered_) {
    answered_ = true;
    send_(wire::Paused{*pause_});
  }
  // The first mapping may happen during a pause: nobody computes with it before Resume, which may name another half.
  if (must_wait && mapped_any_) return {};
  if (pending_) {
    WB_TRY(adopt(*pending_));
    pending_.reset();
  }
  if (slots_ == nullptr) return {};  // no arena was ever named
  WB_TRY(map_target());
  if (must_wait || !target_tag_) return {};
  const auto arena = peek();
  if (quiesced_) {
    quiesced_ = false;
    if (hooks_.on_resume) hooks_.on_resume(*arena);
  }
  gate_.open(arena);
  return {};
}

void Session::quiesce() {
  if (quiesced_) return;
  quiesced_ = true;
  if (hooks_.on_pause) hooks_.on_pause();
}

void Session::report(const base::Status& status) {
  if (status) return;
  log(status.error().message);
  const std::lock_guard lock(mutex_);
  state_.last_error = status.error().message;
}

void Session::log(const std::string& sentence) const {
  if (hooks_.log) hooks_.log(sentence);
}

bool Session::has_arena() const {
  const std::lock_guard lock(mutex_);
  return state_.attached && mapped_any_;
}

ReaderState Session::snapshot() const {
  const std::lock_guard lock(mutex_);
  ReaderState state = state_;
  state.open = gate_.is_open();
  state.steps = gate_.steps();
  return state;
}

std::shared_ptr<const Arena> Session::peek() const {
  const std::lock_guard lock(mutex_);
  return mapped_arena_;
}

}  // namespace weightbus::client
