#include "worker/comm/op_descriptor.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

auto WhatMustAgree(const OpDescriptor& op) {
  return std::tie(op.sequence, op.collective, op.dtype, op.count, op.segments, op.contributors,
                  op.root);
}

// Calls `field` with every field in the order of the wire.
template <typename Op, typename Field>
void ForEachWireField(Op& op, const Field& field) {
  field(op.sequence);
  field(op.count);
  field(op.segments);
  field(op.contributors);
  field(op.root);
  field(op.collective);
  field(op.dtype);
}

}  // namespace

std::string Describe(const OpDescriptor& op) {
  const std::string call = absl::StrCat(NameOf(op.collective), " #", op.sequence);
  switch (op.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      return absl::StrCat(call, " of ", op.count, " ", NameOf(op.dtype), " from ", op.contributors,
                          " contributors");
    case Collective::kBroadcast:
      return absl::StrCat(call, " of ", op.count, " bytes from rank ", op.root);
    case Collective::kAllGather:
    case Collective::kExchange:
      return absl::StrCat(call, " of ", op.count, " bytes");
    case Collective::kBarrier:
      return call;
  }
  return absl::StrCat("unknown operation #", op.sequence);
}

absl::Status CheckSameCall(int rank, const OpDescriptor& ours, int peer,
                           const OpDescriptor& theirs) {
  if (WhatMustAgree(ours) == WhatMustAgree(theirs)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("rank ", peer, " called ", Describe(theirs),
                                                    " where rank ", rank, " called ",
                                                    Describe(ours)));
}

WireDescriptor EncodeDescriptor(const OpDescriptor& op) {
  WireDescriptor bytes = {};
  size_t at = 0;
  ForEachWireField(op, [&](const auto& field) {
    const auto value = static_cast<uint64_t>(field);
    for (size_t byte = 0; byte < sizeof(field); ++byte) {
      bytes[at++] = static_cast<std::byte>(value >> (8 * byte));
    }
  });
  return bytes;
}

absl::StatusOr<OpDescriptor> DecodeDescriptor(const WireDescriptor& bytes) {
  OpDescriptor op;
  size_t at = 0;
  ForEachWireField(op, [&](auto& field) {
    uint64_t value = 0;
    for (size_t byte = 0; byte < sizeof(field); ++byte) {
      value |= static_cast<uint64_t>(bytes[at++]) << (8 * byte);
    }
    field = static_cast<std::decay_t<decltype(field)>>(value);
  });
  const bool known = static_cast<int>(op.collective) < kCollectives &&
                     (op.dtype == DType::kF32 || op.dtype == DType::kBF16) &&
                     EncodeDescriptor(op) == bytes;
  if (!known) return absl::InvalidArgumentError("not the descriptor of an operation");
  return op;
}

}  // namespace sherd
