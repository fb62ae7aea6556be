#include "client/plan_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/quantities.h"
#include "common/status_macros.h"
#include "plan/cost_profiles.h"
#include "plan/element_bytes.h"
#include "plan/job_spec.h"

namespace sherd {
namespace {

using Text = std::optional<std::string>;

constexpr char kDefaultProfile[] = "cpu";

struct NamedFlag {
  const char* name;
  const Text& value;
};

absl::Status Refuse(absl::string_view sentence) { return absl::InvalidArgumentError(sentence); }

// The value that `name` spells, or a sentence with the nearest name.
template <typename Value>
absl::Status ReadName(const char* flag, const std::string& name, Value value, bool known,
                      const std::vector<absl::string_view>& names, Value& out) {
  out = value;
  if (known) return absl::OkStatus();
  const std::string nearest = Nearest(name, names);
  return Refuse(absl::StrCat(
      flag, ": ", name.size() <= 40 ? absl::StrCat("unknown value '", name, "'") : "unknown value",
      nearest.empty() ? absl::StrCat("; it is one of ", absl::StrJoin(names, ", "))
                      : absl::StrCat("; did you mean '", nearest, "'?")));
}

absl::Status CheckCombination(const PlanFlags& flags) {
  const bool job = !flags.job_file.empty();
  if (job && flags.params) {
    return Refuse("a job file and --params contradict each other: name the model or its size");
  }
  if (!job && !flags.params) {
    return Refuse("name a job file, or a number of parameters with --params, as in --params 7e9");
  }
  if (!flags.workers) return Refuse("--workers is missing: on how many workers?");
  if (flags.explain && flags.compare) {
    return Refuse("--explain shows the plan of one strategy: leave out --compare");
  }
  if (flags.rank && flags.compare) {
    return Refuse("--rank shows one rank under one strategy: leave out --compare");
  }
  const NamedFlag theory_only[] = {{"--strategy", flags.strategy},
                                   {"--shard-group", flags.shard_group},
                                   {"--zero1-gradients", flags.zero1_gradients},
                                   {"--reshard-after-forward", flags.reshard_after_forward},
                                   {"--rounds", flags.rounds},
                                   {"--compute", flags.compute},
                                   {"--grad", flags.grad}};
  for (const auto& [name, value] : theory_only) {
    if (job && value) {
      return Refuse(absl::StrCat(name,
                                 " goes with --params; a job file says it itself, or --set does, "
                                 "as in --set parallel.strategy=zero2"));
    }
  }
  if (job) return absl::OkStatus();
  if (!flags.overrides.empty()) return Refuse("--set changes a job file, and there is none");
  if (flags.explain) return Refuse("--explain needs a job file: a step has operations on units");
  if (flags.rank) return Refuse("--rank needs a job file: shards are of a model's units");
  if (flags.threads) return Refuse("--threads needs a job file: kernels work on a model's shapes");
  const NamedFlag job_only[] = {{"--flops", flags.flops},
                                {"--message-seconds", flags.message_seconds},
                                {"--optimizer-seconds", flags.optimizer_seconds},
                                {"--overlap", flags.overlap}};
  for (const auto& [name, value] : job_only) {
    if (value) {
      return Refuse(absl::StrCat(name, " needs a job file: without a model no step can be timed"));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMostThreads = 4096;

absl::Status ReadLimits(const PlanFlags& flags, PlanRequest& request) {
  request.limits.workers_per_host = request.workers;
  if (flags.device_memory) {
    SHERD_ASSIGN_OR_RETURN(request.limits.device,
                           ParseByteSize("--device-memory", *flags.device_memory));
  }
  if (flags.host_memory) {
    SHERD_ASSIGN_OR_RETURN(request.limits.host, ParseByteSize("--host-memory", *flags.host_memory));
  }
  if (flags.threads) {
    SHERD_ASSIGN_OR_RETURN(const int64_t threads,
                           ParseCount("--threads", *flags.threads, 1, kMostThreads));
    request.threads = static_cast<int>(threads);
  }
  if (!flags.workers_per_host) return absl::OkStatus();
  if (!flags.host_memory) {
    return Refuse("--workers-per-host goes with --host-memory: it is the memory that they share");
  }
  SHERD_ASSIGN_OR_RETURN(
      request.limits.workers_per_host,
      ParseCount("--workers-per-host", *flags.workers_per_host, 1, kMostTheoryWorkers));
  return absl::OkStatus();
}

absl::Status ReadBandwidth(const std::string& text, CostModel& cost) {
  SHERD_ASSIGN_OR_RETURN(const int64_t bytes, ParseByteSize("--bandwidth", text));
  cost.bandwidth = static_cast<double>(bytes);
  return absl::OkStatus();
}

absl::Status ReadCost(const PlanFlags& flags, PlanRequest& request) {
  const std::string profile = flags.profile.value_or(kDefaultProfile);
  const std::optional<CostModel> found = FindCostProfile(profile);
  SHERD_RETURN_IF_ERROR(ReadName("--profile", profile, found.value_or(CostModel()),
                                 found.has_value(), CostProfileNames(), request.cost));
  std::vector<std::string> changes;
  const auto changed = [&](const char* name, const Text& value) {
    if (value) changes.push_back(absl::StrCat(name, " ", *value));
    return value.has_value();
  };
  if (changed("--flops", flags.flops)) {
    SHERD_ASSIGN_OR_RETURN(request.cost.flops, ParseReal("--flops", *flags.flops, 1, 1e24));
  }
  if (changed("--bandwidth", flags.bandwidth)) {
    SHERD_RETURN_IF_ERROR(ReadBandwidth(*flags.bandwidth, request.cost));
  }
  if (changed("--message-seconds", flags.message_seconds)) {
    SHERD_ASSIGN_OR_RETURN(request.cost.seconds_per_message,
                           ParseReal("--message-seconds", *flags.message_seconds, 0, 3600));
  }
  if (changed("--optimizer-seconds", flags.optimizer_seconds)) {
    SHERD_ASSIGN_OR_RETURN(request.cost.optimizer_seconds,
                           ParseReal("--optimizer-seconds", *flags.optimizer_seconds, 0, 3600));
  }
  if (changed("--overlap", flags.overlap)) {
    SHERD_ASSIGN_OR_RETURN(const bool overlap, ParseFlag("--overlap", *flags.overlap));
    request.cost.shares_cores = !overlap;
  }
  request.cost_source = profile;
  if (!changes.empty()) {
    absl::StrAppend(&request.cost_source, " with ", absl::StrJoin(changes, ", "));
  }
  if (flags.profile || flags.bandwidth) request.known_bandwidth = request.cost.bandwidth;
  return absl::OkStatus();
}

absl::Status ReadType(const char* flag, const Text& text, v1::DataType& type) {
  if (!text) return absl::OkStatus();
  const v1::DataType named = DataTypeFromName(*text);
  return ReadName(flag, *text, named, named != v1::DATA_TYPE_UNSPECIFIED, DataTypeNames(), type);
}

// What all strategies have in common.
absl::StatusOr<TheoryQuestion> ReadSizes(const PlanFlags& flags, int64_t workers) {
  TheoryQuestion question;
  SHERD_ASSIGN_OR_RETURN(question.parameters,
                         ParseCount("--params", *flags.params, 1, kMostTheoryParameters));
  question.degree = question.shard_group = static_cast<int>(workers);
  if (flags.rounds) {
    SHERD_ASSIGN_OR_RETURN(question.rounds,
                           ParseCount("--rounds", *flags.rounds, 1, kMostTheoryRounds));
  }
  v1::DataType compute = v1::DATA_TYPE_BF16;
  SHERD_RETURN_IF_ERROR(ReadType("--compute", flags.compute, compute));
  v1::DataType grad = compute;
  SHERD_RETURN_IF_ERROR(ReadType("--grad", flags.grad, grad));
  question.param_bytes = ElementBytes(compute);
  question.grad_bytes = ElementBytes(grad);
  return question;
}

// The group that was given.
absl::Status ReadShardGroup(const PlanFlags& flags, TheoryQuestion& question) {
  SHERD_ASSIGN_OR_RETURN(const int64_t group,
                         ParseCount("--shard-group", *flags.shard_group, 1, question.degree));
  if (question.degree % group != 0) {
    int64_t lower = group;
    while (question.degree % lower != 0) --lower;
    return Refuse(absl::StrCat("--shard-group ", group, " does not divide ", question.degree,
                               " workers; the nearest below that does is ", lower));
  }
  question.shard_group = static_cast<int>(group);
  return absl::OkStatus();
}

absl::StatusOr<StrategyChoice> ReadChoice(const PlanFlags& flags) {
  if (!flags.strategy) {
    return Refuse("--strategy is missing: name one, or see all of them with --compare");
  }
  StrategyChoice choice;
  const v1::Strategy strategy = StrategyFromName(*flags.strategy);
  SHERD_RETURN_IF_ERROR(ReadName("--strategy", *flags.strategy, strategy,
                                 strategy != v1::STRATEGY_UNSPECIFIED, StrategyNames(),
                                 choice.strategy));
  if (strategy == v1::STRATEGY_AUTO) {
    return Refuse(
        "--strategy auto chooses among the layouts of a job: name a job file, or see all "
        "strategies with --compare");
  }
  if (flags.zero1_gradients && strategy != v1::STRATEGY_ZERO1) {
    return Refuse("--zero1-gradients goes with --strategy zero1");
  }
  if (flags.reshard_after_forward &&
      FindStrategy(strategy, choice.zero1_gradients)->parameters != ParameterFlow::kGatherPerUse) {
    return Refuse(absl::StrCat("--reshard-after-forward says nothing about ", *flags.strategy,
                               ", which keeps its parameters whole"));
  }
  if (flags.zero1_gradients) {
    const v1::GradientReduction reduction = GradientReductionFromName(*flags.zero1_gradients);
    SHERD_RETURN_IF_ERROR(ReadName("--zero1-gradients", *flags.zero1_gradients, reduction,
                                   reduction != v1::GRADIENT_REDUCTION_UNSPECIFIED,
                                   GradientReductionNames(), choice.zero1_gradients));
  }
  if (flags.reshard_after_forward) {
    SHERD_ASSIGN_OR_RETURN(choice.reshard_after_forward,
                           ParseFlag("--reshard-after-forward", *flags.reshard_after_forward));
  }
  return choice;
}

absl::Status ReadTheory(const PlanFlags& flags, PlanRequest& request) {
  SHERD_ASSIGN_OR_RETURN(TheoryQuestion question, ReadSizes(flags, request.workers));
  const auto ask = [&](const StrategyChoice& choice) {
    question.strategy = *FindStrategy(choice.strategy, choice.zero1_gradients);
    question.reshard_after_forward = choice.reshard_after_forward;
    request.theory.push_back(question);
  };
  if (!flags.compare) {
    SHERD_ASSIGN_OR_RETURN(const StrategyChoice choice, ReadChoice(flags));
    const bool hybrid = choice.strategy == v1::STRATEGY_HYBRID;
    if (hybrid != flags.shard_group.has_value()) {
      return Refuse(hybrid ? "--strategy hybrid needs --shard-group: how many ranks share one copy?"
                           : "--shard-group goes with --strategy hybrid, or with --compare");
    }
    if (hybrid) SHERD_RETURN_IF_ERROR(ReadShardGroup(flags, question));
    ask(choice);
    return absl::OkStatus();
  }
  const NamedFlag of_one[] = {{"--strategy", flags.strategy},
                              {"--zero1-gradients", flags.zero1_gradients},
                              {"--reshard-after-forward", flags.reshard_after_forward}};
  for (const auto& [name, value] : of_one) {
    if (value) return Refuse(absl::StrCat("--compare shows every strategy: leave out ", name));
  }
  for (const StrategyChoice& choice : StrategyChoices()) ask(choice);
  question.shard_group = static_cast<int>(ComparedShardGroup(question.degree));
  if (flags.shard_group) SHERD_RETURN_IF_ERROR(ReadShardGroup(flags, question));
  if (flags.shard_group || question.shard_group > 1) ask(kHybridChoice);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanRequest> ReadPlanFlags(const PlanFlags& flags) {
  SHERD_RETURN_IF_ERROR(CheckCombination(flags));
  PlanRequest request;
  SHERD_ASSIGN_OR_RETURN(request.workers,
                         ParseCount("--workers", *flags.workers, 1, kMostTheoryWorkers));
  if (flags.rank) {
    SHERD_ASSIGN_OR_RETURN(const int64_t rank,
                           ParseCount("--rank", *flags.rank, 0, request.workers - 1));
    request.rank = static_cast<int>(rank);
  }
  SHERD_RETURN_IF_ERROR(ReadLimits(flags, request));
  SHERD_RETURN_IF_ERROR(ReadCost(flags, request));
  if (flags.params) SHERD_RETURN_IF_ERROR(ReadTheory(flags, request));
  return request;
}

}  // namespace sherd
