#include "worker/comm/op_descriptor.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

auto WhatMustAgree(const OpDescriptor& op) {
  return std::tie(op.sequence, op.collective, op.dtype, op.count, op.segments, op.contributors,
                  op.root);
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

}  // namespace sherd
