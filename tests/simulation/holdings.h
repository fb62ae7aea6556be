#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "sherd/v1/events.pb.h"

namespace sherd::simulation {

// In which epoch each step of a state was computed: one character a step. States of one step that
// come from different runs differ in it.
using Lineage = std::string;

struct SegmentKey {
  std::string job;
  int64_t epoch = 0;
  int world = 0;
  int owner = 0;
  friend auto operator<=>(const SegmentKey&, const SegmentKey&) = default;
};

// The rules of worker/holdings/HoldingSegment without its bytes.
struct Segment {
  struct Slot {
    bool whole = false;
    // What the memory holds, whether that is marked or not; being overwritten while `torn`.
    Lineage lineage;
    bool torn = false;
    int64_t step() const { return static_cast<int64_t>(lineage.size()); }
  };

  // False, and nothing has changed, behind the fence.
  bool Invalidate(int slot);
  bool Complete(int slot);
  // -1: none.
  int Find(int64_t step) const;

  SegmentKey key;
  // Who reads it over the network must know it.
  std::string secret;
  std::array<Slot, 2> slots;
  bool fenced = false;
};

// The rules of worker/holdings/HoldingStore.
class Store {
 public:
  // A fault: segments are never fenced, and sealed epochs are taken in.
  explicit Store(bool fences) : fences_(fences) {}

  // False for an epoch that has been sealed.
  bool Keep(std::shared_ptr<Segment> segment);
  std::shared_ptr<Segment> Find(const SegmentKey& key) const;
  std::vector<v1::Holding> Seal(const std::string& job, int64_t epoch);
  void Retain(const std::string& job, int64_t epoch);
  void Forget(const std::string& job);
  bool HoldsAnythingOf(const std::string& job) const;

 private:
  bool fences_;
  std::map<SegmentKey, std::shared_ptr<Segment>> segments_;
  std::map<std::string, int64_t> sealed_;
};

}  // namespace sherd::simulation
