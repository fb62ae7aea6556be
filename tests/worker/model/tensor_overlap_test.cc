#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "tests/worker/model/tensor_world.h"

namespace sherd {
namespace {

// Begins what a model asks of it only when the model waits for it, as late as a slow group may.
class LateCommunicator final : public Communicator {
 public:
  // `on_reduction` is called where a reduction is asked for and where it is waited for.
  LateCommunicator(std::unique_ptr<Communicator> real, std::function<void()> on_reduction)
      : real_(std::move(real)), on_reduction_(std::move(on_reduction)) {}

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  absl::string_view transport() const override { return real_->transport(); }
  std::byte* arena() const override { return real_->arena(); }
  int64_t arena_bytes() const override { return real_->arena_bytes(); }
  int64_t control_bytes() const override { return real_->control_bytes(); }
  absl::Status status() const override { return real_->status(); }
  WireCounts counts() const override { return real_->counts(); }
  int ended_by() const override { return real_->ended_by(); }
  std::vector<int> missing() const override { return real_->missing(); }
  void Abort(absl::string_view reason) override { real_->Abort(reason); }

  Ticket AllGather(const void* shard, void* gathered, int64_t bytes) override {
    return Later([=, this] { return real_->AllGather(shard, gathered, bytes); });
  }
  Ticket ReduceScatterInPlace(void* data, absl::Span<const int64_t> segments, DType dtype,
                              int contributors) override {
    on_reduction_();
    const std::vector<int64_t> kept(segments.begin(), segments.end());
    return Later([=, this] {
      on_reduction_();
      return real_->ReduceScatterInPlace(data, kept, dtype, contributors);
    });
  }
  Ticket AllReduce(void* data, int64_t elements, DType dtype, int contributors) override {
    on_reduction_();
    return Later([=, this] {
      on_reduction_();
      return real_->AllReduce(data, elements, dtype, contributors);
    });
  }
  absl::Status Wait(Ticket ticket) override {
    const auto begin = waiting_.extract(ticket);
    SHERD_CHECK(!begin.empty());
    return real_->Wait(begin.mapped()());
  }

  // No model asks for these.
  Ticket ReduceScatter(const void*, int, TreeAccumulator*) override { return Unasked(); }
  Ticket Broadcast(void*, int64_t, int) override { return Unasked(); }
  Ticket Barrier() override { return Unasked(); }
  Ticket Exchange(const void*, void*, int64_t) override { return Unasked(); }

 private:
  Ticket Later(std::function<Ticket()> begin) {
    waiting_.emplace(++last_, std::move(begin));
    return last_;
  }
  static Ticket Unasked() {
    SHERD_CHECK(false && "not an operation of a model");
    return 0;
  }

  const std::unique_ptr<Communicator> real_;
  const std::function<void()> on_reduction_;
  std::map<Ticket, std::function<Ticket()>> waiting_;
  Ticket last_ = 0;
};

constexpr int64_t kBatch = 2, kTokens = 6, kVocab = 13;

ModelShape Shape(Architecture arch) {
  ModelShape shape;
  shape.arch = arch;
  shape.layers = 2;
  shape.hidden = 16;
  shape.heads = 4;
  shape.kv_heads = 4;
  shape.ffn = 24;
  shape.vocab = kVocab;
  shape.context = kTokens;
  shape.tie_embeddings = false;
  return shape;
}

void ForEveryGroup(const std::function<void(const ModelShape& shape, bool sequence)>& rule) {
  for (const Architecture arch : {Architecture::kGpt2, Architecture::kLlama}) {
    for (const bool sequence : {false, true}) rule(Shape(arch), sequence);
  }
}

// F8: nothing is read before it has come, and nothing is written while a group may read it.
TEST(TensorOverlap, AGroupMayBeAsLateAsItLikes) {
  ForEveryGroup([](const ModelShape& shape, bool sequence) {
    for (const auto kept : {KeptActivations::kEverything, KeptActivations::kBlockInputs}) {
      ModelHarness whole(shape, kBatch, kTokens);
      whole.Randomize(31);
      TensorWorld prompt(shape, 2, sequence, kBatch, kTokens, kept);
      TensorWorld late(shape, 2, sequence, kBatch, kTokens, kept,
                       [](std::unique_ptr<Communicator> real, int) {
                         return std::make_unique<LateCommunicator>(std::move(real), [] {});
                       });
      prompt.CopyParameters(whole);
      late.CopyParameters(whole);
      const RandomBatch batch(kBatch, kTokens, kVocab, 32);
      EXPECT_EQ(late.Step(batch.view(), 1.0f), prompt.Step(batch.view(), 1.0f));
      for (const Unit& unit : whole.inventory().units) {
        for (const Parameter& parameter : unit.parameters) {
          EXPECT_EQ(late.Gradient(parameter), prompt.Gradient(parameter)) << parameter.name;
        }
      }
    }
  });
}

// F9: when the sum of a layer's input gradients is asked for, the gradient of its weights is still
// to come; when it is waited for, it is there.
TEST(TensorOverlap, WeightGradientsAreComputedWhileInputGradientsAreSummed) {
  ForEveryGroup([](const ModelShape& shape, bool sequence) {
    const bool llama = shape.arch == Architecture::kLlama;
    const std::string layer = llama ? "model.layers.1." : "h.1.";
    const std::string of_mlp = layer + (llama ? "mlp.up_proj.weight" : "mlp.c_fc.weight");
    const std::string of_attention =
        layer + (llama ? "self_attn.q_proj.weight" : "attn.c_attn.weight");
    // Of member 0: which of the two had been computed at the beginning and end of each reduction.
    std::vector<std::pair<bool, bool>> computed;
    ModelHarness* watched = nullptr;
    constexpr float kUnset = 1e30f;
    const auto look = [&] {
      if (watched == nullptr) return;
      computed.emplace_back(*watched->grad(of_mlp) != kUnset,
                            *watched->grad(of_attention) != kUnset);
    };
    TensorWorld world(shape, 2, sequence, kBatch, kTokens, KeptActivations::kEverything,
                      [&](std::unique_ptr<Communicator> real, int index) {
                        return std::make_unique<LateCommunicator>(
                            std::move(real), index == 0 ? look : std::function<void()>([] {}));
                      });
    const RandomBatch batch(kBatch, kTokens, kVocab, 33);
    world.Run([&](int index) {
      ModelHarness& member = world.member(index);
      for (int u = 0; u < member.units(); ++u) member.Forward(u, batch.view());
      member.Backward(3, batch.view(), 1.0f);
      *member.grad(of_mlp) = *member.grad(of_attention) = kUnset;
      if (index == 0) watched = &member;
      member.Backward(2, batch.view(), 1.0f);
      if (index == 0) watched = nullptr;
    });
    // First that of the MLP, then that of the attention.
    EXPECT_EQ(computed, (std::vector<std::pair<bool, bool>>{
                            {false, false}, {true, false}, {true, false}, {true, true}}));
  });
}

}  // namespace
}  // namespace sherd
