#include "worker/train/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/memory.h"
#include "plan/peer_addresses.h"
#include "plan/probe_cost.h"
#include "plan/wire.h"
#include "worker/comm/formation.h"
#include "worker/comm/tree_accumulator.h"
#include "worker/train/rank_mesh.h"

namespace sherd {
namespace {

// A rank's part of a small and of a large message; of all members together at most so much.
constexpr int64_t kSmallPart = 1 << 10;
constexpr int64_t kLargePart = 1 << 20;
constexpr int64_t kLargest = 8 << 20;
constexpr int64_t kCopyBytes = 32 << 20;
constexpr int kRepetitions = 5;
constexpr double kMatmulSeconds = 0.2;
constexpr double kCopySeconds = 0.1;
// Sizes of the products: the model's, within these.
constexpr int64_t kLeastRows = 64, kMostRows = 1024;
constexpr int64_t kLeastChannels = 64, kMostChannels = 2048;
constexpr absl::Duration kOperationTimeout = absl::Minutes(2);

double SecondsOf(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// In whole elements, of which reductions count.
int64_t LargePartOf(int64_t members) {
  constexpr int64_t kAlignment = 64;
  return std::min(kLargePart, kLargest / members) / kAlignment * kAlignment;
}

}  // namespace

MachineProbe::MachineProbe(const v1::Assignment& assignment, int threads, DataListener& listener)
    : assignment_(assignment), threads_(threads), listener_(listener) {}

std::vector<int> MachineProbe::MembersOf(int64_t size, int64_t stride) const {
  const int64_t rank = assignment_.rank();
  const int64_t first = rank / (size * stride) * (size * stride) + rank % stride;
  std::vector<int> members;
  for (int64_t at = 0; at < size; ++at) members.push_back(static_cast<int>(first + at * stride));
  return members;
}

absl::StatusOr<std::unique_ptr<Communicator>> MachineProbe::FormGroup(
    const std::vector<int>& members, FormationAbort& abort) {
  SHERD_ASSIGN_OR_RETURN(const PeerAddresses near, ReadPeers(assignment_.peers()));
  const bool shares = std::all_of(members.begin(), members.end(),
                                  [&](int member) { return near.contains(member); });
  SHERD_ASSIGN_OR_RETURN(const PeerAddresses peers,
                         ReadPeers(shares ? assignment_.peers() : assignment_.network_peers()));
  GroupSpec spec;
  spec.job_id = assignment_.job_id();
  spec.epoch = assignment_.epoch();
  const auto size = static_cast<int64_t>(members.size());
  spec.group = absl::StrCat("the probe's group of ", size, " ranks, ", members[1] - members[0],
                            " apart, from rank ", members.front());
  spec.secret = assignment_.secret();
  for (const int member : members) {
    if (member == assignment_.rank()) spec.rank = static_cast<int>(spec.addresses.size());
    const auto found = peers.find(member);
    if (found == peers.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the assignment names no address of rank ", member));
    }
    spec.addresses.push_back(found->second);
  }
  FormOptions options;
  options.transport = shares ? Transport::kShm : Transport::kTcp;
  options.arena_bytes = size * LargePartOf(size);
  options.operation_timeout = kOperationTimeout;
  return FormCommunicator(listener_, spec, options, &abort);
}

absl::StatusOr<v1::TrialReport> MachineProbe::Run(FormationAbort& abort,
                                                  absl::FunctionRef<void()> ready) {
  absl::Status formed = Form(abort);
  if (formed.ok()) ready();
  absl::StatusOr<v1::TrialReport> report =
      formed.ok() ? Measure() : absl::StatusOr<v1::TrialReport>(std::move(formed));
  if (!report.ok()) Abort(report.status().message());
  return report;
}

absl::Status MachineProbe::CheckSizes() const {
  int64_t largest = 1;
  for (const int64_t size : assignment_.trial().group_sizes()) {
    if (size < 2 || assignment_.world() % size != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a world of ", assignment_.world(), " has no groups of ", size, " ranks"));
    }
    largest = size;
  }
  if (largest == assignment_.world()) return absl::OkStatus();
  return absl::InvalidArgumentError("a probe's last group is not that of all ranks");
}

absl::Status MachineProbe::Form(FormationAbort& abort) {
  // The same on all ranks, before any of them waits for another.
  SHERD_RETURN_IF_ERROR(CheckSizes());
  for (const int64_t size : assignment_.trial().group_sizes()) {
    for (const int64_t stride : ProbeStrides(size, assignment_.world())) {
      const std::vector<int> members = MembersOf(size, stride);
      absl::StatusOr<std::unique_ptr<Communicator>> comm = FormGroup(members, abort);
      if (!comm.ok()) {
        const int lost = LostMemberOf(comm.status());
        // What members say of each other comes over the network.
        if (lost >= 0 && lost < size) lost_in_forming_ = members[static_cast<size_t>(lost)];
        return WithRanks(comm.status(), members);
      }
      absl::MutexLock lock(&mutex_);
      groups_.push_back({size, stride, *std::move(comm)});
      if (aborted_) return absl::AbortedError(reason_);
    }
  }
  return absl::OkStatus();
}

void MachineProbe::Abort(absl::string_view reason) {
  absl::MutexLock lock(&mutex_);
  if (!aborted_) reason_ = std::string(reason);
  aborted_ = true;
  for (Group& group : groups_) group.comm->Abort(reason);
}

int MachineProbe::lost_peer() const {
  if (lost_in_forming_ >= 0) return lost_in_forming_;
  for (const Group& group : groups_) {
    const int place = group.comm->ended_by();
    if (place >= 0) return MembersOf(group.size, group.stride)[static_cast<size_t>(place)];
  }
  return -1;
}

std::string MachineProbe::operation() const { return operation_.load(); }

absl::Status MachineProbe::Meet() {
  if (aborted_) {
    absl::MutexLock lock(&mutex_);
    return absl::AbortedError(reason_);
  }
  if (groups_.empty()) return absl::OkStatus();
  Communicator& world = *groups_.back().comm;
  return world.Wait(world.Barrier());
}

absl::Status MachineProbe::MeasureMatmul(v1::TrialReport& report) {
  operation_ = "timing products of matrices";
  const v1::JobSpec& spec = assignment_.spec();
  const int64_t rows = std::clamp(spec.train().seq_len(), kLeastRows, kMostRows);
  const int64_t in = std::clamp(spec.model().hidden(), kLeastChannels, kMostChannels);
  const int64_t out = std::clamp(spec.model().ffn(), kLeastChannels, kMostChannels);
  const bool wide = spec.precision().compute() == v1::DATA_TYPE_FP32;
  const DType type = wide ? DType::kF32 : DType::kBF16;
  MemoryMeter meter;
  const std::unique_ptr<Ops> ops = MakeCpuOps(threads_, meter);
  constexpr int64_t kFloat = sizeof(float);
  const Buffer x(meter, Pool::kActivations, rows * in * kFloat);
  const Buffer y(meter, Pool::kActivations, rows * out * kFloat);
  const Buffer dx(meter, Pool::kActivations, rows * in * kFloat);
  const Buffer w(meter, Pool::kParams, in * out * SizeOf(type));
  const Buffer dw(meter, Pool::kGrads, in * out * SizeOf(type));
  // As a layer's forward and backward.
  const auto products = [&] {
    ops->LinearForward(x.as<float>(), {w.data(), type}, {nullptr, type}, y.as<float>(), rows, in,
                       out);
    ops->LinearBackwardInput(y.as<float>(), {w.data(), type}, dx.as<float>(), rows, in, out,
                             /*accumulate=*/false);
    ops->LinearBackwardWeight(y.as<float>(), x.as<float>(), {dw.data(), type, false},
                              {nullptr, type, false}, rows, in, out);
  };
  products();
  SHERD_RETURN_IF_ERROR(Meet());
  double seconds = 0;
  int64_t times = 0;
  while (seconds < kMatmulSeconds && !aborted_) {
    seconds += SecondsOf(products);
    ++times;
  }
  constexpr double kProducts = 3;
  const double operations = kProducts * 2 * static_cast<double>(rows) * static_cast<double>(in) *
                            static_cast<double>(out);
  report.set_matmul_flops_per_second(static_cast<double>(times) * operations / seconds);
  return absl::OkStatus();
}

absl::Status MachineProbe::MeasureCopy(v1::TrialReport& report) {
  operation_ = "timing copies";
  MemoryMeter meter;
  const Buffer from(meter, Pool::kStaging, kCopyBytes);
  const Buffer to(meter, Pool::kStaging, kCopyBytes);
  std::memset(from.data(), 1, kCopyBytes);
  const auto copy = [&] { std::memcpy(to.data(), from.data(), kCopyBytes); };
  copy();
  SHERD_RETURN_IF_ERROR(Meet());
  double seconds = 0;
  int64_t times = 0;
  while (seconds < kCopySeconds && !aborted_) {
    seconds += SecondsOf(copy);
    ++times;
  }
  report.set_copy_bytes_per_second(static_cast<double>(times * kCopyBytes) / seconds);
  return absl::OkStatus();
}

absl::Status MachineProbe::MeasureGroup(const Group& group, v1::TrialReport& report) {
  Communicator& comm = *group.comm;
  constexpr DType kType = DType::kBF16;
  const int64_t large = LargePartOf(group.size);
  MemoryMeter meter;
  const Buffer gathered(meter, Pool::kGathered, group.size * large);
  TreeAccumulator sum(meter, Pool::kGrads, large / SizeOf(kType), kType, group.size, group.size);
  const auto time = [&](const char* op, int64_t bytes,
                        absl::FunctionRef<Ticket()> enqueue) -> absl::Status {
    std::vector<double> seconds;
    for (int turn = 0; turn <= kRepetitions; ++turn) {
      SHERD_RETURN_IF_ERROR(Meet());
      absl::Status waited;
      const double taken = SecondsOf([&] { waited = comm.Wait(enqueue()); });
      SHERD_RETURN_IF_ERROR(waited);
      if (turn > 0) seconds.push_back(taken);
    }
    v1::CollectiveFigure& figure = *report.add_collectives();
    figure.set_op(op);
    figure.set_group_size(group.size);
    figure.set_stride(group.stride);
    figure.set_bytes(bytes);
    figure.set_seconds(MedianOf(std::move(seconds)));
    return absl::OkStatus();
  };
  operation_ = "timing all-gathers";
  for (const int64_t part : {kSmallPart, large}) {
    SHERD_RETURN_IF_ERROR(time("all_gather", AllGatherWire(group.size, part).bytes, [&] {
      return comm.AllGather(comm.arena(), gathered.data(), part);
    }));
  }
  operation_ = "timing reduce-scatters";
  SHERD_RETURN_IF_ERROR(time("reduce_scatter", ReduceScatterWire(group.size, large).bytes, [&] {
    sum.Reset();
    return comm.ReduceScatter(comm.arena(), static_cast<int>(group.size), &sum);
  }));
  operation_ = "timing all-reduces";
  const int64_t elements = group.size * large / SizeOf(kType);
  const Wire reduced = AllReduceWire(group.size, comm.rank(), elements, SizeOf(kType));
  return time("all_reduce", reduced.bytes, [&] {
    return comm.AllReduce(comm.arena(), elements, kType, static_cast<int>(group.size));
  });
}

absl::StatusOr<v1::TrialReport> MachineProbe::Measure() {
  v1::TrialReport report;
  report.set_number(assignment_.trial().number());
  SHERD_RETURN_IF_ERROR(MeasureMatmul(report));
  SHERD_RETURN_IF_ERROR(MeasureCopy(report));
  for (const Group& group : groups_) SHERD_RETURN_IF_ERROR(MeasureGroup(group, report));
  operation_ = "ending a probe";
  // Nobody's memory goes while another reads it.
  SHERD_RETURN_IF_ERROR(Meet());
  return report;
}

}  // namespace sherd
