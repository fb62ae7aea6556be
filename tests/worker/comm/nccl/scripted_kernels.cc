// What ScriptedNccl's device does: kernels of the members of a clique meet and move data.
#include <algorithm>
#include <cstring>

#include "scripted_nccl.h"

namespace sherd {
namespace {

using Item = ScriptedNccl::Item;

float ValueAt(const std::byte* values, NcclType type, size_t index) {
  if (type == NcclType::kF32) {
    float value;
    std::memcpy(&value, values + index * sizeof(value), sizeof(value));
    return value;
  }
  BF16 value;
  std::memcpy(&value, values + index * sizeof(value), sizeof(value));
  return ToFloat(value);
}

void SetValue(std::byte* values, NcclType type, size_t index, float value) {
  if (type == NcclType::kF32) {
    std::memcpy(values + index * sizeof(value), &value, sizeof(value));
    return;
  }
  const BF16 rounded = ToBF16(value);
  std::memcpy(values + index * sizeof(rounded), &rounded, sizeof(rounded));
}

// Of `count` elements from `first` on: in the order of a ring, not in that of the tree.
std::vector<std::byte> Sum(const std::vector<const Item*>& calls, size_t first, size_t count) {
  const NcclType type = calls[0]->type;
  std::vector<std::byte> sum(count * (type == NcclType::kF32 ? 4 : 2));
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      value += ValueAt((*call)->send, type, first + i);
    }
    SetValue(sum.data(), type, i, value);
  }
  return sum;
}

// For all ranks at once, so that nobody writes over what another one has still to read.
void Perform(const std::vector<const Item*>& calls) {
  const size_t size = calls.size();
  const size_t bytes = calls[0]->bytes();
  switch (calls[0]->kind) {
    case Item::Kind::kAllGather:
      for (const Item* to : calls) {
        for (size_t from = 0; from < size; ++from) {
          std::byte* const place = to->receive + from * bytes;
          if (place != calls[from]->send) std::memcpy(place, calls[from]->send, bytes);
        }
      }
      return;
    case Item::Kind::kBroadcast:
      for (const Item* to : calls) {
        const Item* const root = calls[static_cast<size_t>(to->peer)];
        if (to != root) std::memcpy(to->receive, root->send, bytes);
      }
      return;
    case Item::Kind::kReduceScatter: {
      std::vector<std::vector<std::byte>> sums;
      for (size_t rank = 0; rank < size; ++rank) {
        sums.push_back(Sum(calls, rank * calls[0]->count, calls[0]->count));
      }
      for (size_t rank = 0; rank < size; ++rank) {
        std::memcpy(calls[rank]->receive, sums[rank].data(), bytes);
      }
      return;
    }
    case Item::Kind::kAllReduce: {
      const std::vector<std::byte> sum = Sum(calls, 0, calls[0]->count);
      for (const Item* to : calls) std::memcpy(to->receive, sum.data(), bytes);
      return;
    }
    case Item::Kind::kSend:
    case Item::Kind::kRecv:
      return;
  }
}

}  // namespace

size_t ScriptedNccl::Item::bytes() const {
  return count * (type == NcclType::kF32 ? 4 : type == NcclType::kBF16 ? 2 : 1);
}

bool ScriptedNccl::Item::Matches(const Item& other) const {
  return kind == other.kind && count == other.count && type == other.type && peer == other.peer;
}

bool ScriptedNccl::Meet(NcclComm comm, const Item& item) {
  Clique& clique = *comm->clique;
  Clique::Meeting& meeting = clique.meetings[comm->meetings++];
  meeting.calls.resize(static_cast<size_t>(clique.size), nullptr);
  const Item*& place = meeting.calls[static_cast<size_t>(comm->rank)];
  place = &item;
  const auto all_match = [&](const Item* call) { return call != nullptr && call->Matches(item); };
  if (std::all_of(meeting.calls.begin(), meeting.calls.end(), all_match)) {
    Perform(meeting.calls);
    meeting.done = true;
  }
  const auto over = [&] { return meeting.done || comm->aborted; };
  mutex_.Await(absl::Condition(&over));
  // Nobody may use its memory any more.
  if (!meeting.done) place = nullptr;
  return meeting.done;
}

bool ScriptedNccl::Receive(NcclComm comm, const Item& item) {
  std::deque<Clique::Letter>& letters = comm->clique->letters[{item.peer, comm->rank}];
  const auto here = [&] {
    return comm->aborted || (!letters.empty() && letters.front().bytes == item.bytes());
  };
  mutex_.Await(absl::Condition(&here));
  if (comm->aborted) return false;
  std::memcpy(item.receive, letters.front().data, item.bytes());
  *letters.front().taken = true;
  letters.pop_front();
  return true;
}

void ScriptedNccl::RunKernel(NcclComm comm, const std::vector<Item>& items) {
  absl::MutexLock lock(&mutex_);
  bool alive = true;
  if (auto fault = FaultIn(NcclCall::kKernel, comm->rank)) {
    if (fault->what == NcclFault::kDelay) TakeTime(*fault);
    if (fault->what == NcclFault::kFail) {
      comm->error = fault->result;
      fault->what = NcclFault::kHang;
    }
    alive = !Hang(*fault, comm);
  }
  std::deque<bool> taken;
  for (const Item& item : items) {
    if (item.kind != Item::Kind::kSend || !alive) continue;
    taken.push_back(false);
    comm->clique->letters[{comm->rank, item.peer}].push_back(
        {item.send, item.bytes(), &taken.back()});
  }
  for (const Item& item : items) {
    if (!alive || item.kind == Item::Kind::kSend) continue;
    alive = item.kind == Item::Kind::kRecv ? Receive(comm, item) : Meet(comm, item);
  }
  const auto sent = [&] {
    return comm->aborted || std::all_of(taken.begin(), taken.end(), [](bool is) { return is; });
  };
  mutex_.Await(absl::Condition(&sent));
  // What was not taken is not to be read any more.
  for (auto& [route, letters] : comm->clique->letters) {
    if (route.first == comm->rank && comm->aborted) letters.clear();
  }
  --comm->kernels;
}

}  // namespace sherd
