#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/comm/communicator.h"
#include "worker/comm/op_descriptor.h"
#include "worker/comm/progress.h"

namespace sherd {

// The head of a member's segment, mapped by every member. Written by its owner unless stated. The
// words that different processes write lie in different cache lines.
struct ControlBlock {
  // How far the owner is (progress.h), a futex.
  alignas(64) std::atomic<uint32_t> progress;
  // Others that sleep on it, written by them; nobody is woken while it is 0.
  alignas(64) std::atomic<uint32_t> sleepers;
  // Set once, when the owner's communicator has failed: its buffers may change from now on.
  std::atomic<uint32_t> failed;

  // Of operations n and n−1: a member is never more than one operation ahead of another, because
  // it needs everyone's arrival to leave one. Slot n mod 2.
  struct alignas(64) Slot {
    OpDescriptor descriptor;
  };
  std::array<Slot, 2> slots;

  // What others took from this segment, counted by them, and what its owner wrote to others'.
  struct Sent {
    std::atomic<int64_t> bytes;
    std::atomic<int64_t> messages;
  };
  alignas(64) std::array<Sent, kCollectives> sent;

  // Exchange's records, as `slots`.
  alignas(64) std::array<std::array<std::byte, Communicator::kMaxExchangeBytes>, 2> records;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);
// A futex is 32 bits.
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace sherd
