// Training steps of one worker, through the step plan, the communicator and the optimizer that a
// job uses, on random tokens. One repetition is one step.
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>

#include "CLI/CLI.hpp"
#include "bench/repetitions.h"
#include "bench/world.h"
#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "plan/job_spec.h"
#include "plan/ledger.h"
#include "plan/model_flops.h"
#include "worker/model/model.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_mesh.h"
#include "worker/train/rank_state.h"
#include "worker/train/step_executor.h"

namespace sherd {
namespace {

struct Options {
  std::string preset = "gpt2-124m";
  v1::DataType compute = v1::DATA_TYPE_FP32;
  v1::Strategy strategy = v1::STRATEGY_DDP;
  int rank = 0;
  int world = 1;
  int threads = 2;
  int64_t global_batch = 4;
  int64_t micro_batch = 4;
  int64_t seq_len = 256;
};

class RandomBytes final : public BatchSource {
 public:
  // Tokens of a micro-batch and of a step.
  RandomBytes(int64_t tokens, int64_t targets) : tokens_(tokens), targets_(targets) {}
  absl::Status ReadTrain(int64_t step, int64_t index, int32_t* inputs, int32_t* targets) override {
    std::mt19937 random(static_cast<uint32_t>(step * 1000 + index));
    for (int64_t i = 0; i < tokens_; ++i) {
      inputs[i] = static_cast<int32_t>(random() % 256);
      targets[i] = static_cast<int32_t>(random() % 256);
    }
    return absl::OkStatus();
  }
  int64_t TrainTargets(int64_t) override { return targets_; }
  absl::Status ReadEval(int64_t, int32_t*, int32_t*) override {
    return absl::UnimplementedError("a benchmark does not evaluate");
  }

 private:
  const int64_t tokens_;
  const int64_t targets_;
};

v1::JobSpec JobOf(const Options& options) {
  v1::JobSpec spec;
  spec.set_name("bench");
  spec.mutable_model()->set_preset(options.preset);
  spec.mutable_data()->add_train("random");
  v1::TrainSpec& train = *spec.mutable_train();
  train.set_steps(1'000'000);
  train.set_global_batch(options.global_batch);
  train.set_micro_batch(options.micro_batch);
  train.set_seq_len(options.seq_len);
  train.set_seed(1);
  train.mutable_optimizer()->set_lr(1e-4);
  train.set_grad_clip(1.0);
  spec.mutable_parallel()->set_strategy(options.strategy);
  spec.mutable_precision()->set_compute(options.compute);
  spec.mutable_precision()->set_grad(options.compute);
  // What is compared with keeps none either; bench/copies_cost.py measures them.
  spec.mutable_elastic()->set_replicas(0);
  spec = NormalizeJobSpec(spec);
  const v1::InvalidFields invalid = ValidateJobSpec(spec);
  if (invalid.fields_size() != 0) std::cerr << invalid.DebugString();
  SHERD_CHECK(invalid.fields_size() == 0);
  return spec;
}

// All ranks share shards.
RankMesh::Axes AxesOf(World& world, int ranks) {
  RankMesh::Axes axes;
  axes.sharers.comm = world.TakeComm();
  for (int rank = 0; rank < ranks; ++rank) axes.sharers.ranks.push_back(rank);
  return axes;
}

void ServeSteps(const Options& options, Repetitions& repetitions) {
  const v1::JobSpec spec = JobOf(options);
  const RankPlan plan = BuildRankPlan(spec, options.rank, options.world);
  World world(repetitions, options.rank, options.world, ArenaBytes(plan));
  MemoryMeter meter;
  const std::unique_ptr<Ops> ops = MakeCpuOps(options.threads, meter);
  RankMesh mesh(AxesOf(world, options.world));
  RankArenas arenas;
  arenas.sharers = mesh.sharers().arena();
  RankMemory memory(plan, arenas, VersionSlots{}, meter);
  StepCommits commits(/*segment=*/nullptr, /*report=*/nullptr);
  const std::unique_ptr<Model> model =
      MakeModel(plan.shape, plan.inventory, options.micro_batch, options.seq_len,
                KeptActivations::kEverything, *ops, meter, /*tensor=*/nullptr, LossOptions{},
                {.room = RoomIn(plan), .gradients = memory.gradients()});
  RandomBytes source(options.micro_batch * options.seq_len, options.global_batch * options.seq_len);
  HostDevice device;
  StepExecutor executor(plan, spec, *ops, *model, /*tensor=*/nullptr, mesh, memory, commits, source,
                        meter, device);
  InitializeParameters(plan, spec.train().seed(), memory, *ops, device);

  const int64_t tokens = options.global_batch * options.seq_len;
  int64_t step = 0;
  const auto train = [&]() -> Figures {
    const PhaseSeconds before = executor.phases();
    Figures figures = Timed([&] {
      const absl::StatusOr<StepFigures> trained = executor.Train(++step);
      if (!trained.ok()) std::cerr << trained.status() << std::endl;
      SHERD_CHECK(trained.ok());
    });
    const PhaseSeconds& after = executor.phases();
    figures.insert(figures.end(), {{"forward", after.forward - before.forward},
                                   {"backward", after.backward - before.backward},
                                   {"exposed", after.exposed - before.exposed},
                                   {"update", after.update - before.update}});
    return figures;
  };
  repetitions.Serve({{"tokens", static_cast<double>(tokens)},
                     {"flops", TrainingFlops(plan.shape, plan.inventory, options.seq_len, tokens)}},
                    train);
}

}  // namespace
}  // namespace sherd

int main(int argc, char** argv) {
  sherd::Repetitions repetitions;
  sherd::Options options;
  CLI::App app("Training steps, one a repetition; driven by compare.py");
  app.add_option("--preset", options.preset, "a model preset of the job file");
  const std::map<std::string, sherd::v1::DataType> types{{"fp32", sherd::v1::DATA_TYPE_FP32},
                                                         {"bf16", sherd::v1::DATA_TYPE_BF16}};
  app.add_option("--compute", options.compute)->transform(CLI::Transformer(types));
  const std::map<std::string, sherd::v1::Strategy> strategies{{"ddp", sherd::v1::STRATEGY_DDP},
                                                              {"zero1", sherd::v1::STRATEGY_ZERO1},
                                                              {"zero2", sherd::v1::STRATEGY_ZERO2},
                                                              {"zero3", sherd::v1::STRATEGY_ZERO3}};
  app.add_option("--strategy", options.strategy)->transform(CLI::Transformer(strategies));
  app.add_option("--rank", options.rank);
  app.add_option("--world", options.world);
  app.add_option("--threads", options.threads);
  app.add_option("--global-batch", options.global_batch);
  app.add_option("--micro-batch", options.micro_batch);
  app.add_option("--seq-len", options.seq_len);
  CLI11_PARSE(app, argc, argv);
  sherd::ServeSteps(options, repetitions);
  return 0;
}
