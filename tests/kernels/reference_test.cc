// The reference's gradients against central finite differences of its own forward passes: with a
// step of 1e-5 the method's error is about 1e-10 of the values' scale, rounding's 1e-11 / 1e-5.
#include "tests/kernels/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/kernels/values.h"

namespace sherd::reference {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

// The gradient of value() for every element of `at`.
Doubles Differences(Doubles& at, const std::function<double()>& value) {
  Doubles gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double center = at[i];
    at[i] = center + kStep;
    const double above = value();
    at[i] = center - kStep;
    const double below = value();
    at[i] = center;
    gradient[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Doubles Random(Draw& draw, int64_t elements) { return ToDoubles(draw.Normal(elements)); }

TEST(Reference, LinearGradientsAreFiniteDifferences) {
  Draw draw(1);
  Doubles x = Random(draw, 3 * 5), w = Random(draw, 4 * 5), bias = Random(draw, 4);
  const Doubles dy = Random(draw, 3 * 4);
  const auto value = [&] { return Dot(LinearForward(x, w, bias, 3, 5, 4), dy); };
  const LinearGradients g = LinearBackward(dy, x, w, 3, 5, 4);
  ExpectClose(g.dx, Differences(x, value), kTolerance, "dx");
  ExpectClose(g.dw, Differences(w, value), kTolerance, "dw");
  ExpectClose(g.dbias, Differences(bias, value), kTolerance, "dbias");
}

TEST(Reference, EmbeddingGradientsAreFiniteDifferences) {
  Draw draw(2);
  const Tokens tokens = {1, 0, 1, 1, 4, 1};
  Doubles wte = Random(draw, 5 * 3), wpe = Random(draw, 4 * 3);
  const Doubles dx = Random(draw, 6 * 3);
  const auto value = [&] { return Dot(EmbeddingForward(tokens, wte, wpe, 2, 3, 3), dx); };
  const EmbeddingGradients g = EmbeddingBackward(tokens, dx, 2, 3, 3, 5, 4);
  ExpectClose(g.dwte, Differences(wte, value), kTolerance, "dwte");
  ExpectClose(g.dwpe, Differences(wpe, value), kTolerance, "dwpe");
}

TEST(Reference, LayerNormGradientsAreFiniteDifferences) {
  Draw draw(3);
  Doubles x = Random(draw, 4 * 7), w = Random(draw, 7), b = Random(draw, 7);
  const Doubles dy = Random(draw, 4 * 7);
  const auto value = [&] { return Dot(LayerNormForward(x, w, b, 4, 7), dy); };
  const LayerNormGradients g = LayerNormBackward(dy, x, w, 4, 7);
  ExpectClose(g.dx, Differences(x, value), kTolerance, "dx");
  ExpectClose(g.dw, Differences(w, value), kTolerance, "dw");
  ExpectClose(g.db, Differences(b, value), kTolerance, "db");
}

TEST(Reference, GeluDerivativeIsFiniteDifferences) {
  for (double x = -6; x <= 6; x += 0.37) {
    const double slope = (Gelu(x + kStep) - Gelu(x - kStep)) / (2 * kStep);
    EXPECT_NEAR(GeluDerivative(x), slope, 1e-8) << x;
  }
}

TEST(Reference, RmsNormGradientsAreFiniteDifferences) {
  Draw draw(6);
  Doubles x = Random(draw, 4 * 7), w = Random(draw, 7);
  const Doubles dy = Random(draw, 4 * 7);
  const auto value = [&] { return Dot(RmsNormForward(x, w, 0.1, 4, 7), dy); };
  const RmsNormGradients g = RmsNormBackward(dy, x, w, 0.1, 4, 7);
  ExpectClose(g.dx, Differences(x, value), kTolerance, "dx");
  ExpectClose(g.dw, Differences(w, value), kTolerance, "dw");
}

TEST(Reference, SwiGluGradientIsFiniteDifferences) {
  Draw draw(7);
  Doubles gate_up = Random(draw, 3 * 2 * 5);
  const Doubles dy = Random(draw, 3 * 5);
  const auto value = [&] { return Dot(SwiGluForward(gate_up, 3, 5), dy); };
  ExpectClose(SwiGluBackward(dy, gate_up, 3, 5), Differences(gate_up, value), kTolerance, "dgate");
}

TEST(Reference, RotaryGradientIsFiniteDifferences) {
  Draw draw(8);
  const AttentionShape shape{.batch = 2, .tokens = 4, .heads = 2, .kv_heads = 1, .head_size = 6};
  const RotaryParams params{.theta = 30, .factor = 4, .original_context = 9};
  Doubles qkv = Random(draw, 2 * 4 * 4 * 6);
  const Doubles dqkv = Random(draw, 2 * 4 * 4 * 6);
  const auto value = [&] { return Dot(Rotary(qkv, params, shape, false), dqkv); };
  ExpectClose(Rotary(dqkv, params, shape, true), Differences(qkv, value), kTolerance, "dqkv");
}

TEST(Reference, AttentionGradientsAreFiniteDifferences) {
  Draw draw(4);
  for (const int64_t kv_heads : {1, 2, 4}) {
    const AttentionShape shape{
        .batch = 2, .tokens = 5, .heads = 4, .kv_heads = kv_heads, .head_size = 3};
    Doubles qkv = Random(draw, 2 * 5 * shape.qkv_channels());
    const Doubles dout = Random(draw, 2 * 5 * 4 * 3);
    const auto value = [&] { return Dot(AttentionForward(qkv, shape).out, dout); };
    const Doubles gradient = AttentionBackward(dout, qkv, shape);
    ExpectClose(gradient, Differences(qkv, value), kTolerance, "dqkv");
  }
}

TEST(Reference, CrossEntropyGradientIsFiniteDifferences) {
  Draw draw(5);
  Doubles logits = Random(draw, 4 * 6);
  const Tokens targets = {5, -1, 0, 2};
  const auto value = [&] { return 0.25 * CrossEntropy(logits, targets, 4, 6); };
  const Doubles gradient = CrossEntropyGradient(logits, targets, 0.25, 4, 6);
  ExpectClose(gradient, Differences(logits, value), kTolerance, "dlogits");
}

TEST(Reference, GradientOfTheObjectiveIsFiniteDifferences) {
  Draw draw(6);
  const Tokens targets = {5, -1, 0, 2};
  for (const LossOptions& options :
       {LossOptions{.z_loss = 0.3}, LossOptions{.label_smoothing = 0.2},
        LossOptions{.z_loss = 0.1, .label_smoothing = 0.4}}) {
    Doubles logits = Random(draw, 4 * 6);
    const auto value = [&] { return 0.25 * Objective(logits, targets, 4, 6, options); };
    const Doubles gradient = CrossEntropyGradient(logits, targets, 0.25, 4, 6, options);
    ExpectClose(gradient, Differences(logits, value), kTolerance, "dlogits");
  }
}

TEST(Reference, ObjectiveWithoutOptionsIsTheCrossEntropy) {
  Draw draw(7);
  const Doubles logits = Random(draw, 4 * 6);
  const Tokens targets = {5, -1, 0, 2};
  EXPECT_DOUBLE_EQ(Objective(logits, targets, 4, 6, {}), CrossEntropy(logits, targets, 4, 6));
}

// Kingma & Ba 2015: the first step moves by lr · sign(gradient), and decay by lr · decay · weight.
TEST(Reference, FirstAdamWStepMovesByTheLearningRate) {
  Doubles master = {2, -3}, m(2), v(2);
  AdamW(master, m, v, {0.5, -0.1},
        {.lr = 0.01,
         .beta1 = 0.9,
         .beta2 = 0.95,
         .eps = 0,
         .weight_decay = 0.1,
         .step = 1,
         .grad_scale = 1});
  EXPECT_NEAR(master[0], 2 - 0.01 - 0.01 * 0.1 * 2, 1e-15);
  EXPECT_NEAR(master[1], -3 + 0.01 + 0.01 * 0.1 * 3, 1e-15);
}

}  // namespace
}  // namespace sherd::reference
