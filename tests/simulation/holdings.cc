#include "tests/simulation/holdings.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sherd::simulation {

bool Segment::Invalidate(int slot) {
  if (fenced) return false;
  slots[slot].whole = false;
  return true;
}

bool Segment::Complete(int slot) {
  if (fenced) return false;
  slots[slot].whole = true;
  return true;
}

int Segment::Find(int64_t step) const {
  for (int slot = 0; slot < 2; ++slot) {
    if (slots[slot].whole && slots[slot].step() == step) return slot;
  }
  return -1;
}

bool Store::Keep(std::shared_ptr<Segment> segment) {
  const auto sealed = sealed_.find(segment->key.job);
  if (sealed != sealed_.end() && segment->key.epoch <= sealed->second) return false;
  segments_[segment->key] = std::move(segment);
  return true;
}

std::shared_ptr<Segment> Store::Find(const SegmentKey& key) const {
  const auto found = segments_.find(key);
  return found == segments_.end() ? nullptr : found->second;
}

std::vector<v1::Holding> Store::Seal(const std::string& job, int64_t epoch) {
  if (fences_) sealed_[job] = std::max(sealed_[job], epoch);
  std::vector<v1::Holding> held;
  for (const auto& [key, segment] : segments_) {
    if (key.job != job) continue;
    if (fences_ && key.epoch <= epoch) segment->fenced = true;
    for (const Segment::Slot& slot : segment->slots) {
      if (!slot.whole) continue;
      v1::Holding& version = held.emplace_back();
      version.set_epoch(key.epoch);
      version.set_world(key.world);
      version.set_owner(key.owner);
      version.set_step(slot.step());
    }
  }
  return held;
}

void Store::Retain(const std::string& job, int64_t epoch) {
  sealed_[job] = std::max(sealed_[job], epoch - 1);
  std::erase_if(segments_, [&](const auto& entry) {
    return entry.first.job == job && entry.first.epoch < epoch;
  });
}

void Store::Forget(const std::string& job) {
  sealed_[job] = std::numeric_limits<int64_t>::max();
  std::erase_if(segments_, [&](const auto& entry) { return entry.first.job == job; });
}

bool Store::HoldsAnythingOf(const std::string& job) const {
  return std::any_of(segments_.begin(), segments_.end(),
                     [&](const auto& entry) { return entry.first.job == job; });
}

}  // namespace sherd::simulation
