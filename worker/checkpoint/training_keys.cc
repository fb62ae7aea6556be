#include "worker/checkpoint/training_keys.h"

namespace sherd {
namespace {

using Train = v1::TrainSpec;

template <void (Train::*kSet)(int64_t)>
void SetWhole(Train& train, uint64_t value) {
  (train.*kSet)(static_cast<int64_t>(value));
}

template <int64_t (Train::*kGet)() const>
uint64_t GetWhole(const Train& train) {
  return static_cast<uint64_t>((train.*kGet)());
}

template <void (v1::OptimizerSpec::*kSet)(double)>
void SetOptimizer(Train& train, double value) {
  (train.mutable_optimizer()->*kSet)(value);
}

template <double (v1::OptimizerSpec::*kGet)() const>
double GetOptimizer(const Train& train) {
  return (train.optimizer().*kGet)();
}

constexpr WholeKey kWholeKeys[] = {
    {"train.steps", &GetWhole<&Train::steps>, &SetWhole<&Train::set_steps>},
    {"train.global_batch", &GetWhole<&Train::global_batch>, &SetWhole<&Train::set_global_batch>,
     /*orders_samples=*/true},
    {"train.micro_batch", &GetWhole<&Train::micro_batch>, &SetWhole<&Train::set_micro_batch>},
    {"train.seq_len", &GetWhole<&Train::seq_len>, &SetWhole<&Train::set_seq_len>,
     /*orders_samples=*/true},
    {"train.seed", [](const Train& train) { return train.seed(); },
     [](Train& train, uint64_t value) { train.set_seed(value); }, /*orders_samples=*/true},
    {"train.schedule.warmup",
     [](const Train& train) { return static_cast<uint64_t>(train.schedule().warmup()); },
     [](Train& train, uint64_t value) {
       train.mutable_schedule()->set_warmup(static_cast<int64_t>(value));
     }},
    {"train.schedule.decay",
     [](const Train& train) { return static_cast<uint64_t>(train.schedule().decay()); },
     [](Train& train, uint64_t value) {
       train.mutable_schedule()->set_decay(static_cast<int64_t>(value));
     },
     /*orders_samples=*/false, /*added_later=*/true},
};

constexpr RealKey kRealKeys[] = {
    {"train.optimizer.lr", &GetOptimizer<&v1::OptimizerSpec::lr>,
     &SetOptimizer<&v1::OptimizerSpec::set_lr>},
    {"train.optimizer.beta1", &GetOptimizer<&v1::OptimizerSpec::beta1>,
     &SetOptimizer<&v1::OptimizerSpec::set_beta1>},
    {"train.optimizer.beta2", &GetOptimizer<&v1::OptimizerSpec::beta2>,
     &SetOptimizer<&v1::OptimizerSpec::set_beta2>},
    {"train.optimizer.eps", &GetOptimizer<&v1::OptimizerSpec::eps>,
     &SetOptimizer<&v1::OptimizerSpec::set_eps>},
    {"train.optimizer.weight_decay", &GetOptimizer<&v1::OptimizerSpec::weight_decay>,
     &SetOptimizer<&v1::OptimizerSpec::set_weight_decay>},
    {"train.schedule.min_lr", [](const Train& train) { return train.schedule().min_lr(); },
     [](Train& train, double value) { train.mutable_schedule()->set_min_lr(value); }},
    {"train.grad_clip", [](const Train& train) { return train.grad_clip(); },
     [](Train& train, double value) { train.set_grad_clip(value); }},
    {"train.z_loss", [](const Train& train) { return train.z_loss(); },
     [](Train& train, double value) { train.set_z_loss(value); }, /*added_later=*/true},
    {"train.label_smoothing", [](const Train& train) { return train.label_smoothing(); },
     [](Train& train, double value) { train.set_label_smoothing(value); }, /*added_later=*/true},
};

}  // namespace

absl::Span<const WholeKey> WholeKeys() { return kWholeKeys; }
absl::Span<const RealKey> RealKeys() { return kRealKeys; }

}  // namespace sherd
