#include "plan/parameters.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sherd {
namespace {

// The initial standard deviation of both architectures.
constexpr double kStddev = 0.02;

class UnitBuilder {
 public:
  UnitBuilder(UnitKind kind, std::string name, int64_t layer) {
    unit_.kind = kind;
    unit_.name = std::move(name);
    unit_.layer = layer;
  }

  UnitBuilder& Matrix(const std::string& name, int64_t rows, int64_t columns, double stddev) {
    return Append(name, {rows, columns}, /*decays=*/true, {Initializer::Kind::kNormal, stddev});
  }
  UnitBuilder& Bias(const std::string& name, int64_t size) {
    return Append(name, {size}, /*decays=*/false, {Initializer::Kind::kZeros, 0});
  }
  // A layer norm's weight and bias.
  UnitBuilder& Norm(const std::string& name, int64_t size) {
    Append(absl::StrCat(name, ".weight"), {size}, /*decays=*/false, {Initializer::Kind::kOnes, 0});
    return Bias(absl::StrCat(name, ".bias"), size);
  }
  // An RMS norm's weight.
  UnitBuilder& Scale(const std::string& name, int64_t size) {
    return Append(absl::StrCat(name, ".weight"), {size}, /*decays=*/false,
                  {Initializer::Kind::kOnes, 0});
  }
  Unit Build() { return std::move(unit_); }

 private:
  UnitBuilder& Append(const std::string& name, std::vector<int64_t> shape, bool decays,
                      Initializer init) {
    Parameter parameter;
    parameter.name = name;
    parameter.elements = 1;
    for (const int64_t extent : shape) parameter.elements *= extent;
    parameter.shape = std::move(shape);
    parameter.offset = unit_.elements;
    parameter.decays = decays;
    parameter.init = init;
    unit_.elements += parameter.elements;
    unit_.parameters.push_back(std::move(parameter));
    return *this;
  }

  Unit unit_;
};

// Projections back into the residual stream start smaller, by the square root of their number
// (Radford et al. 2019, section 2.3).
double ResidualStddev(const ModelShape& shape) {
  return kStddev / std::sqrt(2.0 * static_cast<double>(shape.layers));
}

Unit Gpt2Embedding(const ModelShape& shape) {
  return UnitBuilder(UnitKind::kEmbedding, "embedding", -1)
      .Matrix("wte.weight", shape.vocab, shape.hidden, kStddev)
      .Matrix("wpe.weight", shape.context, shape.hidden, kStddev)
      .Build();
}

Unit Gpt2Block(const ModelShape& shape, int64_t layer) {
  const std::string prefix = absl::StrCat("h.", layer);
  const int64_t hidden = shape.hidden;
  const double residual = ResidualStddev(shape);
  return UnitBuilder(UnitKind::kBlock, prefix, layer)
      .Norm(prefix + ".ln_1", hidden)
      .Matrix(prefix + ".attn.c_attn.weight", 3 * hidden, hidden, kStddev)
      .Bias(prefix + ".attn.c_attn.bias", 3 * hidden)
      .Matrix(prefix + ".attn.c_proj.weight", hidden, hidden, residual)
      .Bias(prefix + ".attn.c_proj.bias", hidden)
      .Norm(prefix + ".ln_2", hidden)
      .Matrix(prefix + ".mlp.c_fc.weight", shape.ffn, hidden, kStddev)
      .Bias(prefix + ".mlp.c_fc.bias", shape.ffn)
      .Matrix(prefix + ".mlp.c_proj.weight", hidden, shape.ffn, residual)
      .Bias(prefix + ".mlp.c_proj.bias", hidden)
      .Build();
}

Unit LlamaEmbedding(const ModelShape& shape) {
  return UnitBuilder(UnitKind::kEmbedding, "embedding", -1)
      .Matrix("model.embed_tokens.weight", shape.vocab, shape.hidden, kStddev)
      .Build();
}

// q, k and v lie one behind the other, and so do gate and up: what reads the same input is one
// matrix to the model, which multiplies by it once.
Unit LlamaBlock(const ModelShape& shape, int64_t layer) {
  const std::string prefix = absl::StrCat("model.layers.", layer);
  const int64_t hidden = shape.hidden;
  const int64_t kv_channels = shape.kv_heads * shape.head_size();
  const double residual = ResidualStddev(shape);
  return UnitBuilder(UnitKind::kBlock, prefix, layer)
      .Scale(prefix + ".input_layernorm", hidden)
      .Matrix(prefix + ".self_attn.q_proj.weight", hidden, hidden, kStddev)
      .Matrix(prefix + ".self_attn.k_proj.weight", kv_channels, hidden, kStddev)
      .Matrix(prefix + ".self_attn.v_proj.weight", kv_channels, hidden, kStddev)
      .Matrix(prefix + ".self_attn.o_proj.weight", hidden, hidden, residual)
      .Scale(prefix + ".post_attention_layernorm", hidden)
      .Matrix(prefix + ".mlp.gate_proj.weight", shape.ffn, hidden, kStddev)
      .Matrix(prefix + ".mlp.up_proj.weight", shape.ffn, hidden, kStddev)
      .Matrix(prefix + ".mlp.down_proj.weight", hidden, shape.ffn, residual)
      .Build();
}

Unit BuildHead(const ModelShape& shape) {
  UnitBuilder head(UnitKind::kHead, "head", -1);
  if (shape.arch == Architecture::kLlama) {
    head.Scale("model.norm", shape.hidden);
  } else {
    head.Norm("ln_f", shape.hidden);
  }
  if (!shape.tie_embeddings) head.Matrix("lm_head.weight", shape.vocab, shape.hidden, kStddev);
  return head.Build();
}

}  // namespace

Inventory BuildInventory(const ModelShape& shape) {
  const bool llama = shape.arch == Architecture::kLlama;
  Inventory inventory;
  inventory.tied = shape.tie_embeddings;
  inventory.units.push_back(llama ? LlamaEmbedding(shape) : Gpt2Embedding(shape));
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    inventory.units.push_back(llama ? LlamaBlock(shape, layer) : Gpt2Block(shape, layer));
  }
  inventory.units.push_back(BuildHead(shape));
  for (const Unit& unit : inventory.units) inventory.elements += unit.elements;
  return inventory;
}

}  // namespace sherd
