#include "tests/worker/model/model_harness.h"

#include <random>

#include "common/check.h"

namespace sherd {

ModelHarness::ModelHarness(const ModelShape& shape, int64_t batch, int64_t tokens,
                           KeptActivations kept, int threads, const TensorPlace& place,
                           TensorGroup* tensor, const LossOptions& loss)
    : inventory_(BuildInventory(shape, place)), ops_(MakeCpuOps(threads, scratch_meter_)) {
  for (const Unit& unit : inventory_.units) {
    params_.emplace_back(unit.elements);
    // Garbage, which backward must overwrite.
    grads_.emplace_back(unit.elements, 1e30f);
  }
  for (size_t u = 0; u < params_.size(); ++u) {
    param_units_.push_back({params_[u].data(), DType::kF32});
    grad_units_.push_back({grads_[u].data(), DType::kF32});
  }
  model_ = MakeModel(shape, inventory_, batch, tokens, kept, *ops_, meter_, tensor, loss);
}

ModelHarness::Place ModelHarness::Find(const std::string& name) const {
  for (size_t u = 0; u < inventory_.units.size(); ++u) {
    for (const Parameter& parameter : inventory_.units[u].parameters) {
      if (parameter.name == name) return {u, &parameter};
    }
  }
  SHERD_CHECK(false && "no such parameter");
  return {};
}

float* ModelHarness::param(const std::string& name) {
  const Place place = Find(name);
  return params_[place.unit].data() + place.parameter->offset;
}

float* ModelHarness::grad(const std::string& name) {
  const Place place = Find(name);
  return grads_[place.unit].data() + place.parameter->offset;
}

const Parameter& ModelHarness::parameter(const std::string& name) const {
  return *Find(name).parameter;
}

void ModelHarness::Randomize(uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  for (size_t u = 0; u < params_.size(); ++u) {
    for (const Parameter& parameter : inventory_.units[u].parameters) {
      const float center = parameter.init.kind == Initializer::Kind::kOnes ? 1.0f : 0.0f;
      for (int64_t i = 0; i < parameter.elements; ++i) {
        params_[u][static_cast<size_t>(parameter.offset + i)] = center + normal(generator);
      }
    }
  }
}

void ModelHarness::Forward(int unit, const MicroBatch& micro_batch) {
  model_->Forward(unit, param_units_, micro_batch);
}

double ModelHarness::Backward(int unit, const MicroBatch& micro_batch, float scale) {
  return model_->Backward(unit, param_units_, grad_units_, micro_batch, scale);
}

double ModelHarness::LossAfterForward(const MicroBatch& micro_batch) {
  return model_->Loss(param_units_, micro_batch);
}

void ModelHarness::Forward(const MicroBatch& micro_batch) {
  for (int u = 0; u < units(); ++u) Forward(u, micro_batch);
}

double ModelHarness::Loss(const MicroBatch& micro_batch) {
  Forward(micro_batch);
  return LossAfterForward(micro_batch);
}

std::vector<float> ModelHarness::Logits(int64_t rows) {
  const float* logits = model_->Logits(param_units_, 0, rows);
  return {logits, logits + rows * inventory_.part.vocab};
}

double ModelHarness::Step(const MicroBatch& micro_batch, float scale) {
  Forward(micro_batch);
  double loss = 0;
  for (int u = units() - 1; u >= 0; --u) loss += Backward(u, micro_batch, scale);
  return loss;
}

RandomModel::RandomModel(std::mt19937_64& generator) {
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(generator);
  };
  const bool llama = draw(2) == 1;
  shape.arch = llama ? Architecture::kLlama : Architecture::kGpt2;
  shape.layers = draw(5);
  shape.kv_heads = draw(5);
  shape.heads = shape.kv_heads * (llama ? draw(3) : 1);
  shape.hidden = shape.heads * draw(9) * (llama ? 2 : 1);
  shape.ffn = draw(200);
  shape.vocab = draw(300);
  shape.context = draw(20);
  shape.tie_embeddings = draw(2) == 1;
  batch = draw(4);
  tokens = draw(shape.context);
  kept = static_cast<KeptActivations>(draw(3) - 1);
}

RandomBatch::RandomBatch(int64_t batch, int64_t tokens, int64_t vocab, uint64_t seed)
    : batch(batch), tokens(tokens) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab) - 1);
  for (int64_t i = 0; i < batch * tokens; ++i) {
    inputs.push_back(token(generator));
    targets.push_back(i % 5 == 3 ? -1 : token(generator));
  }
}

MicroBatch RandomBatch::view() const { return {batch, tokens, inputs.data(), targets.data()}; }

MicroBatch RandomBatch::sequence(int64_t b) const {
  return {1, tokens, inputs.data() + b * tokens, targets.data() + b * tokens};
}

}  // namespace sherd
