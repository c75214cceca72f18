// How a worker words what went wrong.
#include <signal.h>

#include "runtime.h"

namespace metal_sim {

namespace {

std::string text_of(const Site& site) {
  return site.line ? std::string(site.file) + ":" + std::to_string(site.line) : "an unknown line";
}

}  // namespace

Who who_is(const Thread& thread) {
  Who who;
  std::memcpy(who.threadgroup, thread.threadgroup_position_in_grid, sizeof who.threadgroup);
  who.thread = thread.thread_index_in_threadgroup;
  who.simdgroup = thread.simdgroup_index_in_threadgroup;
  return who;
}

void Worker::report(std::string kind, std::string message, const Site& site) {
  Event event;
  event.kind = std::move(kind), event.message = std::move(message), event.site = site;
  if (running_) event.who = who_is(running_->thread);
  job_.sink->event(event);
}

/** Nobody can go on: says who waits where. */
void Worker::report_stuck() {
  struct Party {
    State state;
    Site site;
    uint32_t first, count;
  };
  const auto site_of = [](const Fiber& fiber) { return fiber.site ? *fiber.site : Site{"", 0, ""}; };
  std::vector<Party> parties;
  for (uint32_t i = 0; i < count_; ++i) {
    const Fiber& fiber = fibers_[i];
    Party* found = nullptr;
    for (auto& party : parties)
      if (party.state == fiber.state && (party.state == State::kDone || same(party.site, site_of(fiber))))
        found = &party;
    if (found)
      ++found->count;
    else
      parties.push_back({fiber.state, site_of(fiber), i, 1});
  }
  const Party *main = nullptr, *other = nullptr;
  for (const auto& party : parties)
    if (party.state != State::kDone &&
        (!main || (party.state == State::kAtSimdgroup && main->state != State::kAtSimdgroup)))
      main = &party;
  std::string message;
  for (const auto& party : parties) {
    if (&party != main && (!other || other->state == State::kDone)) other = &party;
    message += (message.empty() ? "" : ", ") + std::to_string(party.count) +
               (party.state == State::kDone
                    ? " have returned"
                    : " wait at " + std::string(party.site.operation) + " (" + text_of(party.site) + ")") +
               " from thread " + std::to_string(party.first) + " on";
  }
  Event event;
  const bool simd = main && main->state == State::kAtSimdgroup;
  event.kind = simd ? "divergent-simdgroup" : "divergent-barrier";
  event.message = std::string(simd ? "not all lanes of a simdgroup reach the same operation: "
                                   : "not all threads of a threadgroup reach the same barrier: ") +
                  message;
  if (main) {
    event.site = main->site;
    event.who = who_is(fibers_[main->first].thread);
  }
  if (other) {
    event.other = who_is(fibers_[other->first].thread);
    if (other->state != State::kDone) event.other_site = other->site;
  }
  job_.sink->event(event);
}

/** Threads wait at different barriers. */
void Worker::report_meeting(const Fiber& fiber, const Site& site) {
  Event event;
  event.kind = "divergent-barrier";
  event.message =
      "threads of a threadgroup meet at different barriers: " + text_of(site) + " and " + text_of(*barrier_site_);
  event.site = site, event.who = who_is(fiber.thread), event.other_site = *barrier_site_, event.other = event.who;
  for (const Fiber& earlier : fibers_)
    if (&earlier != &fiber && earlier.state == State::kAtBarrier) {
      event.other = who_is(earlier.thread);
      break;
    }
  job_.sink->event(event);
}

void Worker::report_index(int64_t index, const Site& site) {
  report("array-index", "index " + std::to_string(index) + " is outside the array", site);
}

void Worker::undefined(Undefined kind, const Site& site, uint64_t value) {
  if (!job_.checker) return;
  if (kind == Undefined::kIndex) {
    report_index(int64_t(value), site);
    // What lies beside the array is the thread's own: it cannot go on.
    abandon();
  }
  const std::string number = std::to_string(int64_t(value));
  switch (kind) {
    case Undefined::kIndex:
      return;
    case Undefined::kAlignment:
      return report("misaligned", "a pointer is not aligned to the type it is used as", site);
    case Undefined::kDivision:
      return report("division", "an integer is divided by zero, or the quotient does not fit", site);
    case Undefined::kShift:
      return report("shift", "a shift by " + number + " is outside the width of the type", site);
    case Undefined::kLane:
      return report("inactive-lane",
                    value >= kSimdgroupSize
                        ? std::string(site.operation) + " needs all 32 lanes of the simdgroup"
                        : std::string(site.operation) + " reads lane " + number + ", which takes no part",
                    site);
    case Undefined::kWarpgroup:
      return report("split-warpgroup", "simdgroups of a warpgroup have executed different instructions of it", site);
  }
}

/** Writes beside threadgroup memory that did not fault. */
void Worker::check_trampled() {
  const auto check = [&](const GuardedBlock& block, const std::string& name) {
    int64_t offset;
    if (!block.trampled(&offset)) return;
    Event event;
    event.kind = "out-of-bounds";
    event.message = "a write outside threadgroup memory `" + name + "`";
    event.argument = name, event.offset = offset;
    event.who = who_is(fibers_[0].thread);
    job_.sink->event(event);
  };
  for (size_t i = 0; i < blocks_.size(); ++i)
    check(blocks_[i], "[[threadgroup(" + std::to_string(job_.memory[i].index) + ")]]");
  for (const auto& variable : variables_) check(variable.block, variable.name);
}

void Worker::report_time(const Site& site, uintptr_t pc) {
  Event event;
  event.kind = "timeout", event.message = "the dispatch did not end in time", event.site = site;
  if (!site.line) event.pc = pc;
  if (running_) event.who = who_is(running_->thread);
  job_.sink->event(event);
}

void Worker::report_fault() {
  if (fault_.signal == kTimeSignal) return report_time({"", 0, ""}, fault_.pc);
  Event event;
  event.pc = fault_.pc, event.address = fault_.address;
  event.who = who_is(running_->thread);
  event.kind = "fault";
  if (fault_.signal == SIGFPE) {
    event.kind = "division", event.message = "an integer is divided by zero, or the quotient does not fit";
  } else if (fault_.signal == SIGILL) {
    event.message = "the kernel ran into code that must not be reached";
  } else if (stacks_->guard_of(fault_.address) >= 0) {
    event.kind = "stack", event.message = "a thread's variables do not fit its stack of 240 KiB";
  } else {
    event.message = "an access to memory that no argument holds, or through a misaligned pointer";
    const auto near = [&](const GuardedBlock& block, std::string name) {
      if (!block.near(fault_.address)) return;
      event.kind = "out-of-bounds", event.argument = std::move(name);
      event.message = "an access outside threadgroup memory `" + event.argument + "`";
      event.offset = int64_t(fault_.address) - int64_t(uintptr_t(block.data()));
    };
    for (size_t i = 0; i < blocks_.size(); ++i)
      near(blocks_[i], "[[threadgroup(" + std::to_string(job_.memory[i].index) + ")]]");
    for (const auto& variable : variables_) near(variable.block, variable.name);
  }
  job_.sink->event(event);
}

}  // namespace metal_sim
